"""How long the kubelet waits for the response to a call."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of one call."""

    deadline: float
    """Time on the monotonic clock by which the plugin must respond, in seconds."""
    abandoned: Callable[[], bool]
    """Returns whether the kubelet has cancelled the call; then nothing more may be done for it."""
