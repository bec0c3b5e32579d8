"""The devices of a node: each way in which one of its GPUs can be handed out.

A device is what the scheduler picks, a claim is given and the kubelet asks to prepare. `Device` is
a closed union with a member for each kind; whoever acts on a device matches on its kind. Every
kind has a `name`, unique on the node and telling all of its identity, the `gpu` it is made of, and
that GPU's `health`.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import Gpu, Inventory, MigDisabled, MigEnabled, MigUnsupported
from kubelet_plugin.inventory.health import Health, gpu_health

__all__ = ["Device", "WholeGpu", "devices"]


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A GPU, all of it."""

    gpu: Gpu
    """As it was when it last answered."""
    health: Health

    @property
    def name(self) -> str:
        """`gpu-<minor>`: what the device is called in its pool."""
        return f"gpu-{self.gpu.minor}"


Device: TypeAlias = WholeGpu


def devices(inventory: Inventory) -> tuple[Device, ...]:
    """Gives the node's devices, sorted by the minor number of their GPU.

    A GPU that no longer answers keeps its devices: whether they may still be given to anyone is for
    their `health` to say.
    """
    return tuple(
        device for gpu, health in gpu_health(inventory) for device in _devices_of(gpu, health)
    )


def _devices_of(gpu: Gpu, health: Health) -> tuple[Device, ...]:
    match gpu.mig:
        case MigUnsupported() | MigDisabled():
            return (WholeGpu(gpu, health),)
        case MigEnabled():
            return ()  # CUDA cannot use it as a whole
    assert_never(gpu.mig)
