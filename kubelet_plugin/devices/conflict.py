"""Which devices cannot be held at the same time.

The scheduler keeps conflicting devices apart with counters and capacities. This check is still
needed, because the kubelet may ask to prepare a device before it has unprepared one that overlaps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from carina_dra.config.time_slice import TimeSliceInterval
from kubelet_plugin.devices.name import (
    DeviceName,
    MonitorName,
    PartitionName,
    ShareName,
    UnknownName,
    WholeGpuName,
    gpu_name,
)


@dataclass(frozen=True, slots=True)
class DeviceHold:
    """A device that a claim holds, either the whole device or a share."""

    device: DeviceName
    share_id: str | None = None
    """ID of the share of a device that allows multiple allocations (KEP-5075)."""
    time_slice: TimeSliceInterval | None = None
    """The interval that the claim demands of the GPU."""


def first_conflict(
    wanted: Iterable[DeviceHold], held: Iterable[DeviceHold]
) -> tuple[DeviceHold, DeviceHold] | None:
    """Returns one of `wanted` and one of `held` that cannot be held at the same time, or None."""
    pairs = ((hold, other) for other in held for hold in wanted)
    return next((pair for pair in pairs if conflict(*pair)), None)


def conflict(hold: DeviceHold, other: DeviceHold) -> bool:
    """Returns whether the two cannot be held at the same time.

    Shares of one device can, because the scheduler accounts for their capacity; a whole GPU and a
    partition have none, whatever an allocation says. Different partitions of a GPU can as far as
    their names tell; NVML refuses to make one that overlaps. A device of an unknown kind conflicts
    with every other device on its GPU.
    """
    if gpu_name(hold.device) != gpu_name(other.device):
        return False
    if hold.device == other.device:
        return not _can_be_held_together(hold, other)
    match hold.device, other.device:
        case (MonitorName(), _) | (_, MonitorName()) | (PartitionName(), PartitionName()):
            return False
        case (WholeGpuName() | PartitionName() | ShareName() | UnknownName(), _):
            return True
    assert_never(hold.device)


def _can_be_held_together(hold: DeviceHold, other: DeviceHold) -> bool:
    """Returns whether two claims can hold this same device."""
    match hold.device:
        case MonitorName():
            return True
        case ShareName() | UnknownName():
            return hold.share_id is not None and other.share_id is not None
        case WholeGpuName() | PartitionName():
            return False
    assert_never(hold.device)
