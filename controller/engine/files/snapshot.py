"""Snapshots and plans as documents.

A snapshot is any number of documents. Nodes, ResourceSlices, DeviceClasses, DeviceTaintRules and
ResourceClaims are as Kubernetes writes them, also in lists; Queues are objects of
scheduling.carina.dev. One document of kind Snapshot has everything else: the time, groups and pods
as the engine sees them, settings, and what the engine remembers. Pods are not core/v1 Pods, since
one of those does not say all that the engine knows of a pod, such as its rank and its budgets.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, cast

from carina_dra.manifests.manifest import ManifestError, ManifestObjects
from carina_dra.resource import JsonObject, ResourceClaim, encode
from carina_dra.resource.errors import BadValueError, did_you_mean
from controller.engine.files.node import read_node, write_node
from controller.engine.files.queue import API_VERSION, KIND, read_queue, write_queue
from controller.engine.files.value import JsonMembers, codec_of
from controller.engine.model.plan import Plan
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import Snapshot

SNAPSHOT: Final = "Snapshot"
PLAN: Final = "Plan"
_OBJECTS: Final = ("nodes", "slices", "classes", "rules", "claims", "queues")
"""The fields of a snapshot whose objects are documents of their own."""
_REST: Final = JsonMembers(Snapshot, without=_OBJECTS)


@dataclass(slots=True)
class SnapshotDocuments:
    """The documents read so far."""

    strict: bool = True
    """Whether unknown fields of Kubernetes objects are errors. A newer API server has such."""
    _objects: ManifestObjects = field(default_factory=ManifestObjects)
    _queues: dict[str, tuple[str, Queue]] = field(default_factory=dict)
    """By name: where it was given, and the queue."""
    _rest: tuple[str, dict[str, Any]] | None = None
    """Where the Snapshot object was given, and its fields."""

    def add(self, location: str, document: object) -> None:
        """Adds a document; `location` is its place in errors.

        Raises:
            ManifestError: the document is not valid, or was added before.
        """
        match document:
            case {"kind": "List", "apiVersion": "v1", "items": [*items]}:
                for index, item in enumerate(items):
                    self.add(f"{location}, items[{index}]", item)
            case {"apiVersion": str() as version, "kind": str() as kind} if _is_own(version):
                self._add_own(location, version, kind, cast("JsonObject", document))
            case _:
                self._objects.add(location, document, strict=self.strict)
                for ignored in self._objects.ignored:
                    raise ManifestError(f"{location}: {ignored} is not part of a snapshot")

    def snapshot(self, source: str) -> Snapshot:
        """The snapshot; `source` is the name of the file in errors.

        Raises:
            ManifestError: there is no Snapshot object, or a node or claim does not fit in.
        """
        if self._rest is None:
            raise ManifestError(
                f"{source}: has no Snapshot; write apiVersion: {API_VERSION}, kind: {SNAPSHOT} "
                "and now, the time in seconds"
            )
        claims = []
        for claim in self._objects.claims:
            if not isinstance(claim, ResourceClaim):
                raise ManifestError(
                    f"{source}: ResourceClaimTemplate {claim.metadata.key}: is not part of a "
                    "snapshot; write the claim of each pod"
                )
            claims.append(claim)
        return Snapshot(
            nodes=tuple(_node(source, body) for body in self._objects.nodes),
            slices=tuple(self._objects.slices),
            classes=tuple(self._objects.classes),
            rules=tuple(self._objects.rules),
            claims=tuple(claims),
            queues=tuple(queue for _, queue in self._queues.values()),
            **self._rest[1],
        )

    def _add_own(self, location: str, version: str, kind: str, document: JsonObject) -> None:
        if version != API_VERSION:
            raise ManifestError(f"{location}: apiVersion is {version}; write {API_VERSION}")
        if kind == KIND:
            queue = _read(location, f"{kind} {_name(document)}".rstrip(), read_queue, document)
            if queue.name in self._queues:
                first, _ = self._queues[queue.name]
                raise ManifestError(
                    f"{location}: Queue {queue.name}: is also in {first}; remove one of them"
                )
            self._queues[queue.name] = (location, queue)
        elif kind == SNAPSHOT:
            if self._rest is not None:
                raise ManifestError(f"{location}: Snapshot: is also in {self._rest[0]}")
            self._rest = (location, _read(location, kind, _read_rest, document))
        else:
            remedy = did_you_mean(kind, [KIND, SNAPSHOT])
            raise ManifestError(
                f"{location}: kind is {kind!r:.80}, which a snapshot does not have; {remedy}"
            )


def snapshot_documents(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The documents of a snapshot, which `SnapshotDocuments` reads as an equal one."""
    yield {"apiVersion": API_VERSION, "kind": SNAPSHOT, **_REST.write(snapshot)}
    yield from map(write_queue, snapshot.queues)
    yield from map(write_node, snapshot.nodes)
    yield from map(
        encode, chain(snapshot.classes, snapshot.rules, snapshot.slices, snapshot.claims)
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as a document."""
    return {"apiVersion": API_VERSION, "kind": PLAN, **codec_of(Plan).write(plan)}


def read_plan(document: JsonObject) -> Plan:
    """Reads what `plan_document` wrote.

    Raises:
        BadValueError: the document is not a plan.
    """
    plan: Plan = codec_of(Plan).read(_without_header(document, PLAN))
    return plan


def _read_rest(document: JsonObject) -> dict[str, Any]:
    members = _REST.read(_without_header(document, SNAPSHOT))
    for kind in ("groups", "pods"):
        keys = [each.key for each in members.get(kind, ())]
        twice = next((key for key, count in Counter(keys).items() if count > 1), None)
        if twice is not None:
            raise BadValueError(f"has {kind} with the same key {twice}; remove one of them")
    return members


def _without_header(document: JsonObject, kind: str) -> dict[str, Any]:
    body = dict(document)
    if (body.pop("apiVersion", None), body.pop("kind", None)) != (API_VERSION, kind):
        raise BadValueError(f"is not apiVersion: {API_VERSION}, kind: {kind}")
    return body


def _node(source: str, body: JsonObject) -> Any:
    return _read(source, f"Node {_name(body)}", read_node, body)


def _read(location: str, what: str, read: Any, document: JsonObject) -> Any:
    try:
        return read(document)
    except BadValueError as error:
        parts = (location, what, error.path, error.problem)
        raise ManifestError(": ".join(part for part in parts if part)) from None
    except RecursionError:
        raise ManifestError(f"{location}: {what}: is nested too deeply") from None


def _name(document: JsonObject) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _is_own(version: str) -> bool:
    return version.partition("/")[0] == API_VERSION.partition("/")[0]
