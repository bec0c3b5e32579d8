"""Device names, each of which identifies its device completely.

The checkpoint and the API contain only names. What follows from the name is therefore known at any
time: after the GPU has vanished, and right after the plugin has started.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

_OF_GPU = re.compile(r"gpu-(0|[1-9]\d*)(?P<rest>-.*)?", re.ASCII)
_SHARE = "-share"
_MONITOR = "-monitor"
_PARTITION = re.compile(
    r"-mig-(?P<profile>[a-z0-9]+(?:-[a-z0-9]+)*)-(?P<id>0|[1-9]\d*)-(?P<start>0|[1-9]\d*)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class WholeGpuName:
    """`gpu-<minor>`."""

    minor: int

    def __str__(self) -> str:
        return f"gpu-{self.minor}"


@dataclass(frozen=True, slots=True)
class ShareName:
    """`gpu-<minor>-share`."""

    minor: int

    def __str__(self) -> str:
        return f"gpu-{self.minor}{_SHARE}"


@dataclass(frozen=True, slots=True)
class MonitorName:
    """`gpu-<minor>-monitor`."""

    minor: int

    def __str__(self) -> str:
        return f"gpu-{self.minor}{_MONITOR}"


@dataclass(frozen=True, slots=True)
class PartitionName:
    """`gpu-<minor>-mig-<profile>-<profile ID>-<start>`, as NVIDIA's DRA driver names partitions."""

    minor: int
    profile: str
    """The profile's name without characters that the API does not allow: `1g10gb-me`."""
    profile_id: int
    start: int
    """The first memory slice."""

    @classmethod
    def of(cls, minor: int, profile: str, profile_id: int, start: int) -> "PartitionName":
        """Returns the name for a profile in the driver's notation, such as `1g.10gb+me`."""
        allowed = re.sub(r"[^a-z0-9]+", "-", profile.lower().replace(".", "")).strip("-")
        return cls(minor, allowed, profile_id, start)

    def __str__(self) -> str:
        return f"gpu-{self.minor}-mig-{self.profile}-{self.profile_id}-{self.start}"


@dataclass(frozen=True, slots=True)
class UnknownName:
    """The name of a device whose kind this version does not know."""

    text: str
    minor: int | None
    """The GPU's minor number, if the name begins with `gpu-<minor>`."""

    def __str__(self) -> str:
        return self.text


DeviceName: TypeAlias = WholeGpuName | PartitionName | ShareName | MonitorName | UnknownName


def parse_name(text: str) -> DeviceName:
    """Parses the name of a device."""
    found = _OF_GPU.fullmatch(text)
    if found is None:
        return UnknownName(text, None)
    minor = int(found[1])
    match found["rest"]:
        case None:
            return WholeGpuName(minor)
        case str(rest) if rest == _SHARE:
            return ShareName(minor)
        case str(rest) if rest == _MONITOR:
            return MonitorName(minor)
        case str(rest) if partition := _PARTITION.fullmatch(rest):
            numbers = int(partition["id"]), int(partition["start"])
            return PartitionName(minor, partition["profile"], *numbers)
        case _:
            return UnknownName(text, minor)


def gpu_name(name: DeviceName) -> str:
    """Returns `gpu-<minor>` of the device's GPU, which also names its lock and counter set.

    For a name without a minor number, returns the name itself.
    """
    match name:
        case WholeGpuName(minor) | PartitionName(minor) | ShareName(minor) | MonitorName(minor):
            return f"gpu-{minor}"
        case UnknownName(text, minor):
            return text if minor is None else f"gpu-{minor}"
