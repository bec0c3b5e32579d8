"""Which of the node's devices are published.

An administrator chooses the kinds of each GPU. Partitions that an administrator made are always
published, because nothing else can be had of their GPU, and so are devices that prepared claims
have. If the latter left the slices when their kind was turned off, the scheduler would no longer
count them, and give their GPU to claims that then wait.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence

from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.kind_choice import KindChoice
from kubelet_plugin.devices.partition import FoundPartition


def offered(
    devices: Iterable[GpuDevice], choice: KindChoice, held: Collection[str]
) -> tuple[GpuDevice, ...]:
    """Returns the devices that are published, in their order; `held` names those of claims."""
    return tuple(
        device
        for device in devices
        if device.kind in choice.kinds(device.gpu)
        or isinstance(device, FoundPartition)
        or device.name in held
    )


class DeviceOffer:
    """The devices that are published while GPUs and claims change. Several threads use it."""

    def __init__(
        self,
        choice: KindChoice,
        held: Collection[str],
        publish: Callable[[Sequence[GpuDevice]], None],
    ) -> None:
        """`publish` receives the devices when they are known, and when they change."""
        self._choice = choice
        self._held = frozenset(held)
        self._publish = publish
        self._state = threading.Lock()
        self._devices: tuple[GpuDevice, ...] | None = None
        self._published: tuple[GpuDevice, ...] | None = None

    def see(self, devices: Iterable[GpuDevice]) -> None:
        """Sets the devices of the node."""
        with self._state:
            self._devices, self._published = tuple(devices), None
            self._update()

    def hold(self, names: Iterable[str]) -> None:
        """Sets the names of the devices that prepared claims have."""
        with self._state:
            self._held = frozenset(names)
            self._update()

    def _update(self) -> None:
        if self._devices is None:
            return
        chosen = offered(self._devices, self._choice, self._held)
        if chosen != self._published:
            self._published = chosen
            self._publish(chosen)
