"""Which devices cannot be held at the same time.

The last line of defence: the allocator keeps devices apart by counters and capacities, and the
kubelet may still ask for a device before it has given back another one that overlaps it.
"""

from dataclasses import dataclass
from typing import assert_never

from kubelet_plugin.devices.name import DeviceName, UnknownName, WholeGpuName, gpu_name


@dataclass(frozen=True, slots=True)
class Hold:
    """A device that a claim holds, all of it or a share."""

    device: DeviceName
    share_id: str | None = None
    """The API's id of a share of a device that allows multiple allocations (KEP-5075)."""


def conflict(one: Hold, other: Hold) -> bool:
    """Whether the two cannot be held together.

    Shares of one device can: the allocator tells them apart by capacity. A device of an unknown
    kind conflicts with everything on its GPU but shares of the same device.
    """
    if one.share_id is not None and other.share_id is not None and one.device == other.device:
        return False
    return gpu_name(one.device) == gpu_name(other.device) and _overlap(one.device)


def _overlap(device: DeviceName) -> bool:
    """Whether the device takes something from every other device on its GPU."""
    match device:
        case WholeGpuName() | UnknownName():
            return True
    assert_never(device)
