"""The kind `mig`: a partition of a GPU with MIG, which has memory and engines of its own.

Each profile of a GPU, at each of its placements, is a device. The partition is made when a claim
has it. A GPU instance that an administrator made is a device, too. It exists whatever is allocated,
so it consumes no counters, and the counter set lacks what it has.
"""

from dataclasses import dataclass
from typing import ClassVar

from carina_dra.quantity import Quantity
from carina_dra.resource import Device as PublishedDevice
from carina_dra.resource import DeviceCapacity, DeviceCounterConsumption
from kubelet_plugin.devices.attributes import partition_attributes, partition_capacity
from kubelet_plugin.devices.counters import counter_set_name, partition_counters
from kubelet_plugin.devices.host_memory import host_memory
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.name import PartitionName
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.taint import (
    compute_mode_taints,
    held_mode_taints,
    repair_taints,
    taints,
)
from kubelet_plugin.inventory.compute_mode import PREVENTS_ALL
from kubelet_plugin.inventory.gpu import Gpu, GpuState
from kubelet_plugin.inventory.held_mode import Switch
from kubelet_plugin.inventory.mig import MigPlacement, MigProfile, MigSite


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that is made when a claim has it."""

    kind: ClassVar[DeviceKind] = DeviceKind.MIG
    gpu: Gpu
    state: GpuState
    profile: MigProfile
    placement: MigPlacement

    @property
    def name(self) -> str:
        """The name of the device in its pool, such as `gpu-0-mig-1g10gb-19-4`."""
        return _name(self.gpu, self.profile, self.placement)

    @property
    def site(self) -> MigSite:
        """Where the partition is on its GPU."""
        return MigSite(self.profile.id, self.placement)

    def published(self, settings: PublishSettings) -> PublishedDevice:
        """Returns the device for a ResourceSlice. It has no UUID before it is made."""
        consumed = partition_counters(self.profile, self.placement)
        return PublishedDevice(
            name=self.name,
            attributes=partition_attributes(
                self.kind, self.gpu, self.profile, None, settings.least_share
            ),
            capacity=partition_capacity(self.profile),
            consumes_counters=(DeviceCounterConsumption(counter_set_name(self.gpu), consumed),),
            taints=(
                *taints(self.state.problems, settings.driver, settings.evict),
                *held_mode_taints(self.state.held_mode, Switch.ON, settings.driver),
                *compute_mode_taints(self.state.compute_mode, PREVENTS_ALL, settings.driver),
                *repair_taints(self.state.repair_failed, settings.driver),
            ),
            node_allocatable_resources=host_memory(settings),
        )


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A GPU instance that an administrator made, with one compute instance for all of it."""

    kind: ClassVar[DeviceKind] = DeviceKind.MIG
    gpu: Gpu
    state: GpuState
    profile: MigProfile
    placement: MigPlacement
    uuid: str
    """Of the MIG device."""

    @property
    def name(self) -> str:
        """The name of the device in its pool, such as `gpu-0-mig-1g10gb-19-4`."""
        return _name(self.gpu, self.profile, self.placement)

    @property
    def site(self) -> MigSite:
        """Where the partition is on its GPU."""
        return MigSite(self.profile.id, self.placement)

    def published(self, settings: PublishSettings) -> PublishedDevice:
        """Returns the device for a ResourceSlice, with a capacity for each memory slice."""
        slices = range(self.placement.start, self.placement.start + self.placement.size)
        memory_slice = DeviceCapacity(Quantity.of(1))
        return PublishedDevice(
            name=self.name,
            attributes=partition_attributes(
                self.kind, self.gpu, self.profile, self.uuid, settings.least_share
            ),
            capacity={
                **partition_capacity(self.profile),
                **{f"memorySlice{index}": memory_slice for index in slices},
            },
            taints=(
                *taints(self.state.problems, settings.driver, settings.evict),
                *repair_taints(self.state.repair_failed, settings.driver),
            ),
            node_allocatable_resources=host_memory(settings),
        )


def _name(gpu: Gpu, profile: MigProfile, placement: MigPlacement) -> str:
    return str(PartitionName.of(gpu.minor, profile.name, profile.id, placement.start))
