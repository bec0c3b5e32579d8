"""How long the driver lets a process compute on a GPU before the next one: named intervals.

The driver has no names for lengths of time; `nvidia-smi compute-policy` numbers the intervals.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

TimeSliceInterval: TypeAlias = Literal["Default", "Short", "Medium", "Long"]

_NUMBERS: Final[dict[TimeSliceInterval, int]] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}


def interval_number(interval: TimeSliceInterval) -> int:
    """Returns the number of an interval for `nvidia-smi compute-policy --set-timeslice`."""
    return _NUMBERS[interval]


def shortest(intervals: Iterable[TimeSliceInterval | None]) -> TimeSliceInterval | None:
    """Returns the shortest of the intervals, without None and Default; None if there is no other.

    A GPU has one interval. The shortest serves those who wait for their turn, and costs the others
    no more than switches.
    """
    chosen = (interval for interval in intervals if interval is not None and interval != "Default")
    return min(chosen, key=interval_number, default=None)
