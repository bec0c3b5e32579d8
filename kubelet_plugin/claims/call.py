"""A call of the kubelet, as far as carrying it out depends on who waits for the answer."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """Until when a call makes sense."""

    deadline: float
    """A reading of the monotonic clock, in seconds."""
    abandoned: Callable[[], bool]
    """Whether the caller has gone, so that nothing may be done for it any more."""
