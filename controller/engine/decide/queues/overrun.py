"""Groups that run for longer than they said, and namespaces that are not believed for it.

What a group has declared first counts for as long as it runs: a later change gives it no more time.
While it overruns, and for as long again as it overran once it has ended, run times of its namespace
are not believed.
"""

from typing import Final

from controller.engine.model.group import Group
from controller.engine.model.plan import Action, Eviction
from controller.engine.state.state import State

_LONGEST: Final = 86400.0
"""Seconds that a namespace is not believed for after a group has ended: a day."""


def declared_end(state: State, group: Group) -> float | None:
    """When a group that runs, or starts now, ends by what it has said; None if it says nothing."""
    ends = [] if (first := state.memory.declared_ends.get(group.key)) is None else [first]
    if group.run_time is not None:
        ends.append((state.now if group.started is None else group.started) + group.run_time)
    return min(ends, default=None)


def overruns(state: State, group: Group) -> bool:
    """Whether a group that runs should have ended, by what it has said."""
    end = declared_end(state, group)
    return end is not None and end < state.now


def is_due(state: State, group: Group) -> bool:
    """Whether a group holds a reservation, or would if others ended when they said."""
    memory = state.memory
    return group.key in memory.reservations or group.key in memory.delayed


def overran(state: State, eviction: Eviction) -> bool:
    """Whether a pod goes for a reservation since its group runs for longer than it said."""
    late = state.occupancy.groups.get(state.occupancy.pods[eviction.pod].group or "")
    first = state.occupancy.groups.get(eviction.group)
    if late is None or first is None or eviction.action not in (Action.PREEMPT, Action.RECLAIM):
        return False
    return is_due(state, first) and overruns(state, late)


def namespace_of(group: str) -> str:
    """The namespace of a group."""
    return group.partition("/")[0]


class Overruns:
    """Which namespaces are not believed in a cycle."""

    def __init__(self, state: State) -> None:
        """`state` is that before anything is decided; without reservations, nothing is kept."""
        now, memory = state.now, state.memory
        self._now = now
        self.ends: dict[str, float] = {}
        """By group that runs: when it ends, or should have ended."""
        self.barred: dict[str, float] = {}
        """By namespace: until when it is not believed, beside the time of groups that overrun."""
        self._overrun: frozenset[str] = frozenset()
        if not any(queue.reserves for queue in state.occupancy.tree.queues.values()):
            return
        for key in sorted({state.occupancy.pods[pod].group or "" for pod in state.occupancy.holds}):
            group = state.occupancy.groups.get(key)
            end = None if group is None else declared_end(state, group)
            if end is not None:
                self.ends[key] = end
        self.barred |= {name: until for name, until in memory.barred.items() if until > now}
        for key, end in memory.declared_ends.items():
            if key not in self.ends and end < now:
                name, until = namespace_of(key), now + min(now - end, _LONGEST)
                self.barred[name] = max(until, self.barred.get(name, until))
        self._overrun = frozenset(namespace_of(key) for key, end in self.ends.items() if end < now)

    def is_believed(self, group: Group) -> bool:
        """Whether the run time of a group is believed."""
        name = namespace_of(group.key)
        return name not in self._overrun and name not in self.barred

    @property
    def are_any(self) -> bool:
        """Whether a group overruns."""
        return bool(self._overrun)

    @property
    def wake(self) -> float | None:
        """When the next group overruns, or the next namespace is believed again."""
        times = [*self.ends.values(), *self.barred.values()]
        # An end that is now has to be past, so that the next cycle finds it overrun.
        return min((at + 1 for at in times if at >= self._now), default=None)
