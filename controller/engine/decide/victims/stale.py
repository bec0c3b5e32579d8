"""Evicts what is left of groups that have had fewer pods than they need for too long.

Only if another group can use what they have: nobody gains from devices that are idle.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Final

from controller.engine.decide.gangs.attempt import Got
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import active_pods, is_satisfied
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.starts.allocation import Allocating
from controller.engine.decide.starts.reservation import Reservations
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Ended, Placed
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.state import State

_TRIED: Final = 256
"""How many groups that wait are tried at most; the others get what becomes free later."""


def evict_stale(
    trial: Trial, broken: Iterable[str], waiting: Sequence[Group], isolation: Isolation
) -> tuple[list[str], float | None]:
    """Evicts the stale ones of groups that had too few pods; returns all that still have too few.

    Also when the next of them becomes stale, in Unix time. `waiting` are the groups that have been
    refused in this cycle; what an earlier one has refused can use no more than it could then.
    """
    found: list[str] = []
    stale: list[Group] = []
    wake: float | None = None
    for key in broken:
        group = trial.state.occupancy.groups[key]
        until = isolation.run(group, partial(_stale_at, trial.state, group))
        if until is not None:
            found.append(key)
            if until <= trial.state.now:
                stale.append(group)
            elif until < inf:
                wake = until if wake is None else min(wake, until)
    by_account: dict[tuple[str, str], list[Group]] = {}
    for group in chain(*isolation.time.turn(stale if waiting else ())):
        by_account.setdefault((group.queue, group.key.partition("/")[0]), []).append(group)
    for of_account in by_account.values():
        _evict_useful(trial, of_account, waiting, isolation)
    return found, wake


def _stale_at(state: State, group: Group) -> float | None:
    """Since when a group is stale, or from when on it will be; None if it has enough pods."""
    if is_satisfied(state.occupancy, group) or _has_succeeded(state.occupancy, group.key):
        return None
    since = state.now if group.stale_since is None else group.stale_since
    return since + _grace(state, group)


def _evict_useful(
    trial: Trial, stale: Sequence[Group], waiting: Sequence[Group], isolation: Isolation
) -> None:
    """Evicts those of the stale groups of one account whose devices others can use.

    If all of them together are of no use, this is known at once; if they are, the halves are looked
    at. The search is for the stale groups, so they are charged for it.
    """
    first = stale[0]
    if isolation.time.has_spent(first):
        return
    is_useful = isolation.run_for_others(
        first, partial(_evict_if_useful, trial, stale, waiting, isolation)
    )
    if is_useful is not False and len(stale) > 1:  # None: there are too many to be looked at once
        middle = len(stale) // 2
        _evict_useful(trial, stale[:middle], waiting, isolation)
        _evict_useful(trial, stale[middle:], waiting, isolation)


def _evict_if_useful(
    trial: Trial, stale: Sequence[Group], waiting: Sequence[Group], isolation: Isolation
) -> bool:
    """Whether one that waits can use what stale groups have; a single one of them is evicted."""
    state = trial.state
    mark = state.occupancy.mark()
    for group in stale:
        _evict_all(trial, group)
    keys = {group.key for group in stale}
    others = waiting if len(stale) > 1 else [group for group in waiting if group.key not in keys]
    is_useful = _can_use(trial, others, isolation)
    if not is_useful or len(stale) > 1:
        state.occupancy.rollback(mark)
    return is_useful


def _grace(state: State, group: Group) -> float:
    """Seconds for which a group may have too few pods."""
    if group.staleness_grace is not None:
        return group.staleness_grace
    return max(state.settings.staleness_grace, group.replacement_delay)


def _evict_all(trial: Trial, group: Group) -> None:
    for pod in active_pods(trial.state.occupancy, group.key):
        if isinstance(pod.state, Placed) and trial.state.occupancy.disrupt(pod):
            trial.evict(pod, Action.STALE, group.key)


def _can_use(trial: Trial, waiting: Sequence[Group], isolation: Isolation) -> bool:
    """Whether one of the first groups that wait has a place now."""
    allocation, state = Allocating(trial, Reservations(trial, isolation)), trial.state
    for group in waiting[:_TRIED]:
        mark = state.occupancy.mark()
        outcome = isolation.run(group, partial(allocation.attempt, group))
        state.occupancy.rollback(mark)
        if isinstance(outcome, Got):
            return True
    return False


def _has_succeeded(occupancy: Occupancy, group: str) -> bool:
    pods = (occupancy.pods[pod] for of in occupancy.members[group].by_set.values() for pod in of)
    return any(isinstance(pod.state, Ended) and pod.state.succeeded for pod in pods)
