"""Which groups hold a queue: those that have something which is charged to it, or still leaves."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from controller.engine.state.occupancy import Occupancy

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


def queues_in_use(occupancy: Occupancy) -> AbstractSet[str]:
    """The queues to which something is charged, and those above them."""
    return _with_those_above(
        occupancy,
        {name for pod in _holding(occupancy) if (name := _queue_of(occupancy, pod)) is not None},
    )


def use_of_stopped_queues(occupancy: Occupancy) -> Mapping[str, QueueUse]:
    """By queue in which nothing starts: which groups hold it, if there are any."""
    stopped = {name for name, queue in occupancy.tree.queues.items() if not queue.admits}
    if not stopped:
        return {}
    found: dict[str, dict[str, None]] = {}
    for key in _holding(occupancy):
        group = occupancy.pods[key].group
        for name in occupancy.tree.paths.get(_queue_of(occupancy, key) or "", ()):
            if name in stopped and group is not None:
                found.setdefault(name, {})[group] = None
    return {name: QueueUse(tuple(sorted(groups))) for name, groups in found.items()}


def _holding(occupancy: Occupancy) -> Iterable[str]:
    """The pods that hold a place, or still leave it."""
    yield from occupancy.holds
    for leaving in occupancy.leaving.values():
        yield from leaving


def _queue_of(occupancy: Occupancy, pod: str) -> str | None:
    """The queue that the group of a pod names, whether it is in the tree or not."""
    group = occupancy.groups.get(occupancy.pods[pod].group or "")
    return None if group is None else group.queue


def _with_those_above(occupancy: Occupancy, names: Iterable[str]) -> AbstractSet[str]:
    return {above for name in names for above in occupancy.tree.paths.get(name, (name,))}
