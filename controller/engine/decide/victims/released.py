"""Evicts groups from nodes whose devices are released, by order of an administrator."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import active_pods
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.victims.whole_group import evict_whole, turn_to_leave
from controller.engine.model.group import Group, is_satisfied
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.state.state import State

AT_ONCE: Final = 16
"""Nobody else goes while this many pods are leaving their released node."""


def evict_released(trial: Trial, isolation: Isolation) -> None:
    """Evicts groups that have devices of released nodes, a few at a time, as budgets allow.

    Of a group that does not need them, the pods on these nodes go; any other goes as a whole. The
    order is that of queues that are emptied.
    """
    state = trial.state
    if not state.released:
        return
    pods_of: dict[str, list[Pod]] = {}
    leaving: Counter[str] = Counter()
    for node in sorted(state.released):
        gone = map(partial(_is_leaving, state), state.occupancy.leaving.get(node, ()))
        leaving[node] = sum(gone)
        for key in state.occupancy.on_node.get(node, ()):
            pod = state.occupancy.pods[key]
            if pod.group in state.occupancy.groups and has_devices_of_driver(state, pod):
                pods_of.setdefault(pod.group or "", []).append(pod)
    groups = [state.occupancy.groups[key] for key in pods_of]
    for group in sorted(groups, key=turn_to_leave):
        pods = pods_of[group.key]
        nodes = [state.occupancy.holds[pod.key].node for pod in pods]
        if all(leaving[node] >= AT_ONCE for node in nodes):
            continue
        if isolation.run(group, partial(_evict, trial, group, pods)):
            leaving.update(nodes)


def has_devices_of_driver(state: State, pod: Pod) -> bool:
    """Whether a pod has devices of the driver, those of monitors too."""
    claims = (state.occupancy.claims.get(claim) for claim in pod.claims)
    allocations = (claim.status.allocation for claim in claims if claim is not None)
    return any(
        result.driver == state.settings.driver
        for allocation in allocations
        if allocation is not None
        for result in allocation.devices.results
    )


def _is_leaving(state: State, pod: str) -> bool:
    """Whether a pod is being evicted. One that does not end holds nobody up."""
    known = state.occupancy.pods[pod].state
    return isinstance(known, Evicting) and not known.stuck


def _evict(trial: Trial, group: Group, pods: Sequence[Pod]) -> int:
    """Evicts the pods of a group from released nodes; how many."""
    occupancy, here = trial.state.occupancy, {pod.key for pod in pods}
    placed = [pod for pod in active_pods(occupancy, group.key) if isinstance(pod.state, Placed)]
    others = Counter(pod.pod_set for pod in placed if pod.key not in here)
    if not is_satisfied(group.root, others):
        return evict_whole(trial, group, Action.RELEASE)
    gone = [pod for pod in placed if pod.key in here and occupancy.disrupt(pod)]
    for pod in gone:
        trial.evict(pod, Action.RELEASE, group.key)
    return len(gone)
