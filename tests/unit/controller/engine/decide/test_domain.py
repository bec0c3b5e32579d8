"""The domains of a topology."""

import pytest

from controller.engine.decide.nodes.domain import Domains
from controller.engine.model.group import TopologyConstraint
from tests.unit.controller.engine.scene import Scene


def _scene() -> Scene:
    """Two zones with a rack r1 each; a node in no rack, and one in no zone."""
    scene = Scene()
    scene.topologies = {"t": ("zone", "rack", "host")}
    for name, zone, rack in (("a1", "a", "r1"), ("a2", "a", "r1"), ("a3", "a", "r2")):
        scene.node(name, labels={"zone": zone, "rack": rack, "host": name})
    scene.node("b1", labels={"zone": "b", "rack": "r1", "host": "b1"})
    return scene.node("bare", labels={"zone": "b"}).node("lost", labels={"rack": "r1"})


def test_racks_of_one_name_in_two_zones_are_two_domains() -> None:
    assert Domains(_scene().state()).of("t", "rack") == {
        ("a", "r1"): {"a1", "a2"},
        ("a", "r2"): {"a3"},
        ("b", "r1"): {"b1"},
    }


def test_wide_levels_have_the_nodes_that_lack_narrow_labels() -> None:
    assert Domains(_scene().state()).of("t", "zone") == {
        ("a",): {"a1", "a2", "a3"},
        ("b",): {"b1", "bare"},
    }


def test_a_level_that_is_not_in_the_topology_is_a_label_by_itself() -> None:
    found = Domains(_scene().state()).of("gone", "rack")
    assert found == {("r1",): {"a1", "a2", "b1", "lost"}, ("r2",): {"a3"}}


def test_nodes_that_change_change_the_domains() -> None:
    scene = _scene()
    state = scene.state()
    domains = Domains(state)
    assert ("b",) in domains.of("t", "zone")
    state.remove_node("b1")
    state.remove_node("bare")
    assert domains.of("t", "zone") == {("a",): {"a1", "a2", "a3"}}


@pytest.mark.parametrize(
    ("required", "preferred", "levels"),
    [
        ("zone", None, ["zone"]),
        ("zone", "rack", ["rack", "zone"]),
        ("zone", "host", ["host", "rack", "zone"]),
        ("rack", "rack", ["rack"]),
        (None, "rack", ["rack", "zone", None]),
        (None, None, [None]),
        ("other", None, ["other"]),
        ("other", "elsewhere", ["other"]),
        (None, "elsewhere", [None]),
    ],
)
def test_levels_are_tried_from_the_preferred_one_to_the_required_one(
    required: str | None, preferred: str | None, levels: list[str | None]
) -> None:
    constraint = TopologyConstraint("t", required, preferred)
    assert list(Domains(_scene().state()).levels(constraint)) == levels


def test_nodes_hold_the_domains_that_they_are_in() -> None:
    domains = Domains(_scene().state())
    assert domains.holding("t", "rack", ["a1", "a2", "a3"]) == {("a", "r1"), ("a", "r2")}
    assert domains.holding("t", "rack", ["a1", "bare"]) == {("a", "r1"), None}
