"""The maximum matching of a bipartite graph: how many of its edges have no vertex in common.

`crossing`, 6 devices on 6 switches and rails, takes 28 times as long if values are only counted:
more than half of the nodes are searched.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from carina_dra.price import VALUE
from carina_dra.work import Work

L = TypeVar("L")
R = TypeVar("R")


def has_matching(neighbours: Mapping[L, Sequence[R]], size: int, work: Work | None = None) -> bool:
    """Whether a number of edges have no vertex in common, by augmenting paths (Kuhn's algorithm).

    `neighbours` has the edges: the vertices on the right, by those on the left. Recursion is as
    deep as the matching is large.

    Raises:
        OutOfStepsError: the budget of the work is spent.
    """
    work = Work() if work is None else work
    partner: dict[R, L] = {}
    for left in neighbours:
        if len(partner) >= size:
            break
        _augment(left, neighbours, partner, set(), work)
    return len(partner) >= size


def _augment(
    left: L,
    neighbours: Mapping[L, Sequence[R]],
    partner: dict[R, L],
    tried: set[R],
    work: Work,
) -> bool:
    """Finds a partner for a vertex, perhaps that of another which finds another one."""
    work.spend(VALUE * len(neighbours[left]))
    for right in neighbours[left]:
        if right not in tried:
            tried.add(right)
            if right not in partner or _augment(partner[right], neighbours, partner, tried, work):
                partner[right] = left
                return True
    return False
