"""How long the driver lets a process compute on a GPU before the next one: named intervals.

The driver has no names for lengths of time; `nvidia-smi compute-policy` numbers the intervals.
"""

from typing import Final, Literal, TypeAlias

TimeSliceInterval: TypeAlias = Literal["Default", "Short", "Medium", "Long"]

_NUMBERS: Final[dict[TimeSliceInterval, int]] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}


def interval_number(interval: TimeSliceInterval) -> int:
    """Returns the number of an interval for `nvidia-smi compute-policy --set-timeslice`."""
    return _NUMBERS[interval]
