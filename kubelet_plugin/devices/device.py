"""The devices of a node: each way in which one of its GPUs can be handed out.

A device is what the scheduler picks, a claim is allocated and the kubelet asks to prepare. `Device`
is a closed union with a member for each kind; code that acts on a device matches on its kind. Every
kind has a `name`, unique on the node and telling all of its identity, the `gpu` that it is made of,
that GPU's `state`, and its `published` form.
"""

from typing import TypeAlias, assert_never

from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import MigMode, ObservedGpu
from kubelet_plugin.inventory.inventory import Inventory, known_gpus

Device: TypeAlias = WholeGpu


def devices(inventory: Inventory | None) -> tuple[Device, ...]:
    """Gives the node's devices, sorted by the minor number of their GPU.

    A GPU that does not answer keeps its devices: whether they may be allocated follows from the
    problems in its state.
    """
    return tuple(device for observed in known_gpus(inventory) for device in _devices_of(observed))


def _devices_of(observed: ObservedGpu) -> tuple[Device, ...]:
    match observed.state.mig_mode:
        case MigMode.OFF:
            return (WholeGpu(observed.gpu, observed.state),)
        case MigMode.ON:
            return ()  # CUDA cannot use it as a whole
    assert_never(observed.state.mig_mode)
