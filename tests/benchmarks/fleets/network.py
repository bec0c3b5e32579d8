"""Devices beside the nodes': a pool that all nodes reach, and a pool for each rack."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Final

from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult, ResourceSlice, decode
from tests.benchmarks.claims import pod, request
from tests.benchmarks.fleet import Event, Fleet, Object, Pod, Scenario
from tests.benchmarks.fleets import unlike
from tests.benchmarks.gpus import PER_NODE, gpus
from tests.benchmarks.pool import holder, node, node_name, pool_slices, slices_of

_DRIVER: Final = "network.example.com"
_CLAIM: Final = "default/network"
_PER_RACK: Final = 20
_SEED: Final = 6
_IN_USE: Final = 0.5
_SHARED_POOL: Final = "everywhere"
_RACK_LABEL: Final = "example.com/rack"


def beside_unlike_nodes(number: int) -> Fleet:
    """The fleet of unlike nodes, and 100 devices that every node reaches."""
    fleet = unlike.make(number)

    def slices() -> Iterator[Object]:
        yield from fleet.slices()
        yield from pool_slices(_SHARED_POOL, _DRIVER, {"allNodes": True}, _devices(100))

    return replace(fleet, slices=slices)


def racks(number: int) -> Fleet:
    """Racks of 20 nodes, each with 20 devices that the rack's nodes reach."""

    def slices() -> Iterator[Object]:
        for index in range(number):
            yield from slices_of(index, gpus(index))
        for rack in range(-(-number // _PER_RACK)):
            yield _rack_slice(rack)

    def in_use() -> Iterator[Object]:
        random = Random(_SEED)
        for index in range(number):
            for minor in range(PER_NODE):
                if random.random() < _IN_USE:
                    yield holder(node_name(index), f"gpu-{minor}")

    nodes = (node(index, **{_RACK_LABEL: _rack(index // _PER_RACK)}) for index in range(number))
    return Fleet(tuple(nodes), slices, in_use)


def _devices(number: int, *, firmware: int = 0) -> list[Object]:
    attributes = {"firmware": {"int": firmware}}
    return [{"name": f"port-{index}", "attributes": attributes} for index in range(number)]


def _rack(number: int) -> str:
    return f"rack-{number}"


def _rack_slice(rack: int, firmware: int = 0) -> Object:
    in_rack = {"key": _RACK_LABEL, "operator": "In", "values": [_rack(rack)]}
    reaches = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [in_rack]}]}}
    devices = _devices(_PER_RACK, firmware=firmware)
    (only,) = pool_slices(_rack(rack), _DRIVER, reaches, devices)
    return only


def _with_network(_: int) -> Pod:
    """A GPU and a device of the network."""
    return pod(request(), request(name="port", device_class="network"))


def _give_out(pool: str) -> Callable[[Cluster, int], None]:
    def change(cluster: Cluster, repetition: int) -> None:
        device = f"port-{repetition}"
        result = DeviceResult("port", _DRIVER, pool, device)
        cluster.allocate(_CLAIM, Allocation(DeviceAllocation((result,))))

    return change


def _take_back(cluster: Cluster, _: int) -> None:
    cluster.release(_CLAIM)


def _update_rack(cluster: Cluster, repetition: int) -> None:
    cluster.put_slice(decode(ResourceSlice, _rack_slice(0, firmware=1 + repetition)))


ALL_NODES: Final = Scenario(
    name="network",
    about="the unlike fleet of {nodes} nodes, beside one pool of 100 devices for all nodes",
    nodes=5000,
    make=beside_unlike_nodes,
    one=unlike.one,
    events=(
        Event(
            "1 device of the pool given out, then 2 GPUs",
            _give_out(_SHARED_POOL),
            unlike.like_pair,
            5,
            _take_back,
        ),
        Event(
            "1 device of the pool given out, then a GPU and a device of it",
            _give_out(_SHARED_POOL),
            _with_network,
            5,
            _take_back,
        ),
    ),
)
RACKS: Final = Scenario(
    name="racks",
    about="{nodes} nodes of 8 GPUs in racks of 20, each rack with a pool by nodeSelector",
    nodes=2000,
    make=racks,
    one=unlike.one,
    events=(
        Event("1 slice of a rack updated, then 2 GPUs", _update_rack, unlike.like_pair, 20),
        Event(
            "1 slice of a rack updated, then a GPU and a device of a rack",
            _update_rack,
            _with_network,
            20,
        ),
        Event(
            "1 device of a rack given out, then 2 GPUs",
            _give_out(_rack(0)),
            unlike.like_pair,
            5,
            _take_back,
        ),
        Event(
            "1 device of a rack given out, then a GPU and a device of a rack",
            _give_out(_rack(0)),
            _with_network,
            5,
            _take_back,
        ),
    ),
)
