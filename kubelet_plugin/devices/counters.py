"""Counter sets (KEP-4815): what the devices of one GPU draw from, so that they exclude each other.

Every GPU is a counter set, `gpu-<minor>`. A GPU that can be partitioned counts its engines and
memory slices, one that cannot counts itself.
"""

from collections.abc import Mapping
from typing import assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource import Counter, CounterSet
from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.mig import MigLayout, MigSupported, MigUnsupported


def counter_set(gpu: Gpu) -> CounterSet:
    """Gives the counter set of a GPU."""
    return CounterSet(counter_set_name(gpu), counters(gpu))


def counter_set_name(gpu: Gpu) -> str:
    """Names the counter set of a GPU."""
    return str(WholeGpuName(gpu.minor))


def counters(gpu: Gpu) -> Mapping[str, Counter]:
    """Gives all that a GPU has to draw from."""
    match gpu.mig:
        case MigSupported(layout) if layout.profiles:
            return _partition_counters(layout)
        case MigUnsupported() | MigSupported():
            return {"gpu": _counter(1)}
    assert_never(gpu.mig)


def _partition_counters(layout: MigLayout) -> Mapping[str, Counter]:
    total = layout.total
    engines = {
        "multiprocessors": total.multiprocessors,
        "copy-engines": total.copy_engines,
        "decoders": total.decoders,
        "encoders": total.encoders,
        "jpeg-engines": total.jpeg_engines,
        "ofa-engines": total.ofa_engines,
    }
    slices = {f"memory-slice-{index}": 1 for index in range(layout.memory_slices)}
    return {name: _counter(number) for name, number in (engines | slices).items() if number}


def _counter(number: int) -> Counter:
    return Counter(Quantity.of(number))
