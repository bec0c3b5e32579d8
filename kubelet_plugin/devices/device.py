"""The devices of a node, as which its GPUs can be allocated.

The scheduler allocates a device to a claim, and the kubelet asks the plugin to prepare it.
`GpuDevice` is a closed union with a member for each kind of device; code that handles devices
matches on the kind. Every kind has a `name`, which is unique on the node and identifies the device,
the `gpu` that it belongs to, that GPU's `state`, and its `published` form.
"""

from typing import TypeAlias, assert_never

from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import MigMode, ObservedGpu
from kubelet_plugin.inventory.inventory import Inventory, known_gpus

GpuDevice: TypeAlias = WholeGpu


def devices(inventory: Inventory | None) -> tuple[GpuDevice, ...]:
    """Returns the node's devices, sorted by the minor number of their GPU.

    A GPU that does not respond keeps its devices. The problems in its state determine whether they
    may be allocated.
    """
    return tuple(device for observed in known_gpus(inventory) for device in _devices_of(observed))


def _devices_of(observed: ObservedGpu) -> tuple[GpuDevice, ...]:
    match observed.state.mig_mode:
        case MigMode.OFF:
            return (WholeGpu(observed.gpu, observed.state),)
        case MigMode.ON:
            return ()  # CUDA cannot use the whole GPU
    assert_never(observed.state.mig_mode)
