"""Queue as an object: its status, and who may use it. Its spec is in `engine.files.queue`."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from carina_dra.resource.errors import BadValueError
from controller.api.condition import StatusCondition
from controller.api.status import status_body
from controller.engine.files.checked import LONGEST_LABEL, Checked, Rule, integer, items
from controller.engine.files.namespaces import Namespaces
from controller.engine.files.priorities import Priorities
from controller.engine.files.queue import QueueGpus, QueueSpec, read_document
from controller.engine.files.value import codec_of
from controller.engine.model.queue import Queue as EngineQueue
from controller.engine.model.resource import describe

_Amount: TypeAlias = Annotated[
    object, Checked(lambda value: value, lambda value: value, {"x-kubernetes-int-or-string": True})
]
MOST_RESOURCES: Final = 64
"""In a status; the queues of a tree may name more together."""
_Count: TypeAlias = Annotated[int, integer(0, 2**31 - 1)]


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """What a queue has, may count on and asks for, of one resource."""

    gpus: QueueGpus | None = None
    """The GPUs that are counted."""
    device_class: str | None = None
    """The DeviceClass whose devices are counted."""
    capacity: str | None = None
    """The qualified name of a capacity of devices."""
    name: str | None = None
    """`cpu`, `memory` or `pods`."""
    allocated: _Amount = 0
    """What the groups of the queue, and of all queues below it, have."""
    fair_share: _Amount = None
    """What the queue may count on, now that others ask for what they ask for. It is absent if the
    queue may have all that it asks for."""
    pending: _Amount = 0
    """What its groups ask for beside what they have."""

    def body(self) -> dict[str, Any]:
        """Returns the resource as an object of the API."""
        return status_body(self)


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """How many groups a queue has."""

    pending: _Count = 0
    """Groups whose minimum has no place."""
    running: _Count = 0
    """Groups whose minimum has nodes and devices."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What the controller says of a queue, with all queues below it."""

    resources: Annotated[
        tuple[ResourceStatus, ...], items(lambda: codec_of(ResourceStatus), MOST_RESOURCES)
    ] = ()
    """What the queue has, may count on and asks for, by resource."""
    groups: GroupCounts = field(default_factory=GroupCounts)
    """How many groups the queue has."""
    conditions: Annotated[
        tuple[StatusCondition, ...], items(lambda: codec_of(StatusCondition), 8, key="type")
    ] = ()
    """Whether the queue takes work (`Active`), whether all that it names exists
    (`ReferencesResolved`), whether there is what its quotas promise (`QuotasCovered`), and whether
    it can give back what other queues reclaim (`GivesBack`)."""

    def body(self) -> dict[str, Any]:
        """Returns the status as an object of the API; desired conditions have no times."""
        return status_body(self)


@dataclass(frozen=True, slots=True)
class Queue:
    """A share of the cluster, which pods and claims use that name it with a label.

    Pods name their queue with the label `scheduling.carina.dev/queue`. Queues are a tree, in which
    only queues without queues below them take pods.
    """

    RULES: ClassVar = (
        Rule(
            f"self.metadata.name.size() <= {LONGEST_LABEL}",
            f"metadata.name must have at most {LONGEST_LABEL} characters: pods have it in a label",
        ),
        Rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            "spec.parent must be another queue",
        ),
    )

    spec: QueueSpec = field(default_factory=QueueSpec)
    """Where the queue is in the tree of queues, what it may have, and who may use it."""
    status: QueueStatus = field(default_factory=QueueStatus)
    """What the controller says of the queue."""


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A Queue object: the engine's queue, and what only the controller looks at."""

    queue: EngineQueue
    uid: str
    generation: int
    namespaces: Namespaces | None = None
    """Who may use it; None for nobody, or for whom the queues below it allow."""
    priorities: Priorities | None = None
    """Which priorities its pods may have; None for all."""


def read_declared_queue(body: object) -> DeclaredQueue:
    """Reads a Queue object; its status is not looked at.

    Raises:
        BadValueError: the object is not a valid Queue.
    """
    queue, metadata, spec = read_document(body)
    if len(queue.name) > LONGEST_LABEL:
        raise BadValueError(
            f"metadata.name has {len(queue.name)} characters; write at most {LONGEST_LABEL}, since "
            "pods have it in a label"
        )
    if queue.parent == queue.name:
        raise BadValueError("spec.parent is the queue itself; write another queue, or remove it")
    for resource, entitlement in queue.entitlements.items():
        quota, limit = entitlement.quota, entitlement.limit
        if quota is not None and limit is not None and quota > limit:
            raise BadValueError(
                f"spec.resources: the quota of {describe(resource)} is more than its limit; lower "
                "quota, or raise or remove limit"
            )
    return DeclaredQueue(queue, metadata.uid, metadata.generation, spec.namespaces, spec.priorities)
