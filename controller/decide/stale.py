"""Evicts what is left of groups that have had fewer pods than they need for too long."""

from collections.abc import Iterable
from math import isinf

from controller.decide.chunk import active_pods, is_satisfied
from controller.decide.trial import Trial
from controller.model.plan import Action
from controller.model.pod import Ended, Placed
from controller.state.state import State


def evict_stale(trial: Trial, broken: Iterable[str]) -> tuple[list[str], float | None]:
    """Evicts the stale ones of groups that had too few pods; returns all that still have too few.

    Also when the next of them becomes stale, in Unix time.
    """
    state = trial.state
    found: list[str] = []
    wake: float | None = None
    for key in broken:
        group = state.groups[key]
        if is_satisfied(state, group) or _has_succeeded(state, key):
            continue
        found.append(key)
        grace = group.staleness_grace
        grace = state.settings.staleness_grace if grace is None else grace
        since = state.now if group.stale_since is None else group.stale_since
        if since + grace > state.now:
            if not isinf(grace):
                wake = since + grace if wake is None else min(wake, since + grace)
            continue
        for pod in active_pods(state, key):
            if isinstance(pod.state, Placed) and state.disrupt(pod):
                trial.evict(pod, Action.STALE, key)
    return found, wake


def _has_succeeded(state: State, group: str) -> bool:
    pods = (state.pods[pod] for of in state.members[group].by_set.values() for pod in of)
    return any(isinstance(pod.state, Ended) and pod.state.succeeded for pod in pods)
