"""Evicts the groups of queues that are emptied, by order of an administrator."""

from functools import partial
from typing import Final

from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.victims.whole_group import evict_whole, turn_to_leave
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting
from controller.engine.state.occupancy import Occupancy

_AT_ONCE: Final = 16
"""No further group goes while this many pods of emptied queues are leaving."""


def evict_drained(trial: Trial, isolation: Isolation) -> None:
    """Evicts groups of emptied queues, a few at a time and as far as disruption budgets allow.

    Those that are preemptible go first, then those of the lowest priority, then the youngest. A
    group goes as a whole, or down to its minimum. The next ones go when the pods of the first are
    gone.
    """
    state = trial.state
    emptied = {
        name for name in state.occupancy.tree.queues if state.occupancy.tree.is_emptied(name)
    }
    if not emptied:
        return
    groups = [group for group in state.occupancy.groups.values() if group.queue in emptied]
    leaving = sum(_leaving(state.occupancy, group.key) for group in groups)
    for group in sorted(groups, key=turn_to_leave):
        if leaving >= _AT_ONCE:
            break
        leaving += isolation.run(group, partial(evict_whole, trial, group, Action.DRAIN)) or 0


def _leaving(occupancy: Occupancy, group: str) -> int:
    """How many pods of a group are leaving. Those that do not end hold nobody up."""
    members = occupancy.members.get(group)
    if members is None:
        return 0
    states = (occupancy.pods[pod].state for pods in members.by_set.values() for pod in pods)
    return sum(isinstance(each, Evicting) and not each.stuck for each in states)
