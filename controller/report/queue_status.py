"""The status of a Queue: what it has, its fair share, and what it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Final, assert_never

from carina_dra.kube.body import Body
from controller.api.queue import GroupCounts
from controller.codec.amount import write_amount
from controller.decide.chunk import Fullness, fullness
from controller.model.plan import Plan
from controller.model.reason import CutOffQueue
from controller.model.resource import CapacityOf, Cpu, DevicesOf, Memory, Pods, Resource, describe
from controller.report.condition import DesiredCondition
from controller.state.state import State

ACTIVE: Final = "Active"
"""The condition that holds if the queue, or queues below it, take work."""
MOST_RESOURCES: Final = 64
"""The API takes no more in a status; the queues of a tree may name more together."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One resource of a queue, with all queues below it. Amounts are in the resource's units."""

    resource: Resource
    allocated: int
    fair_share: int
    pending: int
    """What groups ask for that they do not have."""

    def body(self) -> Body:
        """The resource as in a Queue's spec, with amounts as quantities."""
        return {
            **_named(self.resource),
            "allocated": write_amount(self.resource, self.allocated),
            "fairShare": write_amount(self.resource, self.fair_share),
            "pending": write_amount(self.resource, self.pending),
        }


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The status of a Queue."""

    resources: tuple[ResourceStatus, ...]
    """At most `MOST_RESOURCES`."""
    groups: GroupCounts
    conditions: tuple[DesiredCondition, ...]

    def body(self) -> Body:
        """The status as an object of the API; the conditions are without times."""
        return {
            "resources": [resource.body() for resource in self.resources],
            "groups": asdict(self.groups),
            "conditions": [condition.body() for condition in self.conditions],
        }


def count_groups(state: State) -> Mapping[str, GroupCounts]:
    """By queue: how many groups it has. Queues without groups are left out."""
    pending, running = Counter[str](), Counter[str]()
    for key, members in state.members.items():
        group = state.groups.get(key)
        if group is None or group.queue not in state.tree.paths:
            continue
        has_place = any(state.is_active(pod) for pods in members.by_set.values() for pod in pods)
        if has_place and fullness(state, group) is not Fullness.BELOW_MINIMUM:
            running.update(state.tree.paths[group.queue])
        elif key in state.waiting:
            pending.update(state.tree.paths[group.queue])
    return {queue: GroupCounts(pending[queue], running[queue]) for queue in pending | running}


def queue_status(
    state: State, plan: Plan, queue: str, groups: GroupCounts, *, generation: int = 0
) -> QueueStatus:
    """The status of a queue before a plan is carried out.

    groups: those of the queue, by `count_groups`.
    generation: that of the Queue object that was decided on.
    """
    return QueueStatus(
        resources=tuple(islice(_resources(state, plan, queue), MOST_RESOURCES)),
        groups=groups,
        conditions=(_active(state, queue, generation),),
    )


def _resources(state: State, plan: Plan, name: str) -> Iterator[ResourceStatus]:
    """The resources that the queue names, has or waits for."""
    queue = state.tree.queues.get(name)
    if queue is None:
        return
    allocated, requested = state.accounts.allocated[name], state.accounts.requested[name]
    shares = plan.fair_shares.get(name, {})
    for at, resource in enumerate(state.tree.resources):
        # More may be allocated than is asked for: pods that end have no request any more.
        pending = max(0, requested[at] - allocated[at])
        if resource in queue.entitlements or allocated[at] or pending:
            fair_share = shares.get(describe(resource), 0)
            yield ResourceStatus(resource, allocated[at], fair_share, pending)


def _active(state: State, queue: str, generation: int) -> DesiredCondition:
    tree = state.tree
    is_cut_off = queue in tree.cut_off
    children = tree.children.get(queue, ())
    if is_cut_off:
        reason = "CutOff"
        message = f"{CutOffQueue(queue, tree.cut_off[queue])}; create it, or correct spec.parent"
    elif children:
        reason, message = "HasChildren", f"queues below it that take work: {len(children)}"
    else:
        reason, message = "TakesWork", "groups that name the queue are decided on"
    return DesiredCondition(ACTIVE, not is_cut_off, reason, message, generation)


def _named(resource: Resource) -> Body:
    """The member of a Queue's spec that names a resource."""
    match resource:
        case DevicesOf(device_class=name):
            return {"deviceClass": name}
        case CapacityOf(name=name):
            return {"capacity": name}
        case Cpu() | Memory() | Pods():
            return {"name": describe(resource)}
    assert_never(resource)
