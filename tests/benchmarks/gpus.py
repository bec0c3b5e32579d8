"""Simple devices as objects of the API: whole GPUs, and the partitions of a GPU."""

from dataclasses import dataclass
from typing import Final

from tests.benchmarks.claims import NUMA, PCIE
from tests.benchmarks.fleet import Object

MODELS: Final = ("H200", "H100", "A100", "L40S")
MEMORY_GIB: Final = {"H200": 141, "H100": 80, "A100": 80, "L40S": 48}
PER_NODE: Final = 8
ONE: Final = {"value": "1"}


def model_of(node: int) -> str:
    """The model of a node's GPUs."""
    return MODELS[node % len(MODELS)]


def gpu(node: int, index: int, *, numa: int | None = None, memory: str | None = None) -> Object:
    """A whole GPU with an identity of its own; by default four share a NUMA node."""
    model = model_of(node)
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": model},
            "uuid": {"string": f"GPU-{node:05}-{index}"},
            "minor": {"int": index},
            "driverVersion": {"version": "580.65.6"},
            NUMA: {"int": index // 4 if numa is None else numa},
            PCIE: {"string": f"pci0000:{index:02x}"},
            "resource.kubernetes.io/pciBusID": {"string": f"{node:04x}:{index:02x}:00.0"},
        },
        "capacity": {"memory": {"value": memory or f"{MEMORY_GIB[model]}Gi"}},
    }


def gpus(node: int) -> list[Object]:
    """The GPUs of a node."""
    return [gpu(node, index) for index in range(PER_NODE)]


@dataclass(frozen=True, slots=True)
class Placement:
    """A MIG profile at a place of a GPU."""

    profile: str
    start: int
    """The first memory slice."""
    size: int
    """The number of memory slices."""

    @property
    def slots(self) -> range:
        """The memory slices."""
        return range(self.start, self.start + self.size)

    def name_on(self, gpu: int) -> str:
        """The name of the device."""
        return f"gpu-{gpu}-mig-{self.profile.replace('.', '-')}-{self.start}"


MEMORY_SLICES: Final = 8
PLACEMENTS: Final = tuple(
    Placement(profile, start, size)
    for profile, starts, size in (
        ("1g.10gb", range(7), 1),
        ("1g.20gb", range(0, 8, 2), 2),
        ("2g.20gb", range(0, 6, 2), 2),
        ("3g.40gb", range(0, 8, 4), 4),
        ("4g.40gb", range(1), 4),
        ("7g.80gb", range(1), 8),
    )
    for start in starts
)
"""The placements of an H100 with 80 GB; with the whole GPU, it has 19 devices."""


def partitions(node: int, gpu: int) -> list[Object]:
    """A GPU and its partitions, which draw from one counter set."""
    location: Object = {
        "uuid": {"string": f"GPU-{node:05}-{gpu}"},
        NUMA: {"int": gpu // 4},
        PCIE: {"string": f"pci0000:{gpu:02x}"},
    }
    whole = {"type": {"string": "gpu"}, **location}
    return [
        _drawing(f"gpu-{gpu}", gpu, whole, range(MEMORY_SLICES)),
        *(
            _drawing(
                placement.name_on(gpu),
                gpu,
                {"type": {"string": "mig"}, "profile": {"string": placement.profile}, **location},
                placement.slots,
            )
            for placement in PLACEMENTS
        ),
    ]


def counter_set(gpu: int) -> Object:
    """The counter set of a GPU: its memory slices."""
    return {"name": f"gpu-{gpu}", "counters": _counters(range(MEMORY_SLICES))}


def _drawing(name: str, gpu: int, attributes: Object, slots: range) -> Object:
    draws = {"counterSet": f"gpu-{gpu}", "counters": _counters(slots)}
    return {"name": name, "attributes": attributes, "consumesCounters": [draws]}


def _counters(slots: range) -> Object:
    return {f"memory-slice-{slot}": ONE for slot in slots}
