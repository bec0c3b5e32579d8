"""How many devices can be had if some pairs of them cannot: the largest independent set."""

from collections.abc import Mapping
from typing import Final

from carina_dra.price import CONFLICT
from carina_dra.work import Work

_STEPS: Final = 256
"""The number of devices that are tried in or out of a set; after that, all may be possible."""


def largest(devices: int, conflicts: Mapping[int, int], enough: int, work: Work) -> int:
    """The size of the largest set of devices that has no conflict in it, if below `enough`.

    `devices` has one a bit; `conflicts` has those that each of them cannot be had with. The result
    is `enough` if there is a set of this size, or if none is found in time.

    Raises:
        OutOfStepsError: the budget of the work is spent.
    """
    best, steps = 0, _STEPS
    open_sets = [(devices, 0)]
    while open_sets:
        left, size = open_sets.pop()
        if size + left.bit_count() <= best:
            continue
        best = max(best, size)
        if best >= enough or not steps:
            return enough
        if left:
            steps -= 1
            work.spend(CONFLICT)
            device = left & -left
            others = left ^ device
            beside = others & ~conflicts.get(device, 0)
            if beside != others:
                open_sets.append((others, size))
            open_sets.append((beside, size + 1))
    return best
