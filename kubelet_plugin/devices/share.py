"""The kind `share`: a part of a GPU's memory and cores, beside other shares of the GPU (KEP-5075).

A device allows any number of shares. The scheduler gives each the amounts that its request asks
for, as long as they add up to no more than the GPU has. What keeps a container within its amounts
is published with the device, so that a class or a claim can demand it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from carina_dra.config.enforcement import CoreLevel, Levels, MemoryLevel
from carina_dra.least_share import least_amount
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    BoolAttribute,
    CapacityRange,
    CapacityRequestPolicy,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    StringAttribute,
    ValidRange,
)
from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.attributes import gpu_attributes
from kubelet_plugin.devices.counters import counter_set_name, whole_counters
from kubelet_plugin.devices.host_memory import host_memory
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.levels import detected_levels
from kubelet_plugin.devices.name import ShareName
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.taint import (
    compute_mode_taints,
    held_mode_taints,
    repair_taints,
    taints,
)
from kubelet_plugin.inventory.compute_mode import PREVENTS_SHARES
from kubelet_plugin.inventory.gpu import Gpu, GpuState
from kubelet_plugin.inventory.held_mode import Switch

MEMORY: Final = "memory"
"""The capacity of memory, in bytes and steps of 1 MiB."""
CORES: Final = "cores"
"""The capacity of cores, in percent of the GPU."""

_MIB: Final = 2**20
_ALL_CORES: Final = 100


def shareable_mib(gpu: Gpu) -> int | None:
    """Returns the memory that shares of a GPU can have together, in MiB; None if it has none.

    It is without what the driver reserves, which no container gets. The API server requires a range
    of at least one step, from 1 MiB to 2 MiB.
    """
    mib = ((gpu.memory_bytes or 0) - gpu.memory_reserved_bytes) // _MIB
    return mib if mib > 1 else None


@dataclass(frozen=True, slots=True)
class Share:
    """A GPU as a device of which claims get shares."""

    kind: ClassVar[DeviceKind] = DeviceKind.SHARE
    gpu: Gpu
    state: GpuState

    @property
    def name(self) -> str:
        """The name of the device in its pool, `gpu-<minor>-share`."""
        return str(ShareName(self.gpu.minor))

    @property
    def levels(self) -> Levels:
        """What can keep containers within the memory and cores of their share."""
        return detected_levels(self.gpu, self.state)

    def levels_in_force(self, *, limited: bool, mps: bool) -> Levels:
        """What keeps the containers of a claim within its share.

        limited: whether the driver limits its pod. mps: whether they compute through its MPS
        daemon.
        """
        memory: set[MemoryLevel] = set(self.levels.memory - {"kernel", "mps"})
        cores: set[CoreLevel] = set(self.levels.cores - {"mps"})
        if limited:
            memory.add("kernel")
        if mps:
            memory.add("mps")
            cores.add("mps")
        return Levels(frozenset(memory), frozenset(cores))

    @property
    def total(self) -> "ShareAmounts":
        """What all shares can have together, with what the driver reserves.

        Earlier versions published that, so there may be claims that have it.
        """
        return ShareAmounts((self.gpu.memory_bytes or 0) // _MIB, _ALL_CORES)

    def published(self, settings: PublishSettings) -> PublishedDevice:
        """Returns the device for a ResourceSlice.

        It consumes all counters of its GPU once, whatever the number of shares, so that nothing
        else can use the GPU meanwhile.
        """
        attributes = {
            **gpu_attributes(self.kind, self.gpu, self.state, settings.least_share),
            **enforcement_attributes(self.levels),
        }
        return PublishedDevice(
            name=self.name,
            attributes=dict(sorted(attributes.items())),
            capacity=_capacity(
                shareable_mib(self.gpu) or 0, settings.share_cores, settings.least_share
            ),
            consumes_counters=(
                DeviceCounterConsumption(counter_set_name(self.gpu), whole_counters(self.gpu)),
            ),
            taints=(
                *taints(self.state.problems, settings.driver, settings.evict),
                *held_mode_taints(self.state.held_mode, Switch.OFF, settings.driver),
                *compute_mode_taints(self.state.compute_mode, PREVENTS_SHARES, settings.driver),
                *repair_taints(self.state.repair_failed, settings.driver),
            ),
            node_allocatable_resources=host_memory(settings),
            allow_multiple_allocations=True,
        )


def enforcement_attributes(levels: Levels) -> Mapping[str, DeviceAttribute]:
    """Returns the attributes that say which levels are in force, and the strongest of them."""
    return {
        "memoryEnforcement": StringAttribute(levels.strongest_memory),
        "coreEnforcement": StringAttribute(levels.strongest_cores),
        **{name: BoolAttribute(there) for name, there in levels.attributes.items()},
    }


@dataclass(frozen=True, slots=True)
class ShareAmounts:
    """What one share has of its GPU."""

    memory_mib: int
    """Memory in MiB, at least 1."""
    cores: int
    """Percent of the cores, at least 1."""


def share_amounts(consumed: Mapping[str, Quantity]) -> ShareAmounts | None:
    """Returns the amounts of a share from its consumed capacity; None if it has none of either.

    The scheduler gives whole steps. Another allocator's fraction of a step is not counted.
    """
    memory, cores = (_steps(consumed, name, step) for name, step in ((MEMORY, _MIB), (CORES, 1)))
    return ShareAmounts(memory, cores) if memory and cores else None


def _steps(consumed: Mapping[str, Quantity], name: str, step: int) -> int:
    quantity = consumed.get(name, Quantity.of(0))
    return max(0, quantity.nanos // (step * 10**9))


def least_cores(least_share: Fraction) -> int:
    """Returns the least percentage of cores that a share has."""
    return least_amount(_ALL_CORES, least_share)


def _capacity(mib: int, default_cores: int, least_share: Fraction) -> Mapping[str, DeviceCapacity]:
    """Returns the capacities; the default memory is in proportion to the default cores.

    It is rounded down, so that ten shares of ten percent fit. A request for less than the least
    share gets the least share (KEP-5075). Claims that have less were allocated before.
    """
    cores, memory = least_cores(least_share), least_amount(mib, least_share)
    return {
        CORES: _of(_ALL_CORES, cores, default_cores, step=1),
        MEMORY: _of(mib, memory, mib * default_cores // _ALL_CORES, step=_MIB),
    }


def _of(steps: int, least: int, default: int, *, step: int) -> DeviceCapacity:
    """Returns a capacity of some steps, of which a request gets any number from the least on."""
    valid = CapacityRange(
        min=Quantity.of(least * step), max=Quantity.of(steps * step), step=Quantity.of(step)
    )
    amount = Quantity.of(max(least, default) * step)
    policy = CapacityRequestPolicy(default=amount, valid=ValidRange(valid))
    return DeviceCapacity(Quantity.of(steps * step), policy)
