"""The kind `gpu`: a GPU, all of it."""

from dataclasses import dataclass

from carina_dra.resource import Device as PublishedDevice
from carina_dra.resource import DeviceCounterConsumption
from kubelet_plugin.devices.attributes import gpu_attributes, gpu_memory
from kubelet_plugin.devices.counters import counter_set_name, counters
from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.devices.taint import taints
from kubelet_plugin.inventory.gpu import Gpu, GpuState


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A GPU, all of it."""

    gpu: Gpu
    state: GpuState

    @property
    def name(self) -> str:
        """`gpu-<minor>`: what the device is called in its pool."""
        return str(WholeGpuName(self.gpu.minor))

    def published(self, driver: str) -> PublishedDevice:
        """Gives the device as it is in a ResourceSlice. It draws all that its GPU has."""
        return PublishedDevice(
            name=self.name,
            attributes=gpu_attributes("gpu", self.gpu, self.state),
            capacity=gpu_memory(self.gpu),
            consumes_counters=(
                DeviceCounterConsumption(counter_set_name(self.gpu), counters(self.gpu)),
            ),
            taints=taints(self.state.problems, driver),
        )
