"""The health of a device, as users are told it: pure values.

It follows from the problems of the device's GPU. Of several problems the worst decides, so that a
harmless one that comes later does not hide it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.share import Share
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import (
    GpuProblems,
    GpuUnreadable,
    in_order,
    of_flapping,
    preventing,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    known_gpus,
)

_NEVER_READ: Final = "a GPU of the node has not answered since the plugin started"
_TOGETHER: Final = (
    "The processes of a claim that demands mps compute in one CUDA MPS server: a fault of one ends "
    "all of them, and none of another claim"
)


@dataclass(frozen=True, slots=True)
class Healthy:
    """The device works; the message says what is not as it should be, if anything."""

    reason: str = "Healthy"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The device does not work."""

    reason: str
    """One CamelCase word for the cause, that of the Event on the Node."""
    message: str


@dataclass(frozen=True, slots=True)
class HealthUnknown:
    """Nobody can say how the device is, because the GPU or its driver does not answer."""

    reason: str
    message: str


DeviceHealth: TypeAlias = Healthy | Unhealthy | HealthUnknown


@dataclass(frozen=True, slots=True)
class GpusNow:
    """The GPUs of one observation, and their devices by name."""

    inventory: Inventory | None = None
    """None before the GPUs were first read."""
    gpus: Mapping[str, ObservedGpu] = field(init=False, repr=False, compare=False)
    """By `gpu-<minor>`."""
    devices: Mapping[str, GpuDevice] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gpus = {f"gpu-{seen.gpu.minor}": seen for seen in known_gpus(self.inventory)}
        object.__setattr__(self, "gpus", gpus)
        by_name = {device.name: device for device in devices(self.inventory)}
        object.__setattr__(self, "devices", by_name)

    def health(self, device: str) -> DeviceHealth:
        """Returns the health of the device with this name."""
        match self.inventory:
            case None:
                return HealthUnknown("GPUsNotRead", "the node's GPUs have not been read yet")
            case DriverMissing(reason):
                return HealthUnknown("GPUDriverMissing", reason)
            case DriverUnusable(failure):
                return HealthUnknown(
                    "GPUDriverFailed", f"the NVIDIA driver does not work: {failure}"
                )
            case DriverReplaced():
                return HealthUnknown("GPUDriverReplaced", "another NVIDIA driver was installed")
            case DriverReady(unknown=unknown):
                observed = self.gpus.get(gpu_name(parse_name(device)))
                if observed is not None:
                    return self._health_of(device, observed)
                if unknown:
                    return HealthUnknown("GPUUnreadable", _NEVER_READ)
                return Unhealthy("GPUVanished", "its GPU is no longer present")

    def _health_of(self, device: str, observed: ObservedGpu) -> DeviceHealth:
        gpu = observed.gpu
        offered = self.devices.get(device)
        problems = _of_whole(observed) if offered is None else offered.state.problems
        health = _health(problems, f"GPU {gpu.minor} ({gpu.uuid})")
        if not isinstance(health, Healthy) and observed.state.flapping:
            flapping = of_flapping(observed.state.flapping).rstrip(". ")
            health = replace(health, message=f"{health.message}. {flapping}")
        if isinstance(health, Unhealthy) and isinstance(offered, Share) and _is_by_mps(offered):
            return replace(health, message=f"{health.message}. {_TOGETHER}")
        return health


def _of_whole(observed: ObservedGpu) -> GpuProblems:
    return frozenset(problem for problem in observed.state.problems if problem.site is None)


def _is_by_mps(share: Share) -> bool:
    return "mps" in share.levels.memory | share.levels.cores


def _health(problems: GpuProblems, gpu: str) -> DeviceHealth:
    """Returns the health of a device with these problems of its GPU.

    One that drains is unhealthy: its work goes on, but nothing new gets the device.
    """
    if not problems:
        return Healthy()
    message = "; ".join(f"{gpu} {problem}" for problem in in_order(problems))
    worst = preventing(problems)
    if not worst:
        return Healthy(in_order(problems)[0].event_reason, message)
    known = worst - {problem for problem in worst if problem.state == GpuUnreadable.state}
    if not known:
        return HealthUnknown(GpuUnreadable.event_reason, message)
    first = in_order(known)[0]
    return Unhealthy(first.event_reason, f"{message}; {first.remedy}")
