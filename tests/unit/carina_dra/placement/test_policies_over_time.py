"""How much each policy places while claims of mixed sizes come and go.

The GPUs of the cluster are given out whole, in partitions and in shares.
"""

from heapq import heappop, heappush
from random import Random
from typing import Any, Final

import pytest

from carina_dra.allocator.node import Node
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import DRIVER, claim, placer_of, request, slices

_NODES: Final = 6
_GPUS: Final = 4
_SLOTS: Final = {"quarter": 1, "half": 2, "whole": 4}
"""Of the four slots of a GPU."""
_SHARES: Final = (10, 20, 40)
"""Of the memory of 80 of a GPU."""
_CLAIMS: Final = 200
_SEEDS: Final = 4
_LOAD: Final = 0.8
"""Of the GPUs, if all claims had a place."""


def _slots(of: range) -> dict[str, Any]:
    return {f"slot-{slot}": {"value": "1"} for slot in of}


def _devices(gpu: int) -> list[dict[str, Any]]:
    sizes = {**_SLOTS, "share": 4}
    devices: list[dict[str, Any]] = [
        {
            "name": f"{kind}-{gpu}-{start}",
            "attributes": {"type": {"string": kind}},
            "consumesCounters": [
                {"counterSet": f"gpu-{gpu}", "counters": _slots(range(start, start + size))}
            ],
        }
        for kind, size in sizes.items()
        for start in range(0, 4, size)
    ]
    devices[-1] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    return devices


def _cluster() -> Cluster:
    nodes = Cluster()
    sets = [{"name": f"gpu-{gpu}", "counters": _slots(range(4))} for gpu in range(_GPUS)]
    devices = [device for gpu in range(_GPUS) for device in _devices(gpu)]
    for index in range(_NODES):
        nodes.put_node(Node(f"n{index}"))
        for published in slices(f"n{index}", {"sharedCounters": sets}, {"devices": devices}):
            nodes.put_slice(published)
    return nodes


def _asked(random: Random) -> tuple[ResourceClaim, float]:
    """A claim, and how much of a GPU it is for."""
    kind = random.choice([*_SLOTS, "share"])
    selector = f'device.attributes["{DRIVER}"].type == "{kind}"'
    if kind != "share":
        return claim(selector=selector), _SLOTS[kind] / 4
    memory = random.choice(_SHARES)
    capacity = {"requests": {"memory": str(memory)}}
    return claim(selector=selector, capacity=capacity), memory / 80


_MEAN: Final = (sum(_SLOTS.values()) / 4 + sum(_SHARES) / 80 / len(_SHARES)) / (len(_SLOTS) + 1)


def _placed(policy: str, seed: int) -> float:
    """How many GPUs, or parts of GPUs, are given out to claims that come and go."""
    random, nodes = Random(seed), _cluster()
    placer = placer_of(nodes, policy)
    held: list[tuple[float, str]] = []
    placed = 0.0
    for moment in range(_CLAIMS):
        asked, size = _asked(random)
        end = moment + random.expovariate(1) * _LOAD * _NODES * _GPUS / _MEAN
        while held and held[0][0] <= moment:
            nodes.release(heappop(held)[1])
        answer = placer.place(request(asked))
        if isinstance(answer, PlacedClaims):
            nodes.allocate(asked.key, answer.allocated.allocations[0])
            heappush(held, (end, asked.key))
            placed += size
    return placed


@pytest.fixture(scope="module")
def placed() -> dict[str, float]:
    """What each policy places of the same claims."""
    policies = ("binpack", "spread", "fragmentation")
    return {name: sum(_placed(name, seed) for seed in range(_SEEDS)) for name in policies}


def test_fragmentation_places_more_than_binpack(placed: dict[str, float]) -> None:
    assert placed["fragmentation"] > placed["binpack"]


def test_binpack_places_more_than_spread(placed: dict[str, float]) -> None:
    assert placed["binpack"] > placed["spread"]
