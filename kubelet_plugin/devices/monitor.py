"""The kind `monitor`: the sight of a GPU, also of one in use.

kube-scheduler draws a device's counters for claims with admin access too (kubernetes #140729), so
that the device `gpu` cannot be allocated for monitoring while the GPU is in use. A monitor consumes
nothing. It is only for claims with admin access (KEP-5018): an admission policy requires it of
claims that name the DeviceClass, and the plugin requires it of all.
"""

from dataclasses import dataclass
from typing import ClassVar

from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.attributes import gpu_attributes
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.name import MonitorName
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.gpu import Gpu, GpuState


@dataclass(frozen=True, slots=True)
class Monitor:
    """The sight of a GPU as a device."""

    kind: ClassVar[DeviceKind] = DeviceKind.MONITOR
    gpu: Gpu
    state: GpuState

    @property
    def name(self) -> str:
        """The name of the device in its pool, `gpu-<minor>-monitor`."""
        return str(MonitorName(self.gpu.minor))

    def published(self, _settings: PublishSettings) -> PublishedDevice:
        """Returns the device for a ResourceSlice.

        It has no taints: a GPU with a problem is one to be looked at, and a single tainted device
        would keep claims for all of a node from being allocated. Taints without effect would add a
        write of another slice to each change of the GPU's health, which users see in their claims.
        """
        return PublishedDevice(
            name=self.name, attributes=gpu_attributes(self.kind, self.gpu, self.state, None)
        )
