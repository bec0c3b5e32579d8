"""What has been found out about objects, remembered while there are such objects."""

from collections.abc import Callable
from typing import Final, TypeVar

_GONE: Final = 64
"""As many may be remembered of which none is there any more."""
_LEAST_SETS: Final = 16
_MOST_SETS: Final = 1_024
_NODES: Final = 2**20
"""Nodes in all sets of one purpose, beyond the least number of sets; they take about 50 MiB."""

K = TypeVar("K")
V = TypeVar("V")


class Remembered(dict[K, V]):
    """Results by object; all are forgotten when they are more than twice as many as objects.

    Tenants choose how large an object is, and how many come and go: a number alone is no bound.
    """

    def __init__(self, living: Callable[[], int]) -> None:
        """`living` says how many objects there are."""
        super().__init__()
        self._living = living

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= _GONE + 2 * self._living():
            self.clear()
        super().__setitem__(key, value)


def most_sets(nodes: int) -> int:
    """How many sets of the nodes of a cluster are remembered for one purpose.

    Tenants choose how many unlike conditions they write, each of which selects a set of nodes.
    """
    return max(_LEAST_SETS, min(_MOST_SETS, _NODES // max(nodes, 1)))
