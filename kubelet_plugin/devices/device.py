"""The devices of a node, as which its GPUs can be allocated.

The scheduler allocates a device to a claim, and the kubelet asks the plugin to prepare it.
`GpuDevice` is a closed union with a member for each kind of device; code that handles devices
matches on the kind. Every kind has a `name`, which is unique on the node and identifies the device,
the `gpu` that it belongs to, that GPU's `state`, its `kind` and its `published` form.
"""

from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import TypeAlias, assert_never

from kubelet_plugin.devices.counters import available_counters, has_room
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share, shareable_mib
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import GpuState, MigMode, ObservedGpu
from kubelet_plugin.inventory.inventory import Inventory, known_gpus
from kubelet_plugin.inventory.mig import (
    MigPlacement,
    MigProfile,
    MigSite,
    MigSupported,
    MigUnsupported,
)

GpuDevice: TypeAlias = WholeGpu | Partition | FoundPartition | Share | Monitor


def devices(inventory: Inventory | None) -> tuple[GpuDevice, ...]:
    """Returns the node's devices, each kind sorted by the minor number of the GPU.

    The scheduler takes the first device that fits: a request that selects no type gets a whole GPU
    before a part of one, and monitors come last. Shares come before partitions, of which there are
    many: kube-scheduler evaluates the selectors of a request for each device before the one that it
    takes. Of the partitions of a GPU, the smallest come first, each at its last placement first:
    the large profiles fit at the first placements, some of them only there. A GPU that does not
    respond keeps its devices. The problems in its state determine whether they may be allocated.
    """
    gpus = known_gpus(inventory)
    return (
        *(WholeGpu(known.gpu, known.state) for known in gpus if _can_be_used_whole(known)),
        *(Share(known.gpu, known.state) for known in gpus if _can_be_shared(known)),
        *(partition for known in gpus for partition in _partitions(known)),
        *(Monitor(known.gpu, known.state) for known in gpus),
    )


def of_kinds(devices: Iterable[GpuDevice], kinds: Collection[DeviceKind]) -> tuple[GpuDevice, ...]:
    """Returns the devices of these kinds, in their order."""
    return tuple(device for device in devices if device.kind in kinds)


def _can_be_used_whole(observed: ObservedGpu) -> bool:
    match observed.state.mig_mode:
        case MigMode.OFF | MigMode.ON_FOR_CLAIMS:
            return True
        case MigMode.ON:
            return False  # CUDA sees only the MIG instances
    assert_never(observed.state.mig_mode)


def _can_be_shared(observed: ObservedGpu) -> bool:
    return _can_be_used_whole(observed) and shareable_mib(observed.gpu) is not None


def _partitions(observed: ObservedGpu) -> Iterator[Partition | FoundPartition]:
    gpu, state = observed.gpu, observed.state
    available = available_counters(gpu, state)
    for profile in sorted(_profiles(observed), key=attrgetter("size")):
        for placement in reversed(profile.placements):
            uuid = _found(state, profile, placement)
            there = state.at(MigSite(profile.id, placement))
            if uuid is not None:
                yield FoundPartition(gpu, there, profile, placement, uuid)
            elif has_room(available, profile, placement):
                yield Partition(gpu, there, profile, placement)


def _profiles(observed: ObservedGpu) -> tuple[MigProfile, ...]:
    """Returns the profiles of which partitions can be made now, without a reset of the GPU."""
    match observed.gpu.mig:
        case MigSupported(layout, at_once):
            usable = at_once or observed.state.mig_mode is not MigMode.OFF
            return layout.profiles if usable else ()
        case MigUnsupported():
            return ()
    assert_never(observed.gpu.mig)


def _found(state: GpuState, profile: MigProfile, placement: MigPlacement) -> str | None:
    """Returns the UUID of the MIG device that an administrator made there."""
    for instance in state.instances:
        compute = instance.undivided(profile)
        if instance.site == MigSite(profile.id, placement) and compute is not None:
            return compute.uuid
    return None
