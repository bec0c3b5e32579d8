"""Reads and writes of objects: names, versions, finalizers, owners.

The rules are those of the real API server (k8s.io/apiserver/pkg/registry/generic/registry)
for all kinds of objects; fields of single kinds are not validated. A method is one transaction.
"""

import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, assert_never

from carina_dra.kube.api_resource import NAMESPACES, PODS, Scope
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import ApplyPatch, JsonPatch, MergePatch, Patch
from simulation.api_server import patch
from simulation.api_server.event_form import as_served, as_stored
from simulation.api_server.failure import (
    Failure,
    already_exists,
    bad_request,
    conflict,
    invalid,
    modified,
    not_found,
)
from simulation.api_server.resources import SERVED, ServedResource
from simulation.api_server.selectors import Predicate
from simulation.api_server.storage import Storage

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as upstream: no vowels, so no words
_ANY_NAME = "rbac.authorization.k8s.io"  # its names may have colons

Clock: TypeAlias = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a delete: preconditions, and the grace period of a pod."""

    uid: str | None = None
    resource_version: str | None = None
    grace_period_seconds: int | None = None


class Registry:
    """The objects of the API, read and written according to its rules."""

    def __init__(self, storage: Storage, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._storage = storage
        self._clock = clock

    def get(self, served: ServedResource, key: ObjectKey) -> Body:
        """The object. Raises Failure (404)."""
        body = self._storage.get(served.storage, key)
        if body is None:
            raise not_found(served.resource, key.name)
        return as_served(served, body)

    def create(self, served: ServedResource, namespace: str, body: Body) -> Body:
        """Creates an object in a namespace; gives it as stored."""
        with self._storage.transaction():
            return self._insert(served, self._new(served, namespace, body))

    def update(self, served: ServedResource, key: ObjectKey, body: Body, subresource: str) -> Body:
        """Replaces an object, or its status; gives it as stored."""
        with self._storage.transaction():
            before = self.get(served, key)
            after = self._next(served, before, body, subresource)
            return before if before == after else self._replace(served, before, after)

    def patch(
        self, served: ServedResource, key: ObjectKey, change: Patch, subresource: str
    ) -> Body:
        """Patches an object, or its status; gives it as stored."""
        with self._storage.transaction():
            try:
                body = _patched(self.get(served, key), change)
            except (ValueError, KeyError) as error:
                raise invalid(served.resource, key.name, "", str(error)) from error
            return self.update(served, key, body, subresource)

    def bind(self, key: ObjectKey, binding: Body) -> None:
        """Assigns a pod to a node, as a POST to its `binding` does."""
        served = next(served for served in SERVED if served.resource == PODS)
        with self._storage.transaction():
            pod = self.get(served, key)
            spec = pod.get("spec", {})
            if spec.get("nodeName"):
                why = f"pod {key.name} is already assigned to node {spec['nodeName']!r}"
                raise conflict(PODS, key.name, why)
            spec = spec | {"nodeName": binding["target"]["name"]}
            self._replace(served, pod, pod | {"spec": spec})

    def delete(self, served: ServedResource, key: ObjectKey, options: DeleteOptions) -> Body | None:
        """Deletes an object; gives its body if finalizers or a grace period delay that."""
        with self._storage.transaction():
            before = self.get(served, key)
            _check_preconditions(served, before, options)
            metadata = before["metadata"]
            if served.resource == NAMESPACES:
                self._empty(key.name)
            grace = _grace(served, before, options)
            waits = metadata.get("finalizers") or self._populated(served, key.name)
            if not grace and not waits:
                self._remove(served, key)
                return None
            if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
                return before
            deletion = {
                "deletionTimestamp": timestamp(self._clock() + timedelta(seconds=grace)),
                "deletionGracePeriodSeconds": grace,
            }
            after = before | {"metadata": metadata | deletion}
            if served.resource == NAMESPACES:
                after["status"] = {"phase": "Terminating"}
            return self._replace(served, before, after)

    def delete_all(self, served: ServedResource, namespace: str, matches: Predicate) -> None:
        """Deletes all matching objects of a namespace; of all namespaces if it is empty."""
        with self._storage.transaction():
            for key, body in self._storage.objects(served.storage):
                if (not namespace or key.namespace == namespace) and matches(body):
                    self.delete(served, key, DeleteOptions())

    def _new(self, served: ServedResource, namespace: str, body: Body) -> Body:
        """The object to store for a create. Raises Failure."""
        resource = served.resource
        given = body.get("metadata") or {}
        if given.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise Failure(500, "InternalError", message)  # the status code of the real API server
        if (given.get("namespace") or namespace) != namespace:
            raise bad_request("the namespace of the object does not match the one in the URL")
        if namespace and self._storage.get("namespaces", ObjectKey("", namespace)) is None:
            raise not_found(NAMESPACES, namespace)
        name = given.get("name") or self._generated_name(given.get("generateName"))
        if not name:
            raise invalid(resource, "", "metadata.name", "Required value: name or generateName")
        if resource.group != _ANY_NAME and not _SUBDOMAIN.fullmatch(name):
            why = f"Invalid value: {name!r}: a lowercase RFC 1123 subdomain is needed"
            raise invalid(resource, name, "metadata.name", why)
        metadata = {
            **given,
            "name": name,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": timestamp(self._clock()),
        }
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(field, None)
        if resource.scope is Scope.NAMESPACED:
            metadata["namespace"] = namespace
        if served.with_generation:
            metadata["generation"] = 1
        new = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
        new["metadata"] = metadata
        if served.initial_status is not None:
            new["status"] = served.initial_status
        return new

    def _next(self, served: ServedResource, before: Body, body: Body, subresource: str) -> Body:
        """The object to store for an update. Raises Failure."""
        resource, old = served.resource, before["metadata"]
        given = body.get("metadata") or {}
        name = old["name"]
        if given.get("name", name) != name:
            raise bad_request(f"the name of the object ({given['name']}) is not the URL's ({name})")
        if given.get("uid", old["uid"]) != old["uid"]:
            why = f"Precondition failed: UID in precondition: {given['uid']}, is: {old['uid']}"
            raise conflict(resource, name, why)
        if given.get("resourceVersion") not in (None, "", old["resourceVersion"]):
            raise modified(resource, name)
        if subresource:
            status = {"status": body["status"]} if "status" in body else {}
            return {**before, "metadata": dict(old), **status}
        fixed = (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "generateName",
        )
        metadata = {name: value for name, value in given.items() if name not in fixed}
        metadata |= {name: old[name] for name in fixed if name in old}
        after = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
        after["metadata"] = metadata
        if served.has_status:
            after.pop("status", None)
            if "status" in before:
                after["status"] = before["status"]
        if served.with_generation and _specification(before) != _specification(after):
            metadata["generation"] = old["generation"] + 1
        return after

    def _insert(self, served: ServedResource, new: Body) -> Body:
        key = ObjectKey(new["metadata"].get("namespace", ""), new["metadata"]["name"])
        if self._storage.get(served.storage, key) is not None:
            raise already_exists(served.resource, key.name)
        return as_served(served, self._storage.put(served.storage, key, as_stored(served, new)))

    def _replace(self, served: ServedResource, before: Body, after: Body) -> Body:
        metadata = after["metadata"]
        key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
        last_finalizer = before["metadata"].get("finalizers") and not metadata.get("finalizers")
        if last_finalizer and metadata.get("deletionGracePeriodSeconds") == 0:
            self._remove(served, key)
            return after
        return as_served(served, self._storage.put(served.storage, key, as_stored(served, after)))

    def _remove(self, served: ServedResource, key: ObjectKey) -> None:
        """Removes an object, the dependents it was the last owner of, and an emptied namespace."""
        body = self._storage.remove(served.storage, key)
        uid = body["metadata"]["uid"]
        for other in SERVED:
            for other_key, dependent in self._storage.objects(other.storage):
                owners = dependent["metadata"].get("ownerReferences") or ()
                uids = {owner["uid"] for owner in owners}
                if uid in uids and not any(map(self._lives, uids - {uid})):
                    self._delete_if_there(other, other_key)
        namespaces = SERVED[0]
        namespace = self._storage.get(namespaces.storage, ObjectKey("", key.namespace))
        ending = namespace is not None and "deletionTimestamp" in namespace["metadata"]
        if ending and not self._populated(namespaces, key.namespace):
            self._remove(namespaces, ObjectKey("", key.namespace))

    def _delete_if_there(self, served: ServedResource, key: ObjectKey) -> None:
        if self._storage.get(served.storage, key) is not None:
            self.delete(served, key, DeleteOptions())

    def _lives(self, uid: str) -> bool:
        return any(
            body["metadata"]["uid"] == uid
            for served in SERVED
            for _, body in self._storage.objects(served.storage)
        )

    def _empty(self, namespace: str) -> None:
        for served in SERVED:
            if served.resource.scope is Scope.NAMESPACED:
                for key, _ in self._storage.objects(served.storage):
                    if key.namespace == namespace:
                        self._delete_if_there(served, key)

    def _populated(self, served: ServedResource, name: str) -> bool:
        """Whether this is a namespace with objects in it."""
        return served.resource == NAMESPACES and any(
            key.namespace == name
            for other in SERVED
            for key, _ in self._storage.objects(other.storage)
        )

    def _generated_name(self, prefix: str | None) -> str:
        if not prefix:
            return ""
        suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))
        return prefix[:58] + suffix


def timestamp(time: datetime) -> str:
    """A time in the format of metadata: RFC 3339, in seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _patched(body: Body, change: Patch) -> Body:
    """The body after a patch. Raises ValueError or KeyError where the patch does not fit."""
    result: Body
    match change:
        case MergePatch(changes):
            result = patch.merge(body, changes)
        case JsonPatch(operations):
            result = patch.json_patch(body, operations)
        case ApplyPatch():
            raise ValueError("server-side apply needs a real API server")
        case _:
            assert_never(change)
    return result


def _specification(body: Body) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}


def _check_preconditions(served: ServedResource, body: Body, options: DeleteOptions) -> None:
    metadata = body["metadata"]
    for field, name, wanted in (
        ("uid", "UID", options.uid),
        ("resourceVersion", "ResourceVersion", options.resource_version),
    ):
        is_now = metadata[field]
        if wanted not in (None, is_now):
            why = f"the {name} in the precondition ({wanted}) does not match that in record"
            raise conflict(served.resource, metadata["name"], f"{why} ({is_now})")


def _grace(served: ServedResource, body: Body, options: DeleteOptions) -> int:
    """The grace period in seconds of a pod on a node; 0 for other objects."""
    spec = body.get("spec") or {}
    if served.resource != PODS or not spec.get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds
    seconds: int = spec.get("terminationGracePeriodSeconds", 30)
    return seconds
