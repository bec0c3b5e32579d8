"""Nodes with attributes that cross: devices with a value of one in common differ in the other."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import (
    ATTRIBUTES,
    NUMA,
    PCIE,
    distinct,
    has_memory,
    match,
    pod,
    request,
)
from tests.benchmarks.fleet import DRIVER, Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MODELS
from tests.benchmarks.pool import holder, node_name, nodes, pool_slices

_SEED: Final = 17
_POOLS: Final = 12
_MOST_IN_USE: Final = 6
_SWITCH, _RAIL = (f"{DRIVER}/{name}" for name in ("switch", "rail"))
_RAILS: Final = ((0, 1), (0, 1), (0, 1), (2, 3), (4, 5), (2, 5))
"""The rails of each switch: there are six of both, but three switches have the same two rails."""


def make(number: int) -> Fleet:
    """Twelve pools of two devices on each node, up to six devices of it in use.

    The devices of a pool share a PCIe root, and are on two NUMA nodes. The first is on a switch.
    """

    def slices() -> Iterator[Object]:
        random = Random(_SEED)
        places = [(switch, rail) for switch, rails in enumerate(_RAILS) for rail in rails]
        for node in range(number):
            random.shuffle(places)
            for pool, (switch, rail) in enumerate(places):
                memory = random.randint(40_000, 80_000)
                first, second = (_device(pool, numa, memory) for numa in range(2))
                first["attributes"] |= {"switch": {"int": switch}, "rail": {"int": rail}}
                reaches = {"nodeName": node_name(node)}
                yield from pool_slices(_pool(node, pool), DRIVER, reaches, [first, second])

    def in_use() -> Iterator[Object]:
        random = Random(_SEED + 1)
        for node in range(number):
            for index in random.sample(range(2 * _POOLS), random.randint(0, _MOST_IN_USE)):
                yield holder(_pool(node, index // 2), f"gpu-{index % 2}")

    return Fleet(nodes(number), slices, in_use)


def _pool(node: int, pool: int) -> str:
    return f"{node_name(node)}-{pool:02}"


def _device(pool: int, numa: int, memory: int) -> Object:
    return {
        "name": f"gpu-{numa}",
        "attributes": {
            "model": {"string": MODELS[pool % len(MODELS)]},
            NUMA: {"int": numa},
            PCIE: {"string": f"pci0000:{pool:02x}"},
        },
        "capacity": {"memory": {"value": f"{memory}Mi"}},
    }


def one(_: int) -> Pod:
    """A device of a model."""
    return pod(request(f'{ATTRIBUTES}.model == "H100"'))


def _any(number: int, name: str = "gpus", count: int = 1) -> Object:
    """A request that every device can serve; another kind for each number."""
    return request(has_memory(f"{number}Mi"), count, name=name)


def _of_numa_node(number: int) -> Pod:
    return pod(_any(number, count=2), constraints=(match(NUMA),))


def _of_roots(number: int) -> Pod:
    claims = (pod(_any(number, count=2), constraints=(match(PCIE),)) for _ in range(4))
    return tuple(claim for of_one in claims for claim in of_one)


def _chain(number: int) -> Pod:
    """The first two devices share a root, the last two a NUMA node."""
    constraints = match(PCIE, "a", "b"), match(NUMA, "b", "c")
    return pod(*(_any(number, name) for name in "abc"), constraints=constraints)


def _of_root_and_numa_node(number: int) -> Pod:
    return pod(_any(number, count=2), constraints=(match(PCIE), match(NUMA)))


def _apart(number: int) -> Pod:
    """Six devices on six switches and six rails."""
    return pod(_any(number, count=6), constraints=(distinct(_SWITCH), distinct(_RAIL)))


SCENARIO: Final = Scenario(
    name="crossing",
    about="{nodes} nodes of 12 pools of 2 devices, whose NUMA nodes cross their PCIe roots",
    nodes=500,
    make=make,
    one=one,
    questions=tuple(
        Question(f"{what}, new kind", Asking.NEW, make_pod, times=4)
        for what, make_pod in (
            ("2 devices of a NUMA node", _of_numa_node),
            ("4 claims of 2 devices of a PCIe root", _of_roots),
            ("2 devices of a PCIe root, 1 of the NUMA node of the second", _chain),
            ("2 devices of a PCIe root and a NUMA node, which no node has", _of_root_and_numa_node),
            ("6 devices on 6 switches and rails, which no node has", _apart),
        )
    ),
)
