"""Counter sets (KEP-4815), from which a GPU's devices consume, so that they exclude each other.

Every GPU has a counter set, `gpu-<minor>`. For a GPU that supports MIG, it counts engines and
memory slices; for any other GPU, it has a single counter.
"""

from collections.abc import Mapping
from typing import assert_never

from carina_dra.quantity import Quantity
from carina_dra.resource import Counter, CounterSet
from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.mig import MigLayout, MigSupported, MigUnsupported


def counter_set(gpu: Gpu) -> CounterSet:
    """Returns the counter set of a GPU."""
    return CounterSet(counter_set_name(gpu), counters(gpu))


def counter_set_name(gpu: Gpu) -> str:
    """Returns the name of a GPU's counter set."""
    return str(WholeGpuName(gpu.minor))


def counters(gpu: Gpu) -> Mapping[str, Counter]:
    """Returns all counters of a GPU."""
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
