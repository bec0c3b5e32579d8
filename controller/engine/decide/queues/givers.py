"""The order in which queues give back what they have beyond their share."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from controller.engine.decide.queues.shares import Shares
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.queue_tree import ROOT

_NOTHING_DUE: Final = 1_000
"""Weight of what a queue has without a right to any."""


class _GiverRank(NamedTuple):
    """The order in which sibling queues give, the least first."""

    is_within: bool
    """It has no more than its fair share of anything."""
    priority: int
    after_share: float
    """The dominant share that it has, negated."""
    age: float
    """When it was created, negated."""
    name: str


def givers(occupancy: Occupancy, shares: Shares) -> Mapping[str, int]:
    """The leaves of the tree, numbered in the order in which they give: who has most first.

    At each level, queues with more than their fair share of something come first, then those of a
    low priority, then those with a large dominant share, then the youngest.
    """
    found: dict[str, int] = {}

    def number(queue: str) -> None:
        children = occupancy.tree.children.get(queue)
        if children is None:
            found[queue] = len(found)
            return
        for child in sorted(children, key=lambda name: _rank_of_giver(occupancy, shares, name)):
            number(child)

    number(ROOT)
    return found


def gives_before(occupancy: Occupancy, shares: Shares, queue: str, other: str) -> bool:
    """Whether a leaf has to give before another one, as things are in a trial.

    Of two that have equally too much, neither does; their age does not matter.
    """
    paths = occupancy.tree.paths
    if queue not in paths or other not in paths:
        return queue not in paths and other in paths
    ours, theirs = paths[queue][::-1], paths[other][::-1]
    sides = ((a, b) for a, b in zip(ours, theirs, strict=False) if a != b)
    side, other_side = next(sides, (queue, queue))
    first, then = (_rank_of_giver(occupancy, shares, name) for name in (side, other_side))
    return first[:3] < then[:3]


def _rank_of_giver(occupancy: Occupancy, shares: Shares, name: str) -> _GiverRank:
    queue, allocated = occupancy.tree.queues[name], occupancy.accounts.allocated[name]
    is_over = any(has > fair for has, fair in zip(allocated, shares.fair(name), strict=True))
    dominant = dominant_share(allocated, shares.allocatable(name))
    return _GiverRank(not is_over, queue.priority, -dominant, -queue.created, name)


def dominant_share(amounts: Iterable[int], allocatable: Iterable[int]) -> float:
    """The largest part of what a queue may count on that it has, over all resources."""
    return max(
        (
            amount / most if most else amount * _NOTHING_DUE
            for amount, most in zip(amounts, allocatable, strict=True)
        ),
        default=0.0,
    )
