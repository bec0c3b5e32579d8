"""The status of a PodGroup: where its pods are, and why it does not start."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from controller.api.condition import StatusCondition, desired_condition
from controller.api.pod_group import GroupPhase, PodCounts, PodGroupStatus
from controller.engine.model.failed_device import FailedDevice
from controller.engine.model.group import Group, is_satisfied
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod
from controller.engine.model.reason import Reason
from controller.names import GROUP_LABEL
from controller.report.waiting import for_tenant, waiting_text, waiting_word

ADMITTED: Final = "Admitted"
"""The condition that holds while the minimum of the group has nodes and devices."""
ALL_PODS_PLACED: Final = "AllPodsPlaced"
"""The condition of an admitted group that holds unless pods of it wait for a place."""
DEGRADED: Final = "Degraded"
"""The condition of a group that runs with a device that its driver has tainted."""
_NODES_NAMED: Final = 8
_DEVICES_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Waits:
    """It does not get all that it asks for."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Nominated:
    """It starts as soon as pods that are being evicted have left."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NothingWanted:
    """Nothing was decided for it: it has what it asks for, or asks for nothing."""


Outlook: TypeAlias = Waits | Nominated | NothingWanted
"""What the last decision means for a group."""


def outlooks(plan: Plan, group_of: Callable[[str], str | None]) -> Mapping[str, Outlook]:
    """What a plan means for each group that waits by it. `group_of` gives the group of a pod."""
    nodes: dict[str, set[str]] = {}
    for nomination in plan.nominations:
        group = group_of(nomination.pod)
        if group is not None:
            nodes.setdefault(group, set()).add(nomination.node)
    found: dict[str, Outlook] = {key: Waits(reasons) for key, reasons in plan.waiting.items()}
    return found | {key: Nominated(tuple(sorted(of))) for key, of in nodes.items()}


def starting(plan: Plan, group_of: Callable[[str], str | None]) -> frozenset[str]:
    """The groups of which pods start by a plan."""
    return frozenset(group for one in plan.starts if (group := group_of(one.pod)) is not None)


def count_pods(pods: Iterable[Pod]) -> PodCounts:
    """How many pods are in each state."""
    counted = Counter(map(_state, pods))
    return PodCounts(
        pending=counted["pending"],
        gated=counted["gated"],
        placed=counted["placed"],
        evicting=counted["evicting"],
        succeeded=counted["succeeded"],
        failed=counted["failed"],
    )


def group_status(
    group: Group,
    pods: Sequence[Pod],
    outlook: Outlook,
    failed: Sequence[FailedDevice] = (),
    *,
    generation: int = 0,
) -> PodGroupStatus:
    """The status of a group. `generation` is that of the PodGroup which was decided on."""
    counts = count_pods(pods)
    phase, reason, message = _phase(group, pods, counts, outlook)
    is_running = phase is GroupPhase.RUNNING
    conditions = [_condition(ADMITTED, reason, message, generation, holds=is_running)]
    if is_running:
        conditions.append(_all_pods_placed(group, counts, outlook, generation))
    if failed:
        text = degraded_text(failed)
        conditions.append(_condition(DEGRADED, "DeviceTainted", text, generation, holds=True))
    return PodGroupStatus(phase, group.queue, counts, tuple(conditions))


def degraded_text(failed: Sequence[FailedDevice]) -> str:
    """Which devices of a group have failed: the first of them, and how many more."""
    more = len(failed) - _DEVICES_NAMED
    others = f"; and {more} more" if more > 0 else ""
    return "; ".join(map(str, failed[:_DEVICES_NAMED])) + others


def refused_status(
    text: str, pods: Iterable[Pod], *, queue: str = "", generation: int = 0
) -> PodGroupStatus:
    """The status of a PodGroup whose pods form no group; `text` says why, and the remedy."""
    condition = _not_admitted("Refused", text, generation)
    return PodGroupStatus(GroupPhase.REFUSED, queue, count_pods(pods), (condition,))


def empty_status(key: str, *, generation: int = 0) -> PodGroupStatus:
    """The status of a PodGroup without pods, by its key."""
    reason, message = _no_pods(key)
    condition = _not_admitted(reason, message, generation)
    return PodGroupStatus(GroupPhase.PENDING, "", PodCounts(), (condition,))


def _phase(
    group: Group, pods: Sequence[Pod], counts: PodCounts, outlook: Outlook
) -> tuple[GroupPhase, str, str]:
    """The phase, with the reason and the message of whether the group is admitted."""
    succeeded = _by_pod_set(group, (pod for pod in pods if pod.state == Ended(succeeded=True)))
    if pods and not _left(counts):
        phase = GroupPhase.SUCCEEDED if is_satisfied(group.root, succeeded) else GroupPhase.FAILED
        ended = f"{counts.succeeded} succeeded, {counts.failed} failed"
        return phase, phase.value, f"all pods have ended: {ended}"
    placed = _by_pod_set(group, (pod for pod in pods if isinstance(pod.state, Placed)))
    if placed and is_satisfied(group.root, placed + succeeded):
        return GroupPhase.RUNNING, "Placed", f"{counts.placed} of {_left(counts)} pods have a place"
    return GroupPhase.PENDING, *_why_waiting(group, counts, outlook)


def _by_pod_set(group: Group, pods: Iterable[Pod]) -> Counter[str]:
    """How many of the pods are in each pod set; all of them in the only one, if there is one."""
    (first, *others) = group.pod_sets
    return Counter(pod.pod_set if others else first.name for pod in pods)


def _why_waiting(group: Group, counts: PodCounts, outlook: Outlook) -> tuple[str, str]:
    """Why pods of the group have no place, as the reason and the message of a condition."""
    match outlook:
        case Waits(reasons=reasons):
            namespace = group.key.partition("/")[0]
            return waiting_word(reasons), waiting_text(for_tenant(reasons, namespace))
        case Nominated(nodes=nodes):
            return "Nominated", f"starts when evicted pods have left {_named(nodes)}"
        case NothingWanted() if counts.pending:
            return waiting_word(()), waiting_text(())
        case NothingWanted() if counts.gated:
            return "PodsNotReady", (
                f"{counts.gated} of {_left(counts)} pods are held back by other scheduling gates, "
                "or by claims that do not exist yet"
            )
        case NothingWanted() if counts != PodCounts():
            has = f"{counts.placed} pods have a place"
            return "TooFewPods", f"{has}, fewer than the group needs; add pods"
        case NothingWanted():
            return _no_pods(group.key)
    assert_never(outlook)


def _named(nodes: Sequence[str]) -> str:
    """The first of the nodes; a gang of 512 would name as many."""
    more = len(nodes) - _NODES_NAMED
    others = f" and {more} more" if more > 0 else ""
    return f"nodes {', '.join(nodes[:_NODES_NAMED])}{others}"


def _not_admitted(reason: str, message: str, generation: int) -> StatusCondition:
    return _condition(ADMITTED, reason, message, generation, holds=False)


def _condition(
    kind: str, reason: str, message: str, generation: int, *, holds: bool
) -> StatusCondition:
    return desired_condition(
        kind, holds=holds, reason=reason, message=message, observed_generation=generation
    )


def _no_pods(key: str) -> tuple[str, str]:
    return "NoPods", f"create pods with the label {GROUP_LABEL}: {key.rpartition('/')[2]}"


def _all_pods_placed(
    group: Group, counts: PodCounts, outlook: Outlook, generation: int
) -> StatusCondition:
    holds = not (counts.pending or counts.gated)
    reason, message = "Placed", "no pod waits for a place"
    if not holds:
        reason, message = _why_waiting(group, counts, outlook)
    return _condition(ALL_PODS_PLACED, reason, message, generation, holds=holds)


def _left(counts: PodCounts) -> int:
    """How many pods have not ended."""
    return counts.pending + counts.gated + counts.placed + counts.evicting


def _state(pod: Pod) -> str:
    match pod.state:
        case Pending():
            return "pending"
        case Gated():
            return "gated"
        case Placed():
            return "placed"
        case Evicting():
            return "evicting"
        case Ended(succeeded=True):
            return "succeeded"
        case Ended():
            return "failed"
    assert_never(pod.state)
