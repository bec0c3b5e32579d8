"""How close devices of a node could be: never farther than devices that there are."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.group import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import CLOSENESS, FAR, Policy, closeness, have_in_common
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.distance import least_distance, places_of
from carina_dra.placement.offer import PoolState
from carina_dra.placement.packing import Packing, Want
from tests.samples.fleet import cluster, gpu, network
from tests.samples.random_questions import questions


def _states(of: Cluster) -> list[PoolState]:
    return [of.pool_state(pool) for pool in of.offer("a").ready]


def _least(of: Cluster, count: int) -> int:
    """The least distance of so many devices of the node `a`."""
    states = _states(of)
    every = (1 << sum(len(state.offered.devices) for state in states)) - 1
    return least_distance([Want(every, count)], Packing([every], states), states)


def _tried(devices: Sequence[Candidate], count: int, *, lists: bool) -> int:
    """The least distance of so many of the devices, found by trying all."""
    return min(
        (
            distance
            for distance, attributes in closeness(devices)
            for chosen in combinations(devices, count)
            if all(have_in_common(chosen, name, lists=lists) for name in attributes)
        ),
        default=FAR,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 3))
def test_no_devices_are_closer_than_the_least_distance(seed: int, count: int) -> None:
    for question in questions(seed, Policy()):
        states, lists = question.states, question.cluster.features.list_attributes
        devices = [device for state in states for device in state.offered.devices]
        every = (1 << len(devices)) - 1
        wants = [Want(every, count, draws=False)]
        assert least_distance(wants, Packing([every], states), states) <= _tried(
            devices, count, lists=lists
        )


def test_devices_are_as_close_as_their_places_say() -> None:
    devices = [
        gpu("g0", numa=0, root="r0", nvlink="n"),
        gpu("g1", numa=0, root="r0", nvlink="n"),
        gpu("g2", numa=0, root="r1", nvlink="n"),
        gpu("g3", numa=1, root="r2", nvlink="n"),
    ]
    nodes = cluster(a=devices)
    by_count = [CLOSENESS[_least(nodes, count)] for count in (2, 3, 4)]
    assert by_count == [(NVLINK_DOMAIN, PCIE_ROOT), (NVLINK_DOMAIN, NUMA_NODE), (NVLINK_DOMAIN,)]
    assert _least(nodes, 5) == FAR


def test_device_without_a_place_is_close_to_all() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2")])
    assert CLOSENESS[_least(nodes, 2)] == (NVLINK_DOMAIN, NUMA_NODE)
    assert _least(nodes, 3) == FAR


def test_attribute_that_no_device_has_says_nothing() -> None:
    assert _least(cluster(a=[gpu("g0"), gpu("g1")]), 2) == FAR


def test_requests_must_all_have_their_devices_in_one_place() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=0), gpu("g2", numa=1)])
    states = _states(nodes)
    near = CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))

    def least(*masks: int) -> int:
        packing = Packing([0b111], states)
        return least_distance([Want(mask, 1) for mask in masks], packing, states)

    assert least(0b001, 0b010) == near
    assert least(0b001, 0b100) == FAR
    assert least(0b011, 0b001) == near
    assert least(0b001, 0b001) == FAR


def test_places_of_several_pools_are_put_together() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    nodes.put_slice(network("more", gpu("m0", numa=1), nodeName="a"))
    places = places_of(NUMA_NODE, _states(nodes))
    assert sorted(places.by_value.values()) == [0b001, 0b110]
    assert _least(nodes, 2) == CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))


def test_many_combinations_of_places_are_taken_to_fit() -> None:
    devices = [gpu(f"g{n}", nvlink=f"n{n % 17}", root=f"r{n // 17}") for n in range(17 * 17)]
    assert _least(cluster(a=devices), 2) == 0
