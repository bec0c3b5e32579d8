"""The maximum matching of a bipartite graph: how many of its edges have no vertex in common."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

L = TypeVar("L")
R = TypeVar("R")


def has_matching(neighbours: Mapping[L, Sequence[R]], size: int) -> bool:
    """Whether so many edges have no vertex in common, by augmenting paths (Kuhn's algorithm).

    `neighbours` has the edges: the vertices on the right, by those on the left. Recursion is as
    deep as the matching is large.
    """
    partner: dict[R, L] = {}
    for left in neighbours:
        if len(partner) >= size:
            break
        _augment(left, neighbours, partner, set())
    return len(partner) >= size


def _augment(
    left: L, neighbours: Mapping[L, Sequence[R]], partner: dict[R, L], tried: set[R]
) -> bool:
    """Finds a partner for a vertex, perhaps that of another which finds another one."""
    for right in neighbours[left]:
        if right not in tried:
            tried.add(right)
            if right not in partner or _augment(partner[right], neighbours, partner, tried):
                partner[right] = left
                return True
    return False
