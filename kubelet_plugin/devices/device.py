"""The devices of a node, as which its GPUs can be allocated.

The scheduler allocates a device to a claim, and the kubelet asks the plugin to prepare it.
`GpuDevice` is a closed union with a member for each kind of device; code that handles devices
matches on the kind. Every kind has a `name`, which is unique on the node and identifies the device,
the `gpu` that it belongs to, that GPU's `state`, its `kind` and its `published` form.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias, assert_never

from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.share import Share, shareable_mib
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import MigMode, ObservedGpu
from kubelet_plugin.inventory.inventory import Inventory, known_gpus

GpuDevice: TypeAlias = WholeGpu | Share | Monitor


def devices(inventory: Inventory | None) -> tuple[GpuDevice, ...]:
    """Returns the node's devices, each kind sorted by the minor number of the GPU.

    The scheduler takes the first device that fits: a request that selects no type gets a whole GPU
    before a share, and monitors come last. A GPU that does not respond keeps its devices. The
    problems in its state determine whether they may be allocated.
    """
    gpus = known_gpus(inventory)
    return (
        *(WholeGpu(one.gpu, one.state) for one in gpus if _can_be_used_whole(one)),
        *(Share(one.gpu, one.state) for one in gpus if _can_be_shared(one)),
        *(Monitor(one.gpu, one.state) for one in gpus),
    )


def of_kinds(devices: Iterable[GpuDevice], kinds: Collection[DeviceKind]) -> tuple[GpuDevice, ...]:
    """Returns the devices of these kinds, in their order."""
    return tuple(device for device in devices if device.kind in kinds)


def _can_be_used_whole(observed: ObservedGpu) -> bool:
    match observed.state.mig_mode:
        case MigMode.OFF:
            return True
        case MigMode.ON:
            return False  # CUDA sees only the MIG instances
    assert_never(observed.state.mig_mode)


def _can_be_shared(observed: ObservedGpu) -> bool:
    return _can_be_used_whole(observed) and shareable_mib(observed.gpu) is not None
