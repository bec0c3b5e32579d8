"""Which groups hold a queue: those that have something which is charged to it, or still leaves."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from controller.engine.state.state import State

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class QueueUse:
    """The groups that hold a queue."""

    groups: tuple[str, ...]
    """Their keys, in order."""

    def __str__(self) -> str:
        named = ", ".join(self.groups[:_NAMED])
        more = len(self.groups) - _NAMED
        return f"{named} and {more} more" if more > 0 else named


def queues_in_use(state: State) -> AbstractSet[str]:
    """The queues to which something is charged, and those above them."""
    return _with_those_above(
        state, {name for pod in _holding(state) if (name := _queue_of(state, pod)) is not None}
    )


def use_of_closed_queues(state: State) -> Mapping[str, QueueUse]:
    """By closed queue: which groups hold it. Queues that nothing holds are left out."""
    closed = {name for name, queue in state.occupancy.tree.queues.items() if queue.is_closed}
    if not closed:
        return {}
    found: dict[str, dict[str, None]] = {}
    for key in _holding(state):
        group = state.occupancy.pods[key].group
        for name in state.occupancy.tree.paths.get(_queue_of(state, key) or "", ()):
            if name in closed and group is not None:
                found.setdefault(name, {})[group] = None
    return {name: QueueUse(tuple(sorted(groups))) for name, groups in found.items()}


def _holding(state: State) -> Iterable[str]:
    """The pods that hold a place, or still leave it."""
    yield from state.occupancy.holds
    for leaving in state.occupancy.leaving.values():
        yield from leaving


def _queue_of(state: State, pod: str) -> str | None:
    """The queue that the group of a pod names, whether it is in the tree or not."""
    group = state.occupancy.groups.get(state.occupancy.pods[pod].group or "")
    return None if group is None else group.queue


def _with_those_above(state: State, names: Iterable[str]) -> AbstractSet[str]:
    return {above for name in names for above in state.occupancy.tree.paths.get(name, (name,))}
