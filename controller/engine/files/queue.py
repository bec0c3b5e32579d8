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
  namespaces:
    names: [research-ml]
  priorities: {max: 1000}

Files may have numbers where the API server wants text: seconds of a duration, and fractions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, TypeAlias, assert_never

from carina_dra.allocator.preference import Policy
from carina_dra.resource import JsonObject, ObjectMeta
from carina_dra.resource.codec import codec as resource_codec
from carina_dra.resource.errors import BadValueError
from controller.engine.files.amount import Seconds, read_amount
from controller.engine.files.checked import (
    DNS_SUBDOMAIN,
    LONGEST_LABEL,
    LONGEST_NAME,
    Checked,
    Rule,
    choice,
    integer,
    items,
    text,
)
from controller.engine.files.namespaces import Namespaces
from controller.engine.files.priorities import Priorities
from controller.engine.files.value import codec_of
from controller.engine.model.queue import (
    UNNAMED,
    Entitlement,
    Hold,
    Queue,
    RespectBudgets,
)
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    describe,
    write_amount,
)

API_VERSION: Final = "scheduling.carina.dev/v1alpha1"
KIND: Final = "Queue"
UNLIMITED: Final = "unlimited"
"""The quota of a queue to which all is guaranteed that it asks for."""
_NAMED: Final[Mapping[str, Resource]] = {"cpu": Cpu(), "memory": Memory(), "pods": Pods()}

_INT_OR_STRING: Final[Mapping[str, object]] = {"x-kubernetes-int-or-string": True, "minimum": 0}
_AMOUNT: Final = r"[0-9]{1,15}|[0-9]{1,6}(\.[0-9]{1,3})?(m|k|[MGT]|[KMGT]i)?"

_Amount: TypeAlias = Annotated[
    object,
    Checked(
        lambda value: value,
        lambda value: value,
        {**_INT_OR_STRING, "pattern": f"^({_AMOUNT})$", "maxLength": 16},
    ),
]
"""A quantity that is read when its resource is known."""
_AmountOrAll: TypeAlias = Annotated[
    object,
    Checked(
        lambda value: value,
        lambda value: value,
        {
            **_INT_OR_STRING,
            "pattern": f"^({UNLIMITED}|{_AMOUNT})$",
            "maxLength": 16,
        },
    ),
]
_Weight: TypeAlias = Annotated[
    Fraction,
    Checked(
        codec_of(Fraction).read,
        codec_of(Fraction).write,
        {
            **_INT_OR_STRING,
            "pattern": r"^[0-9]{1,9}(/[1-9][0-9]{0,8}|\.[0-9]{1,9})?$",
            "maxLength": 19,
        },
    ),
]
_RespectBudgets: TypeAlias = Annotated[
    RespectBudgets,
    Checked(
        codec_of(RespectBudgets).read,
        codec_of(RespectBudgets).write,
        {"type": "string", "enum": [value.value for value in RespectBudgets]},
    ),
]
_Hold: TypeAlias = Annotated[
    Hold,
    Checked(
        codec_of(Hold).read,
        codec_of(Hold).write,
        {"type": "string", "enum": [value.value for value in Hold]},
    ),
]
QueueName: TypeAlias = Annotated[str, text("the name of a queue", DNS_SUBDOMAIN, LONGEST_LABEL)]
PlacementSetting: TypeAlias = Annotated[
    Policy,
    Checked(
        codec_of(Policy).read,
        codec_of(Policy).write,
        {
            "type": "string",
            "pattern": "^(upstream|(balanced|binpack|spread|fragmentation)"
            "(/(balanced|binpack|spread|fragmentation|upstream))?)$",
        },
    ),
]


_CAPACITY_NAME: Final = text(
    "the qualified name of a capacity",
    rf"{DNS_SUBDOMAIN}/[A-Za-z_][A-Za-z0-9_]{{0,31}}",
    LONGEST_NAME + 33,
)


def _is_whole(field_name: str) -> Rule:
    amount = f"self.{field_name}"
    return Rule(
        f"!has({amount}) || has(self.capacity) || has(self.name) && self.name != 'pods' || "
        f"type({amount}) == int || has(self.gpus) && "
        f"string({amount}).matches('^[0-9]+([.][0-9]+)?$') || "
        f"string({amount}).matches('^([0-9]+|{UNLIMITED})$')",
        f"{field_name} of gpus, devices and pods is a number; write it without a unit",
    )


def _occurs_once(member: str) -> Rule:
    return Rule(
        f"!has(self.resources) || self.resources.all(a, !has(a.{member}) || "
        f"self.resources.exists_one(b, has(b.{member}) && b.{member} == a.{member}))",
        f"resources: a {member} occurs twice; remove one of them",
    )


@dataclass(frozen=True, slots=True)
class QueueGpus:
    """Which physical GPUs count."""

    model: Annotated[str, text("the product name of GPUs", r"[ -~]*[!-~]", 64)] | None = None
    """The product name of those that count, the attribute `productName`, such as
    `NVIDIA H100 80GB HBM3`. If it is absent, all count."""


@dataclass(frozen=True, slots=True)
class QueueResource:
    """What a queue may have of one resource.

    The resource is GPUs however they are used, the devices of a DeviceClass, a capacity of devices,
    or cpu, memory or pods.
    """

    RULES: ClassVar = (
        Rule(
            "[has(self.gpus), has(self.deviceClass), has(self.capacity), has(self.name)]"
            ".filter(x, x).size() == 1",
            "write one of gpus, deviceClass, capacity and name",
        ),
        _is_whole("quota"),
        _is_whole("limit"),
        Rule(
            "!has(self.quota) || !has(self.limit) || self.quota == 'unlimited' || "
            "quantity(string(self.quota)).compareTo(quantity(string(self.limit))) <= 0",
            "quota must not be more than limit; lower quota, or raise or remove limit",
        ),
    )

    gpus: QueueGpus | None = None
    """Physical GPUs, however they are used: `{}` for all. A whole GPU counts 1; a partition or a
    share the largest of its parts of the memory and the compute of its GPU, at least the
    least share of its node, a tenth by default."""
    device_class: (
        Annotated[str, text("the name of a DeviceClass", DNS_SUBDOMAIN, LONGEST_NAME)] | None
    ) = None
    """The name of a DeviceClass, whose devices are counted, such as `gpu.carina.dev`: all in use
    that its selectors match, whatever class was asked for."""
    capacity: Annotated[str, _CAPACITY_NAME] | None = None
    """The qualified name of a capacity of devices, such as `gpu.carina.dev/memory`. What the
    devices in use have of it is added up."""
    name: Annotated[str, choice(*_NAMED)] | None = None
    """`cpu`, `memory` or `pods`: what pods request, or their number."""
    quota: _AmountOrAll = None
    """How much is guaranteed: a number of devices or pods, a number of GPUs such as `0.5`, a
    quantity such as `64Gi`, or `unlimited` for all that the queue asks for. Groups that
    are not preemptible never have more together. The default is 0."""
    limit: _Amount = None
    """How much the groups of the queue, and of all queues below it, have together at most. There is
    no limit if it is absent."""
    weight: _Weight = UNNAMED.weight
    """The queue's part of what is left over after all quotas, in relation to its siblings: a
    number, or a text such as `1/3` or `0.5`."""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Where a queue is in the tree of queues, what it may have, and who may use it."""

    RULES: ClassVar = tuple(map(_occurs_once, ("gpus", "deviceClass", "capacity", "name")))

    parent: QueueName | None = None
    """The queue above this one. Queues without a parent divide the cluster. Only queues without
    queues below them take pods."""
    priority: Annotated[int, integer(-(2**31), 2**31 - 1)] = 100
    """Of what is left over after all quotas, queues of a higher priority get their part first."""
    resources: Annotated[tuple[QueueResource, ...], items(lambda: codec_of(QueueResource), 32)] = ()
    """What the queue may have, by resource. Of a resource that is not named it has weight 1 and no
    limit. Its quota is then the sum of the quotas of the queues below it for devices, and unlimited
    for cpu, memory and pods."""
    preempt_min_runtime: Seconds | None = None
    """For how long a group that runs is safe from groups of its own queue, such as `10m`. If it is
    absent, that of the parent holds."""
    reclaim_min_runtime: Seconds | None = None
    """For how long a group that runs is safe from other queues, such as `1h30m`. If it is absent,
    that of the parent holds."""
    eviction_grace: Seconds | None = None
    """The longest grace period of the queue's pods when they are evicted, such as `30s`. Pods with
    a shorter one keep it. If it is absent, that of the parent holds. The default is 10 minutes."""
    respect_budgets: _RespectBudgets | None = None
    """For which pods PodDisruptionBudgets are respected when other queues reclaim what they have:
    `always`, or `withinQuota`. Budgets then guard what the queue has beyond its quota for as long
    as `evictionGrace`, after which pods are deleted. If it is absent, that of the parent holds. The
    default is `withinQuota`."""
    placement: PlacementSetting | None = None
    """Which nodes and devices come first: `balanced`, `binpack`, `spread`, `fragmentation`,
    `upstream`, or an order of nodes and one of devices, such as `spread/binpack`. If it is absent,
    that of the parent holds."""
    hold: _Hold = Hold.NONE
    """Whether the queue is stopped, with all queues below it. `Hold`: nothing starts, and what runs
    goes on. `HoldAndDrain`: nothing starts, and its groups are evicted, as far as
    PodDisruptionBudgets allow."""
    reserves: bool = False
    """Whether the first group that waits for room has a reservation, which no other group may
    delay. This needs groups that say how long they run."""
    namespaces: Namespaces | None = None
    """The namespaces whose pods and claims may name this queue; `{selector: {}}` is all. If it is
    absent, no namespace may, or, above other queues, those that they allow. What a queue above this
    one does not allow, this one does not allow either."""
    priorities: Priorities | None = None
    """Which priorities pods of this queue, and of all queues below it, may have. Other pods are
    refused; those that run already count as pods of the nearest priority that is allowed."""

    def queue(self, name: str, created: float = 0) -> Queue:
        """The queue with this spec.

        Raises:
            BadValueError: a resource is unknown or occurs twice, or an amount is not valid.
        """
        entitlements: dict[Resource, Entitlement] = {}
        for index, written in enumerate(self.resources):
            try:
                _add(entitlements, written)
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
            eviction_grace=self.eviction_grace,
            respect_budgets=self.respect_budgets,
            placement=self.placement,
            hold=self.hold,
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
            eviction_grace=queue.eviction_grace,
            respect_budgets=queue.respect_budgets,
            placement=queue.placement,
            hold=queue.hold,
            reserves=queue.reserves,
        )


@dataclass(frozen=True, slots=True)
class _Document:
    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: JsonObject = field(default_factory=dict)
    """What the controller said last; not read."""


def read_queue(body: object) -> Queue:
    """Reads a Queue object as the engine has it; who may use it and its status are not looked at.

    Raises:
        BadValueError: the object is not a valid Queue.
    """
    return read_document(body)[0]


def read_document(body: object) -> tuple[Queue, ObjectMeta, QueueSpec]:
    """Reads a Queue object; its status is not looked at.

    Raises:
        BadValueError: the object is not a valid Queue.
    """
    document: _Document = codec_of(_Document).read(body)
    metadata = document.metadata
    if not metadata.name:
        raise BadValueError("lacks metadata.name")
    created = metadata.creation_timestamp
    try:
        queue = document.spec.queue(metadata.name, created.timestamp() if created else 0)
    except BadValueError as error:
        error.steps.append(".spec")
        raise
    deleted = metadata.deletion_timestamp
    queue = replace(
        queue,
        deleted=None if deleted is None else deleted.timestamp(),
    )
    return queue, metadata, document.spec


def write_queue(queue: Queue) -> dict[str, Any]:
    """Writes a Queue object. Its times are in whole seconds, as in the API."""
    metadata = ObjectMeta(
        name=queue.name,
        creation_timestamp=datetime.fromtimestamp(queue.created, UTC) if queue.created else None,
        deletion_timestamp=(
            None if queue.deleted is None else datetime.fromtimestamp(queue.deleted, UTC)
        ),
    )
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
        case QueueResource(
            gpus=QueueGpus(model=model), device_class=None, capacity=None, name=None
        ):
            return Gpus(model or "")
        case QueueResource(gpus=None, device_class=str() as name, capacity=None, name=None) if name:
            return DevicesOf(name)
        case QueueResource(gpus=None, device_class=None, capacity=str() as name, name=None) if name:
            return CapacityOf(name)
        case QueueResource(gpus=None, device_class=None, capacity=None, name=str() as name) if (
            name in _NAMED
        ):
            return _NAMED[name]
        case _:
            raise BadValueError(
                "names no resource; write one of gpus: {}, deviceClass: NAME, "
                "capacity: DOMAIN/NAME, and "
                "name: cpu, memory or pods"
            )


def _written(resource: Resource, entitlement: Entitlement) -> QueueResource:
    quota, limit = entitlement.quota, entitlement.limit
    amounts: dict[str, Any] = {
        "quota": UNLIMITED if quota is None else write_amount(resource, quota) if quota else None,
        "limit": None if limit is None else write_amount(resource, limit),
        "weight": entitlement.weight,
    }
    return QueueResource(**naming(resource), **amounts)


def naming(resource: Resource) -> dict[str, Any]:
    """Returns the one field that names a resource, in a Queue's spec and in its status."""
    match resource:
        case Gpus(model=model):
            return {"gpus": QueueGpus(model or None)}
        case DevicesOf(device_class=name):
            return {"device_class": name}
        case CapacityOf(name=name):
            return {"capacity": name}
        case Cpu() | Memory() | Pods():
            return {"name": describe(resource)}
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
