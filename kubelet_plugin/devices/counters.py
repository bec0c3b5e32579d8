"""Counter sets (KEP-4815), from which a GPU's devices consume, so that they exclude each other.

Every GPU has a counter set, `gpu-<minor>`. For a GPU that supports MIG, it counts engines and
memory slices; for any other GPU, it has a single counter. What an administrator's GPU instances
have is not counted: nothing else can have it.
"""

from collections.abc import Mapping
from typing import assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource import Counter, CounterSet
from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.inventory.gpu import Gpu, GpuState
from kubelet_plugin.inventory.mig import (
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigSupported,
    MigUnsupported,
)


def counter_set(gpu: Gpu, state: GpuState) -> CounterSet:
    """Returns the counter set of a GPU: what it has for the devices that consume counters."""
    return CounterSet(counter_set_name(gpu), _counters(available_counters(gpu, state)))


def counter_set_name(gpu: Gpu) -> str:
    """Returns the name of a GPU's counter set."""
    return str(WholeGpuName(gpu.minor))


def whole_counters(gpu: Gpu) -> Mapping[str, Counter]:
    """Returns what a device consumes that uses the whole GPU."""
    return _counters(whole_need(gpu))


def partition_counters(profile: MigProfile, placement: MigPlacement) -> Mapping[str, Counter]:
    """Returns what a partition consumes."""
    return _counters(partition_need(profile, placement))


def has_room(available: Mapping[str, int], profile: MigProfile, placement: MigPlacement) -> bool:
    """Returns whether a partition is possible with what is available of a GPU."""
    needed = partition_need(profile, placement)
    return all(available.get(name, 0) >= number for name, number in needed.items())


def available_counters(gpu: Gpu, state: GpuState) -> Mapping[str, int]:
    """Returns what a GPU has beside the administrator's GPU instances, by counter."""
    left = dict(whole_need(gpu))
    for instance in state.instances:
        for name, number in _taken(gpu, instance.site.profile_id, instance.site.placement).items():
            left[name] = max(0, left.get(name, 0) - number)
    return left


def _taken(gpu: Gpu, profile_id: int, placement: MigPlacement) -> Mapping[str, int]:
    """Returns what a GPU instance has. Of a profile that is not known, that is all engines."""
    match gpu.mig:
        case MigSupported(layout):
            profile = layout.profile(profile_id)
            engines = layout.total if profile is None else profile.resources
            return _engines(engines) | _slices(placement)
        case MigUnsupported():
            return {}
    assert_never(gpu.mig)


def whole_need(gpu: Gpu) -> Mapping[str, int]:
    """Returns what a device needs that uses the whole GPU, by counter: all that there is."""
    match gpu.mig:
        case MigSupported(layout) if layout.profiles:
            return _of_layout(layout)
        case MigUnsupported() | MigSupported():
            return {"gpu": 1}
    assert_never(gpu.mig)


def _of_layout(layout: MigLayout) -> Mapping[str, int]:
    return _engines(layout.total) | _slices(MigPlacement(0, layout.memory_slices))


def partition_need(profile: MigProfile, placement: MigPlacement) -> Mapping[str, int]:
    """Returns what a partition needs, by counter, also where that is nothing."""
    return _engines(profile.resources) | _slices(placement)


def _engines(resources: MigResources) -> dict[str, int]:
    return {
        "multiprocessors": resources.multiprocessors,
        "copy-engines": resources.copy_engines,
        "decoders": resources.decoders,
        "encoders": resources.encoders,
        "jpeg-engines": resources.jpeg_engines,
        "ofa-engines": resources.ofa_engines,
    }


def _slices(placement: MigPlacement) -> dict[str, int]:
    slices = range(placement.start, placement.start + placement.size)
    return {f"memory-slice-{index}": 1 for index in slices}


def _counters(numbers: Mapping[str, int]) -> Mapping[str, Counter]:
    return {name: Counter(Quantity.of(number)) for name, number in numbers.items() if number}
