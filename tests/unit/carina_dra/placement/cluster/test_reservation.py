"""Reserved devices remain for the claims of the reservation until these have got them."""

from dataclasses import replace
from typing import Any

from carina_dra.allocator.node import Node
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.reservation import Reservation, held
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


# What a reservation holds.


def _held(*reserved: DeviceResult, used: list[DeviceResult]) -> list[tuple[str, str | None]]:
    """What is held, by device and share; quarters consume 1 of a counter, halves 2."""
    sizes = {"quarter": 1, "half": 2, "whole": 4}

    def consumed(device: DeviceId) -> dict[tuple[str, str], int]:
        size = sizes.get(device.device.partition("-")[0])
        return {} if size is None else {("gpu-0", "memory"): size}

    still = held(Reservation(reserved, frozenset()), used, consumed)
    return [(one.device, one.share_id) for one in still]


def test_all_devices_that_are_used_instead_are_paid_for() -> None:
    reserved = [_device("quarter-0"), _device("quarter-1"), _device("quarter-2")]
    used = [_device("quarter-3"), _device("quarter-4")]
    assert _held(*reserved, used=used) == [("quarter-2", None)]


def test_device_is_given_up_with_all_its_shares() -> None:
    shares = [replace(_share(number, "1"), device="half-0") for number in range(2)]
    assert _held(*shares, _device("quarter-0"), used=[_device("half-1")]) == [("quarter-0", None)]


def test_devices_of_other_counters_are_not_given_up() -> None:
    elsewhere = replace(_device("half-0"), pool="b")
    assert _held(elsewhere, used=[_device("half-1")]) == [("half-0", None)]


def test_admin_access_to_another_device_ends_nothing() -> None:
    used = [replace(_device("quarter-1"), admin_access=True)]
    assert _held(_device("quarter-0"), used=used) == [("quarter-0", None)]


def test_amounts_of_all_claims_are_taken_off_the_shares() -> None:
    used = [_share(7, "3"), _share(8, "3")]
    (left,) = held(Reservation((_share(0, "4"), _share(1, "4")), frozenset()), used, lambda _: {})
    assert (left.share_id, left.consumed_capacity) == ("1", {"memory": Quantity.parse("2")})


def test_shares_without_amounts_are_given_up_one_by_one() -> None:
    reserved = [_share(number, "0") for number in range(3)]
    assert _held(*reserved, used=[_share(7, "0"), _share(8, "0")]) == [("g0", "2")]


def test_whole_device_of_a_claim_ends_all_reserved_shares_of_it() -> None:
    reserved = [_share(0, "4"), _share(1, "4")]
    assert _held(*reserved, used=[_share(7, "1"), _device("g0")]) == []


def test_share_of_a_claim_ends_the_reservation_of_the_whole_device() -> None:
    assert _held(_device("g0"), used=[_share(7, "1")]) == []
