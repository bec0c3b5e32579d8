"""The kind `gpu`: a whole GPU."""

from dataclasses import dataclass
from typing import ClassVar

from carina_dra.resource import Device as PublishedDevice
from carina_dra.resource import DeviceCounterConsumption
from kubelet_plugin.devices.attributes import gpu_attributes, gpu_memory
from kubelet_plugin.devices.counters import counter_set_name, whole_counters
from kubelet_plugin.devices.host_memory import host_memory
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.name import WholeGpuName
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


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A whole GPU as a device."""

    kind: ClassVar[DeviceKind] = DeviceKind.GPU
    gpu: Gpu
    state: GpuState

    @property
    def name(self) -> str:
        """The name of the device in its pool, `gpu-<minor>`."""
        return str(WholeGpuName(self.gpu.minor))

    def published(self, settings: PublishSettings) -> PublishedDevice:
        """Returns the device for a ResourceSlice. It consumes all counters of its GPU."""
        return PublishedDevice(
            name=self.name,
            attributes=gpu_attributes(self.kind, self.gpu, self.state, settings.least_share),
            capacity=gpu_memory(self.gpu),
            consumes_counters=(
                DeviceCounterConsumption(counter_set_name(self.gpu), whole_counters(self.gpu)),
            ),
            taints=(
                *taints(self.state.problems, settings.driver, settings.evict),
                *held_mode_taints(self.state.held_mode, Switch.OFF, settings.driver),
                *compute_mode_taints(self.state.compute_mode, PREVENTS_ALL, settings.driver),
                *repair_taints(self.state.repair_failed, settings.driver),
            ),
            node_allocatable_resources=host_memory(settings),
        )
