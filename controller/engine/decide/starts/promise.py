"""Keeps what earlier cycles have promised: places of pods that wait for others to leave."""

from collections.abc import Iterable
from functools import partial

from controller.engine.decide.gangs.gang import Taken, wait_together
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import is_satisfied
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.capacity import balance, excess
from controller.engine.model.group import Group
from controller.engine.model.plan import Nomination


def keep_promises(trial: Trial, isolation: Isolation) -> None:
    """Gives pods the places that they have been promised, where that still holds.

    A group keeps all of its promises, or none: also if its queue would have more than it may have
    with them, because those who were to go have not gone, or its limit is another one now; or if
    they are not enough for it, because only a part of them was written before an interruption.
    """
    state = trial.state
    by_group: dict[str, list[Nomination]] = {}
    for nomination in state.memory.nominations:
        pod = state.occupancy.pods.get(nomination.pod)
        if pod is not None and pod.group in state.occupancy.groups:
            by_group.setdefault(pod.group, []).append(nomination)
    for key in sorted(by_group):
        group = state.occupancy.groups[key]
        is_held = group.refusal is not None and group.refusal.holds
        if state.occupancy.tree.takes_work(group.queue) and not is_held:
            isolation.run_within_limit(group, partial(keep_all, trial, group, by_group[key]))


def keep_all(trial: Trial, group: Group, nominations: Iterable[Nomination]) -> None:
    """Gives the pods of a group the places that they have been promised, or none of them."""
    state = trial.state
    mark, before = state.occupancy.mark(), balance(state.occupancy, group.queue)
    taken: list[Taken] = []
    for nomination in nominations:
        kept = _keep(trial, nomination)
        if kept is None:
            state.occupancy.rollback(mark)
            return
        taken.append(kept)
    if excess(state.occupancy, before) is not None or not is_satisfied(state.occupancy, group):
        state.occupancy.rollback(mark)
    else:
        wait_together(trial, group, taken)


def _keep(trial: Trial, nomination: Nomination) -> Taken | None:
    """Gives a pod its promised place, if it waits for it and the place is there."""
    state, places = trial.state, trial.places
    pod, node = state.occupancy.pods[nomination.pod], nomination.node
    if not state.occupancy.is_pending(pod.key) or node not in places.candidates(pod, None):
        return None
    if state.occupancy.rooms[node].lacks(pod.needs) is not None:
        return None
    for claim, allocation in nomination.allocations:
        is_known = claim in pod.claims and claim in state.occupancy.claims
        is_open = is_known and state.occupancy.allocation(claim) is None
        if not is_open or not state.occupancy.cluster.fits(allocation):
            return None
        if state.tainted.keep_away(allocation):
            return None  # a device has failed meanwhile
    given = {claim for claim, _ in nomination.allocations}
    needed = state.occupancy.claims_on(pod, node)
    if any(state.occupancy.allocation(claim) is None for claim in needed if claim not in given):
        return None  # the pod that was to bring them is gone
    promised = Place(node, nomination.allocations, waits=False)
    waits = not places.is_free_now(pod, promised)
    place = Place(node, nomination.allocations, waits)
    trial.take(pod, place)
    return Taken(pod, place)
