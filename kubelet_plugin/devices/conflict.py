"""Which devices cannot be held at the same time.

The scheduler keeps conflicting devices apart with counters and capacities. This check is still
needed, because the kubelet may ask to prepare a device before it has unprepared one that overlaps.
"""

from dataclasses import dataclass
from typing import assert_never

from kubelet_plugin.devices.name import (
    DeviceName,
    MonitorName,
    ShareName,
    UnknownName,
    WholeGpuName,
    gpu_name,
)


@dataclass(frozen=True, slots=True)
class Hold:
    """A device that a claim holds, either the whole device or a share."""

    device: DeviceName
    share_id: str | None = None
    """ID of the share of a device that allows multiple allocations (KEP-5075)."""


def conflict(one: Hold, other: Hold) -> bool:
    """Returns whether the two cannot be held at the same time.

    Shares of one device can, because the scheduler accounts for their capacity. A device of an
    unknown kind conflicts with every other device on its GPU.
    """
    if one.share_id is not None and other.share_id is not None and one.device == other.device:
        return False
    same_gpu = gpu_name(one.device) == gpu_name(other.device)
    return same_gpu and _overlaps(one.device) and _overlaps(other.device)


def _overlaps(device: DeviceName) -> bool:
    """Returns whether the device overlaps every other device on its GPU that uses the GPU."""
    match device:
        case MonitorName():
            return False
        case WholeGpuName() | ShareName() | UnknownName():
            return True
    assert_never(device)
