"""The status of a Queue: what it has, its fair share, and what it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from controller.api.condition import StatusCondition, desired_condition
from controller.api.queue import MOST_RESOURCES, GroupCounts, QueueStatus, ResourceStatus
from controller.engine.decide.gangs.placement_unit import Fullness, fullness
from controller.engine.files.queue import naming
from controller.engine.model.plan import Plan
from controller.engine.model.queue import Hold, Queue
from controller.engine.model.reason import CutOffQueue
from controller.engine.model.resource import Resource, describe, write_amount
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.state import State
from controller.report.queue_checks import UNKNOWN_ACCESS, QueueAccess, checks
from controller.report.queue_giving import NO_HOLDUP, Holdup, gives_back
from controller.report.queue_use import QueueUse

ACTIVE: Final = "Active"
"""The condition that holds if the queue, or queues below it, take work."""


@dataclass(frozen=True, slots=True)
class ResourceAmounts:
    """One resource of a queue, with all queues below it. Amounts are in the resource's units."""

    resource: Resource
    allocated: int
    fair_share: int
    pending: int
    """What groups ask for that they do not have."""

    def status(self) -> ResourceStatus:
        """Returns the resource as in a Queue's spec, with amounts as quantities."""
        return ResourceStatus(
            **naming(self.resource),
            allocated=write_amount(self.resource, self.allocated),
            fair_share=write_amount(self.resource, self.fair_share),
            pending=write_amount(self.resource, self.pending),
        )


def count_groups(state: State) -> Mapping[str, GroupCounts]:
    """By queue: how many groups it has. Queues without groups are left out."""
    pending, running = Counter[str](), Counter[str]()
    for key, members in state.occupancy.members.items():
        group = state.occupancy.groups.get(key)
        if group is None or group.queue not in state.occupancy.tree.paths:
            continue
        has_place = any(
            state.occupancy.is_active(pod) for pods in members.by_set.values() for pod in pods
        )
        if has_place and fullness(state.occupancy, group) is not Fullness.BELOW_MINIMUM:
            running.update(state.occupancy.tree.paths[group.queue])
        elif key in state.waiting:
            pending.update(state.occupancy.tree.paths[group.queue])
    return {queue: GroupCounts(pending[queue], running[queue]) for queue in pending | running}


def queue_status(
    occupancy: Occupancy,
    plan: Plan,
    queue: str,
    groups: GroupCounts,
    use: QueueUse | None = None,
    *,
    access: QueueAccess = UNKNOWN_ACCESS,
    holdup: Holdup = NO_HOLDUP,
    generation: int = 0,
) -> QueueStatus:
    """The status of a queue before a plan is carried out.

    groups: those of the queue, by `count_groups`.
    use: what holds the queue, if nothing starts in it; by `use_of_stopped_queues`.
    access: what is wrong with who may use it, as far as that is known.
    holdup: what keeps it from giving back, by `holdups`.
    generation: that of the Queue object that was decided on.
    """
    conditions = [_active(occupancy, queue, use, access, generation)]
    if queue in occupancy.tree.queues:
        conditions += checks(occupancy, queue, access, generation)
        conditions.append(gives_back(holdup, generation))
    return QueueStatus(
        resources=tuple(amounts.status() for amounts in queue_amounts(occupancy, plan, queue)),
        groups=groups,
        conditions=tuple(conditions),
    )


def queue_amounts(occupancy: Occupancy, plan: Plan, name: str) -> tuple[ResourceAmounts, ...]:
    """Returns the resources that a queue names, has or waits for, at most `MOST_RESOURCES`."""
    return tuple(islice(_amounts(occupancy, plan, name), MOST_RESOURCES))


def _amounts(occupancy: Occupancy, plan: Plan, name: str) -> Iterator[ResourceAmounts]:
    queue = occupancy.tree.queues.get(name)
    if queue is None:
        return
    allocated, requested = (
        occupancy.accounts.allocated[name],
        occupancy.accounts.requested[name],
    )
    shares = plan.fair_shares.get(name, {})
    for at, resource in enumerate(occupancy.tree.resources):
        # More may be allocated than is asked for: pods that end have no request any more.
        pending = max(0, requested[at] - allocated[at])
        if resource in queue.entitlements or allocated[at] or pending:
            fair_share = shares.get(describe(resource), 0)
            yield ResourceAmounts(resource, allocated[at], fair_share, pending)


def _active(
    occupancy: Occupancy, queue: str, use: QueueUse | None, access: QueueAccess, generation: int
) -> StatusCondition:
    tree = occupancy.tree
    if queue in tree.cut_off:
        why = CutOffQueue(queue, *tree.cut_off[queue])
        return _inactive("CutOff", f"{why}; {why.remedy}", generation)
    children = tree.children.get(queue, ())
    stopping = tree.stopped_by(queue)
    if stopping is not None and stopping.name == queue:
        return _stopped(stopping, use, generation)
    if stopping is not None:
        state = "on hold" if stopping.deleted is None else "being deleted"
        message = f"queue {stopping.name}, which is above it, is {state}"
        return _inactive("StoppedAbove", message, generation)
    if access.admits_nobody:
        message = "no namespace may use the queue: write spec.namespaces, with selector: {} for all"
        return _inactive("NoNamespaces", message, generation)
    if children:
        reason, message = "HasChildren", f"queues below it that take work: {len(children)}"
    else:
        reason, message = "TakesWork", "groups that name the queue are decided on"
    return desired_condition(
        ACTIVE, holds=True, reason=reason, message=message, observed_generation=generation
    )


def _inactive(reason: str, message: str, generation: int) -> StatusCondition:
    return desired_condition(
        ACTIVE, holds=False, reason=reason, message=message, observed_generation=generation
    )


def _stopped(queue: Queue, use: QueueUse | None, generation: int) -> StatusCondition:
    """Says what holds a queue in which nothing starts."""
    count = 0 if use is None else len(use.groups)
    groups = f"{count} {'group' if count == 1 else 'groups'}"
    if queue.deleted is not None:
        reason, message = "Deleted", "the queue was deleted and admits nothing"
        if use is None:
            message += "; nothing holds it"
        else:
            message += f"; {groups} hold{'s' if count == 1 else ''} it: {use}"
            message += "; it ends with the last of them"
            if queue.hold is not Hold.DRAIN:
                message += (
                    ": delete their pods, or have them evicted with carina queue stop "
                    f"{queue.name} --drain"
                )
    elif queue.hold is Hold.DRAIN:
        left = "nothing is left in it" if use is None else f"{groups} left in it: {use}"
        reason, message = "Drained", f"the queue is on hold and its groups are evicted; {left}"
    else:
        runs = "nothing runs in it" if use is None else f"{groups} in it: {use}"
        reason, message = "Held", f"the queue is on hold, and nothing starts in it; {runs}"
    return _inactive(reason, message, generation)
