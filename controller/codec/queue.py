"""Queue as an object of the API group scheduling.carina.dev, cluster-scoped.

apiVersion: scheduling.carina.dev/v1alpha1
kind: Queue
metadata:
  name: research
spec:
  parent: company
  resources:
  - deviceClass: gpu.carina.dev
    quota: 8
    limit: 16
    weight: 2
  - name: memory
    quota: unlimited
  reclaimMinRuntime: 10m
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Any, Final, TypeAlias, assert_never

from carina_dra.allocator.preference import Policy
from carina_dra.resource import ObjectMeta
from carina_dra.resource.codec import codec as resource_codec
from carina_dra.resource.errors import BadValueError
from carina_dra.resource.value_codec import Codec
from controller.codec.amount import Duration, read_amount, write_amount
from controller.codec.value import codec_of
from controller.model.queue import UNNAMED, Entitlement, Queue
from controller.model.resource import CapacityOf, Cpu, DevicesOf, Memory, Pods, Resource

API_VERSION: Final = "scheduling.carina.dev/v1alpha1"
KIND: Final = "Queue"
UNLIMITED: Final = "unlimited"
"""The quota of a queue to which all is guaranteed that it asks for."""
_NAMED: Final[Mapping[str, Resource]] = {"cpu": Cpu(), "memory": Memory(), "pods": Pods()}

_Quantity: TypeAlias = Annotated[object, Codec(lambda value: value, lambda value: value)]
"""A quantity that is read when its resource is known."""


@dataclass(frozen=True, slots=True)
class QueueResource:
    """What a queue may have of one resource: of devices of a class, a capacity, or a name."""

    device_class: str | None = None
    capacity: str | None = None
    name: str | None = None
    quota: _Quantity = None
    limit: _Quantity = None
    weight: Fraction = UNNAMED.weight


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """The spec of a Queue; absent fields have the defaults of `Queue`."""

    parent: str | None = None
    priority: int = 100
    resources: tuple[QueueResource, ...] = ()
    preempt_min_runtime: Duration | None = None
    reclaim_min_runtime: Duration | None = None
    placement: Policy | None = None
    reserves: bool = False

    def queue(self, name: str, created: float = 0) -> Queue:
        """The queue with this spec.

        Raises:
            BadValueError: a resource is unknown or occurs twice, or an amount is not valid.
        """
        entitlements: dict[Resource, Entitlement] = {}
        for index, each in enumerate(self.resources):
            try:
                _add(entitlements, each)
            except BadValueError as error:
                error.steps.append(f".resources[{index}]")
                raise
        return Queue(
            name=name,
            parent=self.parent,
            priority=self.priority,
            created=created,
            entitlements=entitlements,
            preempt_min_runtime=self.preempt_min_runtime,
            reclaim_min_runtime=self.reclaim_min_runtime,
            placement=self.placement,
            reserves=self.reserves,
        )

    @classmethod
    def of(cls, queue: Queue) -> "QueueSpec":
        """The spec of a queue."""
        return cls(
            parent=queue.parent,
            priority=queue.priority,
            resources=tuple(
                _written(resource, entitlement)
                for resource, entitlement in queue.entitlements.items()
            ),
            preempt_min_runtime=queue.preempt_min_runtime,
            reclaim_min_runtime=queue.reclaim_min_runtime,
            placement=queue.placement,
            reserves=queue.reserves,
        )


@dataclass(frozen=True, slots=True)
class _Document:
    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: QueueSpec = field(default_factory=QueueSpec)


def read_queue(body: object) -> Queue:
    """Reads a Queue object.

    Raises:
        BadValueError: the object is not a valid Queue.
    """
    document: _Document = codec_of(_Document).read(body)
    if not document.metadata.name:
        raise BadValueError("lacks metadata.name")
    created = document.metadata.creation_timestamp
    try:
        return document.spec.queue(document.metadata.name, created.timestamp() if created else 0)
    except BadValueError as error:
        error.steps.append(".spec")
        raise


def write_queue(queue: Queue) -> dict[str, Any]:
    """Writes a Queue object. Its creation time is in whole seconds, as in the API."""
    created = datetime.fromtimestamp(queue.created, UTC) if queue.created else None
    metadata = ObjectMeta(name=queue.name, creation_timestamp=created)
    body = {"apiVersion": API_VERSION, "kind": KIND}
    body["metadata"] = resource_codec(ObjectMeta).write(metadata)
    spec = codec_of(QueueSpec).write(QueueSpec.of(queue))
    return {**body, **({"spec": spec} if spec else {})}


def _add(entitlements: dict[Resource, Entitlement], written: QueueResource) -> None:
    resource = _resource(written)
    if resource in entitlements:
        raise BadValueError("is a resource that occurs twice; remove one of them")
    entitlements[resource] = _entitlement(resource, written)


def _resource(written: QueueResource) -> Resource:
    match written:
        case QueueResource(device_class=str() as name, capacity=None, name=None) if name:
            return DevicesOf(name)
        case QueueResource(device_class=None, capacity=str() as name, name=None) if name:
            return CapacityOf(name)
        case QueueResource(device_class=None, capacity=None, name=str() as name) if name in _NAMED:
            return _NAMED[name]
        case _:
            raise BadValueError(
                "names no resource; write one of deviceClass: NAME, capacity: DOMAIN/NAME, and "
                "name: cpu, memory or pods"
            )


def _written(resource: Resource, entitlement: Entitlement) -> QueueResource:
    quota, limit = entitlement.quota, entitlement.limit
    amounts: dict[str, Any] = {
        "quota": UNLIMITED if quota is None else write_amount(resource, quota) if quota else None,
        "limit": None if limit is None else write_amount(resource, limit),
        "weight": entitlement.weight,
    }
    match resource:
        case DevicesOf(device_class=name):
            return QueueResource(device_class=name, **amounts)
        case CapacityOf(name=name):
            return QueueResource(capacity=name, **amounts)
        case Cpu() | Memory() | Pods():
            (name,) = (name for name, named in _NAMED.items() if named == resource)
            return QueueResource(name=name, **amounts)
    assert_never(resource)


def _entitlement(resource: Resource, written: QueueResource) -> Entitlement:
    if written.weight < 0:
        raise _at("weight", BadValueError(f"is {written.weight}; it must not be negative"))
    quota: int | None = UNNAMED.quota
    if written.quota == UNLIMITED:
        quota = None
    elif written.quota is not None:
        quota = _amount(resource, "quota", written.quota)
    limit = None if written.limit is None else _amount(resource, "limit", written.limit)
    return Entitlement(quota, limit, written.weight)


def _amount(resource: Resource, field_name: str, value: object) -> int:
    try:
        return read_amount(resource, value)
    except BadValueError as error:
        raise _at(field_name, error) from None


def _at(field_name: str, error: BadValueError) -> BadValueError:
    error.steps.append(f".{field_name}")
    return error
