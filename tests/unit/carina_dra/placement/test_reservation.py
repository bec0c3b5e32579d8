"""Reserved devices remain for the claims of the reservation until these have got them."""

from typing import Any

from carina_dra.allocator.node import Node
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.reservation import Reservation
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult, ResourceClaim
from tests.samples.fleet import DRIVER, claim, give, slices

_SHARED = {"name": "g0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "20"}}}


def _partition(name: str, memory: int) -> dict[str, Any]:
    drawn = {"counterSet": "gpu-0", "counters": {"memory": {"value": str(memory)}}}
    return {"name": name, "consumesCounters": [drawn]}


_PARTITIONED = (
    {"sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "4"}}}]},
    {
        "devices": [
            _partition("quarter-0", 1),
            _partition("quarter-1", 1),
            _partition("quarter-2", 1),
            _partition("half-0", 2),
            _partition("whole", 4),
        ]
    },
)


def _node(*specs: dict[str, Any]) -> Cluster:
    made = Cluster()
    made.put_node(Node("a"))
    for published in slices("a", *specs):
        made.put_slice(published)
    return made


def _device(name: str) -> DeviceResult:
    return DeviceResult(request="gpus", driver=DRIVER, pool="a", device=name)


def _share(number: int, memory: str) -> DeviceResult:
    return DeviceResult(
        request="gpus",
        driver=DRIVER,
        pool="a",
        device="g0",
        share_id=str(number),
        consumed_capacity={"memory": Quantity.parse(memory)},
    )


def _use(cluster: Cluster, by: ResourceClaim, *devices: str) -> None:
    results = tuple(map(_device, devices))
    cluster.allocate(by.key, Allocation(DeviceAllocation(results)))


def _reserve(cluster: Cluster, *devices: DeviceResult, claims: list[ResourceClaim]) -> None:
    keys = frozenset(each.key for each in claims)
    cluster.reserve("gang", Reservation(devices, keys))


def test_partition_remains_reserved_when_another_of_the_gpu_is_used() -> None:
    cluster, gang = _node(*_PARTITIONED), [claim(), claim()]
    _reserve(cluster, _device("quarter-0"), _device("quarter-1"), claims=gang)
    _use(cluster, gang[0], "quarter-0")
    assert give(cluster, claim(selector='device.driver != ""')) == ["a/quarter-2"]
    assert give(cluster, gang[1]) == ["a/quarter-1"]


def test_each_device_that_is_used_instead_ends_the_reservation_of_as_much() -> None:
    cluster, gang = _node(*_PARTITIONED), [claim(), claim()]
    _reserve(cluster, _device("quarter-0"), _device("half-0"), claims=gang)
    _use(cluster, gang[0], "quarter-2")
    assert give(cluster, claim()) == ["a/quarter-0"]
    assert give(cluster, claim()) == []
    assert give(cluster, gang[1]) == ["a/quarter-1"]


def test_whole_device_that_is_used_instead_ends_the_reservation_of_its_partitions() -> None:
    cluster, gang = _node(*_PARTITIONED), [claim(), claim()]
    _reserve(cluster, _device("quarter-0"), _device("quarter-1"), claims=gang)
    _use(cluster, gang[0], "whole")
    cluster.release(gang[0].key)
    _use(cluster, gang[0], "half-0")
    assert give(cluster, claim()) == ["a/quarter-0"]


def test_share_remains_reserved_when_another_of_the_device_is_used() -> None:
    ten: dict[str, Any] = {"capacity": {"requests": {"memory": "10"}}}
    cluster, gang = _node({"devices": [_SHARED]}), [claim(**ten), claim(**ten)]
    _reserve(cluster, _share(0, "10"), _share(1, "10"), claims=gang)
    assert give(cluster, gang[0]) == ["a/g0"]
    assert give(cluster, claim(**ten)) == []
    assert give(cluster, gang[1]) == ["a/g0"]


def test_what_is_held_does_not_depend_on_when_slices_come() -> None:
    late, gang = Cluster(), [claim()]
    late.put_node(Node("a"))
    _reserve(late, _device("whole"), claims=gang)
    _use(late, gang[0], "quarter-0")
    for published in slices("a", *_PARTITIONED):
        late.put_slice(published)
    assert give(late, claim()) == ["a/quarter-1"]


def test_trial_that_removes_slices_and_releases_changes_nothing() -> None:
    cluster, gang = _node(*_PARTITIONED), [claim()]
    _reserve(cluster, _device("whole"), claims=gang)
    _use(cluster, gang[0], "quarter-0")
    with cluster.trial():
        cluster.remove_slice("a-0")
        cluster.remove_slice("a-1")
        cluster.release(gang[0].key)
    assert give(cluster, claim()) == ["a/quarter-1"]


def test_pod_without_claims_has_no_reservation() -> None:
    assert Cluster().reserved_for([]) == frozenset()
