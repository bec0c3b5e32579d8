"""The allocator in numbers, beside its goals and upstream's own allocator on the same objects."""

import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.placer import Placed, Placement, PlacementRequest, Placer
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceClass,
    DeviceResult,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from tests.oracle import upstream

_DRIVER = "gpu.carina.dev"
_MODELS = (("H200", "141Gi"), ("H100", "80Gi"), ("A100", "80Gi"), ("L40S", "48Gi"))
_GATES = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceBindingConditions",
    "DRAConsumableCapacity",
)
_CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
}
_MIG = (("7g", 0, 8), ("4g", 0, 4), ("3g", 0, 4), ("3g", 4, 4), ("2g", 0, 2), ("2g", 2, 2),
        ("2g", 4, 2), *(("1g", start, 1) for start in range(7)))  # fmt: skip
"""Placements of an H100: profile, first memory slice, and how many."""
Object = dict[str, Any]
_names = itertools.count()


class Report(Protocol):
    """Hears of results."""

    def goal(self, what: str, value: float, goal: float, unit: str) -> None:
        """A result with a goal."""

    def fact(self, what: str, text: object) -> None:
        """A result without one."""


class Fleet:
    """Nodes with GPUs, as objects of the API and as the allocator's state."""

    def __init__(
        self, nodes: int, devices: Callable[[int], list[Object]], counters: int = 0
    ) -> None:
        self.nodes = [f"node-{index:05}" for index in range(nodes)]
        self.slices = [
            each
            for index, node in enumerate(self.nodes)
            for each in _slices(node, devices(index), counters)
        ]
        self.cluster = Cluster()
        for node in self.nodes:
            self.cluster.put_node(Node(node))
        decoded = [decode(ResourceSlice, each) for each in self.slices]
        for each in decoded:
            self.cluster.put_slice(each)
        self.classes = {"gpu": decode(DeviceClass, _CLASS)}
        self._placer = Placer(self.cluster, Policy(), new_share_id=lambda: f"share-{next(_names)}")

    def use(self, node: int, device: str) -> None:
        """Gives a device away."""
        name = self.nodes[node]
        result = DeviceResult("gpu", _DRIVER, name, device)
        allocation = Allocation(DeviceAllocation((result,)))
        self.cluster.allocate(f"used/{name}-{device}", allocation)

    def place(self, claim: Object) -> Placement:
        """Finds the best node for a claim, from its JSON on."""
        asked = decode(ResourceClaim, claim)
        request = PlacementRequest.of([asked], self.classes, self.cluster.features)
        return self._placer.place(request)

    def give(self, claim: Object) -> bool:
        """Gives a claim its devices."""
        placement = self.place(claim)
        if isinstance(placement, Placed):
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            self.cluster.allocate(name, placement.allocated.allocations[0])
        return isinstance(placement, Placed)


def _slices(node: str, devices: list[Object], counters: int) -> Iterator[Object]:
    sets = [
        {
            "name": f"gpu-{index}",
            "counters": {f"memory-slice-{slot}": {"value": "1"} for slot in range(8)},
        }
        for index in range(counters)
    ]
    parts: list[Object] = [{"devices": devices[at : at + 64]} for at in range(0, len(devices), 64)]
    if sets:
        parts.append({"sharedCounters": sets})
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    for index, part in enumerate(parts):
        spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, **part}
        yield {"metadata": {"name": f"{node}-{index}"}, "spec": spec}


def _gpus(node: int) -> list[Object]:
    """Eight GPUs of a model, on two NUMA nodes, each with an identity of its own."""
    model, memory = _MODELS[node % len(_MODELS)]
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": model},
                "uuid": {"string": f"GPU-{node:05}-{index}"},
                "minor": {"int": index},
                "driverVersion": {"version": "580.65.6"},
                "resource.kubernetes.io/numaNode": {"int": index // 4},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02x}"},
                "resource.kubernetes.io/pciBusID": {"string": f"{node:04x}:{index:02x}:00.0"},
            },
            "capacity": {"memory": {"value": memory}},
        }
        for index in range(8)
    ]


def _plain(_: int) -> list[Object]:
    model = {"model": {"string": "H200"}}
    return [{"name": f"gpu-{index}", "attributes": model} for index in range(10)]


def _mig(_: int) -> list[Object]:
    return [
        {
            "name": f"gpu-{gpu}-mig-{profile}-{start}",
            "attributes": {"profile": {"string": profile}, "parent": {"int": gpu}},
            "consumesCounters": [
                {
                    "counterSet": f"gpu-{gpu}",
                    "counters": {
                        f"memory-slice-{slot}": {"value": "1"}
                        for slot in range(start, start + size)
                    },
                }
            ],
        }
        for gpu in range(8)
        for profile, start, size in _MIG
    ]


def _claim(selector: str = "", count: int = 1, *, numa: bool = False) -> Object:
    asked: Object = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        asked["selectors"] = [{"cel": {"expression": selector}}]
    devices: Object = {"requests": [{"name": "gpus", "exactly": asked}]}
    if numa:
        devices["constraints"] = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    metadata = {"name": f"claim-{next(_names)}", "namespace": "default"}
    return {"metadata": metadata, "spec": {"devices": devices}}


def _pair(model: str, memory: str = "40Gi") -> Object:
    return _claim(
        f'device.attributes["{_DRIVER}"].model == "{model}" && '
        f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("{memory}")) >= 0',
        count=2,
        numa=True,
    )


def _ms(does: Callable[[], object], times: int = 1) -> float:
    """Milliseconds of one of so many."""
    begun = time.perf_counter()
    for _ in range(times):
        does()
    return (time.perf_counter() - begun) / times * 1000


def measure(report: Report) -> None:
    """Measures and reports."""
    _large(report)
    _small(report)
    _partitions(report)


def _large(report: Report) -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fleet = Fleet(1000, _gpus)
    fleet.cluster.by_shape()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    report.fact("allocator: memory of a device, its slice with it", f"{kept / 8000 / 1024:.1f} KiB")

    fleet = Fleet(5000, _gpus)
    for node in range(5000):
        for index in range(node % 6):
            fleet.use(node, f"gpu-{(index * 3 + node) % 8}")
    report.fact("allocator: first look at 5,000 nodes of 8 GPUs",
                f"{_ms(fleet.cluster.by_shape):.0f} ms")  # fmt: skip
    unseen = [_ms(partial(fleet.place, _pair(model))) for model, _ in _MODELS]
    report.goal("allocator: 2 GPUs of one NUMA node, never seen", max(unseen), 20, "ms")
    like = _ms(lambda: fleet.give(_pair("H100")), 1000)
    report.goal("allocator: the same, one of 1,000 like claims", like, 1, "ms")
    shapes = [_pair(model, f"{size}Gi") for model, _ in _MODELS for size in range(20, 45)]
    for claim in shapes:
        fleet.place(claim)
    mixed = _ms(lambda: [fleet.give({**each, "metadata": _claim()["metadata"]}) for each in shapes])
    report.fact("allocator: one of 100 kinds of claims at once", f"{mixed / len(shapes):.2f} ms")
    copied = _ms(fleet.cluster.copy, 5)
    report.fact("allocator: a copy of the cluster, to try things on", f"{copied:.1f} ms")
    _beside_upstream(report, "5,000 nodes of 8, pairs", fleet, _pair("A100"))


def _small(report: Report) -> None:
    fleet = Fleet(500, _plain)
    fleet.place(_claim())
    sweep = _ms(lambda: fleet.place(_claim()), 500)
    report.goal("allocator: a plain claim on 500 nodes of 10", sweep, 0.3, "ms")
    _beside_upstream(report, "500 nodes of 10, plain", fleet, _claim())
    for node in range(500):
        for index in range(10):
            fleet.use(node, f"gpu-{index}")
    fleet.place(_claim())
    full = _ms(lambda: fleet.place(_claim()), 500)
    report.goal("allocator: the same where all is in use", full, 0.3, "ms")


def _partitions(report: Report) -> None:
    fleet = Fleet(50, _mig, counters=8)
    profiles = itertools.cycle(["1g", "2g", "1g", "3g", "1g", "4g", "2g"])

    def give() -> bool:
        profile = next(profiles)
        return fleet.give(_claim(f'device.attributes["{_DRIVER}"].profile == "{profile}"'))

    first = _ms(give, 7)
    each = _ms(give, 300)
    report.fact("allocator: MIG on 50 nodes of 8 H100, first, then",
                f"{first:.1f} ms, {each:.1f} ms")  # fmt: skip


def _beside_upstream(report: Report, what: str, fleet: Fleet, claim: Object) -> None:
    """The same question to upstream, which looks at one node after the other."""
    if why_not := upstream.why_not():
        report.fact(f"upstream: {what}", why_not)
        return
    ours = _ms(lambda: fleet.place(claim), 20)
    case = {
        "features": _GATES,
        "nodes": [{"metadata": {"name": name}} for name in fleet.nodes],
        "classes": [_CLASS],
        "slices": fleet.slices,
        "claims": [claim],
        "rounds": 3,
    }
    with upstream.running("bench") as oracle:
        theirs = oracle.answer(case)["sweep"] / 1e6
    report.fact(f"upstream: {what}", f"{theirs:.1f} ms, {theirs / ours:.0f} times ours")
