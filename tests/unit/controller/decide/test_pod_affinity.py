"""Required affinity and anti-affinity of a pod to others."""

from dataclasses import replace
from typing import Any

import pytest

from controller.decide.pod_affinity import allowed_by_pods
from controller.model.pod import PodAffinity, PodNeeds
from tests.unit.controller.scene import Scene

WEB = (("app", "web"),)


def _allowed(scene: Scene, *terms: PodAffinity, labels: dict[str, str]) -> list[str] | None:
    needs = PodNeeds(pod_affinity=terms)
    scene.group("g").pod("g", gpus=0, name="new", needs=needs, labels=labels)
    state = scene.state()
    found = allowed_by_pods(state, state.pods["t/new"], frozenset(state.nodes))
    return None if found is None else sorted(found)


def _zones() -> Scene:
    """Two nodes in zone 1, one in zone 2, one in none; a pod of the app web on a1."""
    scene = Scene().queue("q")
    for name, zone in (("a1", "1"), ("a2", "1"), ("b1", "2")):
        scene.node(name, labels={"zone": zone})
    scene.node("none").pod(None, "a1", gpus=0, name="web", labels={"app": "web"})
    return scene


def _term(*, anti: bool = False, **fields: Any) -> PodAffinity:
    return PodAffinity("zone", WEB, anti, **fields)


def test_without_terms_all_nodes_are_allowed() -> None:
    assert _allowed(_zones(), labels={}) is None


def test_affinity_allows_the_domain_of_the_pods_that_are_meant() -> None:
    assert _allowed(_zones(), _term(), labels={}) == ["a1", "a2"]


def test_anti_affinity_allows_the_nodes_of_other_domains_and_of_none() -> None:
    assert _allowed(_zones(), _term(anti=True), labels={}) == ["b1", "none"]


def test_pods_with_other_labels_are_not_meant() -> None:
    scene = _zones()
    scene.pod(None, "b1", gpus=0, name="db", labels={"app": "db"})
    assert _allowed(scene, _term(), labels={}) == ["a1", "a2"]


def test_a_pod_on_a_node_without_the_label_is_in_no_domain() -> None:
    scene = _zones()
    scene.pod(None, "none", gpus=0, name="web2", labels={"app": "web"})
    assert _allowed(scene, _term(), labels={}) == ["a1", "a2"]


def test_the_first_of_pods_that_must_be_close_goes_where_there_is_a_domain() -> None:
    scene = _zones()
    del scene.pods["web"]
    assert _allowed(scene, _term(), labels={"app": "web"}) == ["a1", "a2", "b1"]


def test_who_must_be_close_to_others_of_which_there_are_none_goes_nowhere() -> None:
    scene = _zones()
    del scene.pods["web"]
    assert _allowed(scene, _term(), labels={"app": "db"}) == []


def test_a_pod_does_not_keep_itself_away() -> None:
    scene = _zones()
    del scene.pods["web"]
    names = _allowed(scene, _term(anti=True), labels={"app": "web"})
    assert names == ["a1", "a2", "b1", "none"]


def test_the_second_of_pods_that_must_be_close_goes_to_the_first() -> None:
    assert _allowed(_zones(), _term(), labels={"app": "web"}) == ["a1", "a2"]


def test_every_term_has_to_hold() -> None:
    scene = _zones()
    scene.pod(None, "a2", gpus=0, name="db", labels={"app": "db"})
    host = PodAffinity("host", (("app", "db"),), anti=True)
    for name, node in list(scene.nodes.items()):
        scene.node(name, labels={**node.node.labels, "host": name})
    assert _allowed(scene, _term(), host, labels={}) == ["a1"]


@pytest.mark.parametrize("anti", [True, False])
def test_pods_of_other_namespaces_are_not_meant(anti: bool) -> None:
    scene = _zones()
    needs = PodNeeds(pod_affinity=(_term(anti=anti),))
    scene.pod(None, gpus=0, name="new", needs=needs)
    state = scene.state()
    stranger = replace(state.pods["t/new"], key="other/new")
    found = allowed_by_pods(state, stranger, frozenset(state.nodes))
    assert found is not None
    assert len(found) == (4 if anti else 0)
