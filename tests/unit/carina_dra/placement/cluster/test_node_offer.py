"""What a node offers: the devices of all its pools by what they could have in common."""

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.group import NUMA_NODE, PCIE_ROOT
from carina_dra.allocator.preference import Policy, closeness
from carina_dra.placement.cluster import node_offer
from tests.samples.fleet import cluster, gpu, network
from tests.samples.random_questions import questions


def test_places_of_several_pools_are_put_together() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    nodes.put_slice(network("more", gpu("m0", numa=1), nodeName="a"))
    places = nodes.offer("a").places(NUMA_NODE)
    assert sorted(places.by_value.values()) == [0b001, 0b110]


def test_devices_are_together_that_have_a_value_of_each_attribute_in_common() -> None:
    devices = [
        gpu("g0", numa=0, root="r0"),
        gpu("g1", numa=0, root="r0"),
        gpu("g2", numa=0, root="r1"),
        gpu("g3", numa=1),
    ]
    offer = cluster(a=devices).offer("a")
    assert set(offer.together((NUMA_NODE,)) or ()) == {0b0111, 0b1000}
    # The last device could be on any root.
    assert set(offer.together((NUMA_NODE, PCIE_ROOT)) or ()) == {0b0011, 0b0100, 0b1000}


def test_all_devices_are_together_by_an_attribute_that_none_has() -> None:
    offer = cluster(a=[gpu("g0"), gpu("g1")]).offer("a")
    assert offer.together((NUMA_NODE,)) == (-1 & 0b11,)


def test_combinations_of_many_values_are_not_looked_at() -> None:
    devices = [gpu(f"g{n}", numa=n, root=f"r{n}") for n in range(17)]
    offer = cluster(a=devices).offer("a")
    assert offer.together((NUMA_NODE, PCIE_ROOT)) is None
    fewer = cluster(a=devices[:16]).offer("a").together((NUMA_NODE, PCIE_ROOT))
    assert fewer is not None
    assert {1 << n for n in range(16)} <= {*fewer}


def test_all_values_of_one_attribute_are_looked_at() -> None:
    devices = [gpu(f"g{n}", root=f"r{n}") for n in range(300)]
    offer = cluster(a=devices).offer("a")
    assert len(offer.together((PCIE_ROOT,)) or ()) == 300
    # The same attribute twice says no more.
    assert offer.together((PCIE_ROOT, PCIE_ROOT)) == offer.together((PCIE_ROOT,))


def test_devices_are_remembered_for_few_sets_of_attributes() -> None:
    offer = cluster(a=[gpu("g0", numa=0)]).offer("a")
    for number in range(100):
        assert offer.together((NUMA_NODE, f"gpu.carina.dev/unknown-{number}")) == (0b1,)
    assert len(offer._together) <= node_offer._REMEMBERED


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_devices_could_share_what_they_are_found_to_share(seed: int) -> None:
    for question in questions(seed, Policy()):
        devices = [device for pool in question.offer.ready for device in pool.devices]
        first: dict[tuple[str, ...], int] = {}
        for distance, names in closeness(devices):
            first.setdefault(names, distance)
        assert question.offer.closeness == [(at, names) for names, at in first.items()]
