"""The verbs of the Kubernetes API, over raw bodies.

    client = Client(configuration.find(None))
    claim = client.get(RESOURCE_CLAIMS, "one", namespace="default")
    client.patch(NODES, "n1", MergePatch({"metadata": {"labels": {"gpu": "yes"}}}))

Every failure of the server or the network is raised as `carina_dra.kube.errors.ApiError`. A request
is repeated only if it is a GET and its kept-alive connection turns out to be closed, or if it was
refused as unauthorized and the credentials could be renewed. `timeout` is in seconds: it limits the
time to connect, and each wait for the server after that. A client is thread-safe.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar, assert_never, cast

from carina_dra.kube.api_resource import PODS, ApiResource, Scope
from carina_dra.kube.body import Body, ObjectKey, key_of, parse_json
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import ApiOperation, ServerError, VersionGone
from carina_dra.kube.transport import Query, Transport
from carina_dra.kube.watch import Watch

T = TypeVar("T")

TIMEOUT = 15.0
"""Default timeout of every method, in seconds."""

PAGE_SIZE = 500
"""Objects per page of a list, as in client-go."""

WATCH_SECONDS = 270
"""Seconds for which the server is asked to keep a watch open."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource: those of one namespace or of all, by label and field selectors.

    Selectors are in the API's syntax: `app=web,tier!=db`, `spec.nodeName=n1`.
    """

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        query = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in query.items() if value}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The objects of a list, and the version of the list: a watch begins there."""

    items: list[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What an object must match to be deleted; Conflict is raised if it does not."""

    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: members that are given replace those of the object, null removes them."""

    changes: Body


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: operations that are applied in order, all or none."""

    operations: list[Body]


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Server-side apply: the object as its owner wants it; what it has of others stays.

    It is created if it does not exist. Fields that others have set are taken over from them.
    """

    body: Body
    field_manager: str


Patch: TypeAlias = MergePatch | JsonPatch | ApplyPatch


class Client:
    """A client of one API server. Close it, or use it in a `with` statement."""

    def __init__(self, connection: Connection, *, user_agent: str = "carina") -> None:
        self._transport = Transport(connection, user_agent=user_agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. Open watches end by themselves or by `interrupt`."""
        self._transport.close()

    def get(
        self,
        resource: ApiResource,
        name: str,
        *,
        namespace: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Body:
        """The object. Raises NotFound."""
        operation = ApiOperation.on("get", resource, namespace, name)
        path = resource.object_path(namespace, name)
        return self._call(operation, "GET", path, timeout=timeout)

    def list(
        self,
        resource: ApiResource,
        selection: Selection = EVERYTHING,
        *,
        page_size: int = PAGE_SIZE,
        timeout: float = TIMEOUT,
    ) -> Listing[Body]:
        """All objects of the selection at one version, read in pages.

        Items get apiVersion and kind, which the API server omits in lists. Raises Gone if the
        version expires even while the list is read as one page.
        """
        return self.list_as(
            resource, lambda body: body, selection, page_size=page_size, timeout=timeout
        )

    def list_as(
        self,
        resource: ApiResource,
        read: Callable[[Body], T],
        selection: Selection = EVERYTHING,
        *,
        page_size: int = PAGE_SIZE,
        timeout: float = TIMEOUT,
    ) -> Listing[T]:
        """As `list`, with what `read` makes of each object.

        Only the bodies of one page are kept at a time. If the version expires between two pages,
        all objects are read again, as one page.
        """
        try:
            return self._list(resource, read, selection, page_size, timeout)
        except VersionGone:
            # The version of the first page expired before the last page was read.
            return self._list(resource, read, selection, 0, timeout)

    def _list(
        self,
        resource: ApiResource,
        read: Callable[[Body], T],
        selection: Selection,
        page_size: int,
        timeout: float,
    ) -> Listing[T]:
        operation = ApiOperation.on("list", resource, selection.namespace)
        path = resource.collection_path(selection.namespace)
        query = selection.query() | ({"limit": str(page_size)} if page_size else {})
        items: list[T] = []
        while True:
            page = self._call(operation, "GET", path, query=query, timeout=timeout)
            # Nothing keeps the bodies of this page while the next is read.
            items += (read(_with_type(resource, body)) for body in page.pop("items", None) or ())
            proceed = page["metadata"].get("continue")
            if not proceed:
                return Listing(items, page["metadata"]["resourceVersion"])
            query["continue"] = proceed

    def watch(
        self,
        resource: ApiResource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        seconds: int = WATCH_SECONDS,
        timeout: float = TIMEOUT,
    ) -> Watch:
        """The changes since `resource_version`, with bookmarks, until the server ends the watch.

        seconds: after this time the server is asked to end it. If it sends nothing until `timeout`
        seconds after that, the watch ends too, with Unreachable.
        """
        operation = ApiOperation.on("watch", resource, selection.namespace)
        query = selection.query() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        path = resource.collection_path(selection.namespace)
        silence = seconds + timeout
        stream = self._transport.stream(
            operation, path, query=query, timeout=timeout, silence=silence
        )
        return Watch(operation, stream)

    def server_version(self, *, timeout: float = TIMEOUT) -> str:
        """The version of the API server, such as `v1.37.0`."""
        answer = self._call(ApiOperation("get", "the version"), "GET", "/version", timeout=timeout)
        return str(answer.get("gitVersion", ""))

    def page(
        self, operation: ApiOperation, path: str, *, most_bytes: int, timeout: float = TIMEOUT
    ) -> bytes:
        """The text that the server has at a path, such as `/metrics`.

        Raises ServerError if it has more than `most_bytes` bytes, and Unreachable if the server is
        silent for `timeout` seconds, or its answer is not complete that long after it began.
        """
        stream = self._transport.stream(operation, path, query={}, timeout=timeout, silence=timeout)
        try:
            return stream.content(most_bytes, timeout)
        finally:
            stream.close()

    def page_of_pod(
        self, namespace: str, name: str, path: str, *, most_bytes: int, timeout: float = TIMEOUT
    ) -> bytes:
        """The same of a pod, at its first port, which the API server asks for it."""
        operation = ApiOperation("get", "pods/proxy", ObjectKey(namespace, name))
        proxy = PODS.object_path(namespace, name, "proxy")
        return self.page(operation, f"{proxy}{path}", most_bytes=most_bytes, timeout=timeout)

    def create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        """The object as stored, in the namespace that it names.

        Raises AlreadyExists, Invalid, NamespaceNotFound.
        """
        return self._create(resource, body, {}, timeout)

    def try_create(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        """The object as it would be stored by `create` (`dryRun`); nothing is stored."""
        return self._create(resource, body, {"dryRun": "All"}, timeout)

    def _create(self, resource: ApiResource, body: Body, query: Query, timeout: float) -> Body:
        metadata = body.get("metadata", {})
        namespace = metadata.get("namespace")
        name = metadata.get("name") or metadata.get("generateName", "")
        operation = ApiOperation.on("create", resource, namespace, name)
        if resource.scope is Scope.NAMESPACED and not namespace:
            raise ValueError(f"{operation}: metadata.namespace is missing")
        path = resource.collection_path(namespace)
        return self._call(operation, "POST", path, body=body, query=query, timeout=timeout)

    def create_subresource(
        self,
        resource: ApiResource,
        name: str,
        subresource: str,
        body: Body,
        *,
        namespace: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Body:
        """The answer to a POST to a subresource: `token`, `binding`, `eviction`."""
        operation = ApiOperation.on(f"create {subresource} of", resource, namespace, name)
        path = resource.object_path(namespace, name, subresource)
        return self._call(operation, "POST", path, body=body, timeout=timeout)

    def replace(self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT) -> Body:
        """The object as stored. Raises NotFound, and Conflict if it has changed since then."""
        return self._replace(resource, body, None, timeout)

    def replace_status(
        self, resource: ApiResource, body: Body, *, timeout: float = TIMEOUT
    ) -> Body:
        """Like `replace`, for the status alone."""
        # Tests need it: so kube-scheduler and kubelets write, in whose place they act.
        return self._replace(resource, body, "status", timeout)

    def _replace(
        self, resource: ApiResource, body: Body, subresource: str | None, timeout: float
    ) -> Body:
        key = key_of(body)
        verb = f"replace {subresource} of" if subresource else "replace"
        operation = ApiOperation.on(verb, resource, key.namespace, key.name)
        path = resource.object_path(key.namespace, key.name, subresource)
        return self._call(operation, "PUT", path, body=body, timeout=timeout)

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Body:
        """The object as patched.

        Raises NotFound. Raises Conflict if the patch has a resourceVersion other than the object's.
        """
        verb = f"patch {subresource} of" if subresource else "patch"
        operation = ApiOperation.on(verb, resource, namespace, name)
        content, content_type, query = _wire_form(patch)
        return self._call(
            operation,
            "PATCH",
            resource.object_path(namespace, name, subresource),
            query=query,
            body=content,
            content_type=content_type,
            timeout=timeout,
        )

    def delete(
        self,
        resource: ApiResource,
        name: str,
        *,
        namespace: str | None = None,
        preconditions: Preconditions = Preconditions(),
        grace_period_seconds: int | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Requests deletion; an object with finalizers, or a running pod, still exists afterwards.

        Raises NotFound, and Conflict if a precondition does not hold.
        """
        conditions = {"uid": preconditions.uid, "resourceVersion": preconditions.resource_version}
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if given := {field: value for field, value in conditions.items() if value is not None}:
            options["preconditions"] = given
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        operation = ApiOperation.on("delete", resource, namespace, name)
        path = resource.object_path(namespace, name)
        self._call(operation, "DELETE", path, body=options, timeout=timeout)

    def delete_collection(
        self, resource: ApiResource, selection: Selection, *, timeout: float = TIMEOUT
    ) -> None:
        """Requests deletion of all objects of the selection."""
        # Tests and benchmarks need it, which remove thousands of objects in one request.
        operation = ApiOperation.on("delete all", resource, selection.namespace)
        path = resource.collection_path(selection.namespace)
        self._call(operation, "DELETE", path, query=selection.query(), timeout=timeout)

    def _call(
        self,
        operation: ApiOperation,
        method: str,
        path: str,
        *,
        timeout: float,
        query: Query | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Body:
        content = self._transport.request(
            operation,
            method,
            path,
            query=query or {},
            timeout=timeout,
            content=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
            content_type=content_type,
        )
        try:
            answer = parse_json(content)
        except ValueError as error:
            raise ServerError(
                operation, f"the answer cannot be read: {error}: {content[:200]!r}"
            ) from error
        if not isinstance(answer, dict):
            raise ServerError(operation, f"the answer is not a JSON object: {content[:200]!r}")
        return cast("Body", answer)


def _with_type(resource: ApiResource, body: Body) -> Body:
    body["apiVersion"], body["kind"] = resource.api_version, resource.kind
    return body


def _wire_form(patch: Patch) -> tuple[object, str, Query]:
    """A patch's body, content type and query parameters."""
    match patch:
        case MergePatch(changes):
            return changes, "application/merge-patch+json", {}
        case JsonPatch(operations):
            return operations, "application/json-patch+json", {}
        case ApplyPatch(body, field_manager):
            query = {"fieldManager": field_manager, "force": "true"}
            return body, "application/apply-patch+yaml", query  # JSON is YAML
    assert_never(patch)
