"""Nodes with devices, as values of the engine: alike, unlike, partitioned with MIG, and shared."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from carina_dra.allocator.node import Node
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceClass, DeviceResult, ResourceSlice, decode
from controller.engine.model.node import ClusterNode
from tests.benchmarks.claims import request
from tests.benchmarks.fleet import CLASSES, DRIVER, Object
from tests.benchmarks.fleets import alike, mig, shares, unlike
from tests.benchmarks.gpus import MEMORY_SLICES, PER_NODE, PLACEMENTS
from tests.benchmarks.pool import node_name

Labels: TypeAlias = Callable[[int], Mapping[str, str]]
REQUEST: Final = "gpus"
"""The name of the request in all claims."""
_WHOLE: Final = request()
_SEED: Final = 5
_SHARED_GIB: Final = 80
_LEAST_SHARE_GIB: Final = 10
_CPU, _MEMORY = 128_000, 1 << 40


@dataclass(frozen=True, slots=True)
class Use:
    """A device, or a part of it, in use by a claim."""

    request: Object
    """What the claim asks for."""
    result: DeviceResult


@dataclass(frozen=True, slots=True)
class Hardware:
    """A kind of nodes."""

    name: str
    about: str
    slices: Callable[[int], Iterable[Object]]
    """The ResourceSlices of this number of nodes."""
    full: Callable[[int], Iterator[Use]]
    """What is in use of a node, by its index, when the node is full."""
    one: Object
    """A request for the smallest unit: a GPU, a partition or a share."""
    whole_node: Object
    """A request for all GPUs of a node."""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster without any work."""

    nodes: tuple[ClusterNode, ...]
    slices: tuple[ResourceSlice, ...]
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


CLASS_VALUES: Final = tuple(decode(DeviceClass, each) for each in CLASSES)


def build(hardware: Hardware, number: int, labels: Labels = lambda _: {}) -> Site:
    """A cluster of this number of nodes."""
    slices = tuple(decode(ResourceSlice, each) for each in hardware.slices(number))
    return Site(tuple(cluster_node(index, labels(index)) for index in range(number)), slices)


def cluster_node(index: int, labels: Mapping[str, str]) -> ClusterNode:
    """A node with more cpu and memory than the pods of the benchmarks ask for."""
    return ClusterNode(Node(node_name(index), labels), cpu=_CPU, memory=_MEMORY)


def _whole_gpus(node: int) -> Iterator[Use]:
    for gpu in range(PER_NODE):
        yield Use(_WHOLE, DeviceResult(REQUEST, DRIVER, node_name(node), f"gpu-{gpu}"))


def _partitions(node: int) -> Iterator[Use]:
    """Placements in random order, until nothing is left of any GPU."""
    random = Random(_SEED + node)
    for gpu in range(PER_NODE):
        free = set(range(MEMORY_SLICES))
        for placement in random.sample(PLACEMENTS, len(PLACEMENTS)):
            if free.issuperset(placement.slots):
                free.difference_update(placement.slots)
                asked = _request_of(mig.partition(placement.profile))
                name = placement.name_on(gpu)
                yield Use(asked, DeviceResult(REQUEST, DRIVER, node_name(node), name))


def _shares(node: int) -> Iterator[Use]:
    """Shares of random amounts, until a share of `one` has no room."""
    random = Random(_SEED + node)
    for gpu in range(PER_NODE):
        free = _SHARED_GIB
        for number in itertools.count():
            if free < _LEAST_SHARE_GIB:
                break
            memory = min(free, random.randint(_LEAST_SHARE_GIB, 2 * _LEAST_SHARE_GIB))
            free -= memory
            consumed = {"memory": Quantity.parse(f"{memory}Gi"), "cores": Quantity.parse("10")}
            result = DeviceResult(
                REQUEST,
                DRIVER,
                node_name(node),
                f"gpu-{gpu}",
                share_id=f"share-{node}-{gpu}-{number}",
                consumed_capacity=consumed,
            )
            yield Use(_request_of(shares.share(memory, 10)), result)


def _request_of(pod: tuple[Object, ...]) -> Object:
    (claim,) = pod
    (asked,) = claim["spec"]["devices"]["requests"]
    return asked  # type: ignore[no-any-return]  # JSON


_GPU_OF_MIG: Final = 'device.attributes["gpu.carina.dev"].type == "gpu"'
ALIKE: Final = Hardware(
    name="alike",
    about="8 GPUs a node, four models",
    slices=lambda number: alike.make(number).slices(),
    full=_whole_gpus,
    one=_WHOLE,
    whole_node=request(count=PER_NODE),
)
UNLIKE: Final = Hardware(
    name="unlike",
    about="8 GPUs a node, no two nodes alike",
    slices=lambda number: unlike.make(number).slices(),
    full=_whole_gpus,
    one=_WHOLE,
    whole_node=request(count=PER_NODE),
)
MIG: Final = Hardware(
    name="mig",
    about="8 H100 a node with 19 devices each; jobs have partitions",
    slices=lambda number: mig.make(number).slices(),
    full=_partitions,
    one=_request_of(mig.one(0)),
    whole_node=request(_GPU_OF_MIG, PER_NODE),
)
SHARES: Final = Hardware(
    name="shares",
    about="8 GPUs a node that jobs share in amounts of their own",
    slices=lambda number: shares.make(number).slices(),
    full=_shares,
    one=_request_of(shares.one(0)),
    whole_node=request(count=PER_NODE, amounts={"memory": f"{_SHARED_GIB}Gi", "cores": "1"}),
)
