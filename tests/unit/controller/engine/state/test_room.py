"""What is left of a node for pods, besides devices."""

from typing import Any

import pytest

from carina_dra.allocator.node import Node
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import PodNeeds
from controller.engine.state.room import NodeCapacity, Room


def _node(**fields: Any) -> ClusterNode:
    fields = {"cpu": 1_000, "memory": 100, "pods": 3, "extended": {"x/a": 2}, **fields}
    return ClusterNode(Node("n"), **fields)


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        (PodNeeds(), None),
        (PodNeeds(cpu=1_000), None),
        (PodNeeds(cpu=1_001), "cpu"),
        (PodNeeds(memory=100), None),
        (PodNeeds(memory=101), "memory"),
        (PodNeeds(extended=(("x/a", 2),)), None),
        (PodNeeds(extended=(("x/a", 3),)), "x/a"),
        (PodNeeds(extended=(("x/a", 1), ("x/b", 1))), "x/b"),
        (PodNeeds(cpu=1_001, memory=101), "cpu"),
    ],
)
def test_what_a_pod_lacks_on_an_empty_node(needs: PodNeeds, lacks: str | None) -> None:
    assert Room(_node()).lacks(needs) == lacks


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        (PodNeeds(cpu=400), None),
        (PodNeeds(cpu=401), "cpu"),
        (PodNeeds(memory=41), "memory"),
        (PodNeeds(extended=(("x/a", 1),)), None),
        (PodNeeds(extended=(("x/a", 2),)), "x/a"),
    ],
)
def test_what_others_have_is_taken(needs: PodNeeds, lacks: str | None) -> None:
    room = Room(_node())
    room.take(PodNeeds(cpu=600, memory=60, extended=(("x/a", 1),)))
    assert room.lacks(needs) == lacks


def test_a_node_takes_as_many_pods_as_it_says() -> None:
    room = Room(_node(pods=2))
    room.take(PodNeeds())
    assert room.lacks(PodNeeds()) is None
    room.take(PodNeeds())
    assert room.lacks(PodNeeds()) == "pods"


@pytest.mark.parametrize(
    ("taken", "more", "what"),
    [
        (PodNeeds(cpu=2_000), PodNeeds(cpu=1), "cpu"),
        (PodNeeds(memory=2_000), PodNeeds(memory=1), "memory"),
    ],
)
def test_who_needs_nothing_of_it_has_room_where_others_have_too_much(
    taken: PodNeeds, more: PodNeeds, what: str
) -> None:
    room = Room(_node())
    room.take(taken)
    assert room.lacks(PodNeeds()) is None
    assert room.lacks(more) == what


@pytest.mark.parametrize(
    ("taken", "wanted", "lacks"),
    [
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), "host ports"),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 81), None),
        (("TCP", "10.0.0.1", 80), ("UDP", "10.0.0.1", 80), None),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), None),
        (("TCP", "10.0.0.1", 80), ("TCP", "0.0.0.0", 80), "host ports"),
        (("TCP", "0.0.0.0", 80), ("TCP", "10.0.0.2", 80), "host ports"),
        (("TCP", "", 80), ("TCP", "10.0.0.2", 80), "host ports"),
        (("TCP", "::", 80), ("TCP", "10.0.0.2", 80), "host ports"),
    ],
)
def test_host_ports_collide_on_one_address_or_on_all(
    taken: tuple[str, str, int], wanted: tuple[str, str, int], lacks: str | None
) -> None:
    room = Room(_node())
    room.take(PodNeeds(host_ports=(taken,)))
    assert room.lacks(PodNeeds(host_ports=(wanted,))) == lacks


def test_what_is_given_back_can_be_had_again() -> None:
    everything = PodNeeds(
        cpu=1_000, memory=100, extended=(("x/a", 2),), host_ports=(("TCP", "", 80),)
    )
    room = Room(_node(pods=1))
    room.take(everything)
    room.give_back(everything)
    assert room.lacks(everything) is None
    room.take(everything)
    assert (room.cpu, room.memory, room.pods, room.extended) == (0, 0, 0, {"x/a": 0})


def test_a_resource_that_the_node_no_longer_offers_can_be_given_back() -> None:
    needs = PodNeeds(extended=(("x/b", 1),))
    room = Room(_node())
    room.take(needs)
    room.give_back(needs)
    assert room.extended["x/b"] == 0


def test_the_capacity_of_the_cluster_is_that_of_the_nodes_that_take_pods() -> None:
    capacity = NodeCapacity()
    capacity.add(_node())
    capacity.add(_node(cpu=5, unschedulable=True))
    assert (capacity.cpu, capacity.memory, capacity.pods) == (1_000, 100, 3)
    capacity.remove(_node())
    capacity.remove(_node(cpu=5, unschedulable=True))
    assert (capacity.cpu, capacity.memory, capacity.pods) == (0, 0, 0)
