"""Required affinity and anti-affinity of a pod to others."""

from dataclasses import replace
from typing import Any, Final

import pytest

from carina_dra.step_budget import UNLIMITED, OutOfStepsError, StepBudget
from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.decide.nodes.pod_affinity import PodRules
from controller.engine.model.group import PodSet
from controller.engine.model.label_selector import LabelSelector, with_labels
from controller.engine.model.pod import Evicting, Placed, Pod, PodAffinity, PodNeeds, PodSelection
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene, nominated, started

WEB: Final = {"app": "web"}


def _allowed(scene: Scene, *terms: PodAffinity, labels: dict[str, str]) -> list[str]:
    needs = PodNeeds(pod_affinity=terms)
    scene.group("g").pod("g", gpus=0, name="new", needs=needs, labels=labels)
    state = scene.state()
    return _nodes(state, state.occupancy.pods["t/new"])


def _nodes(state: State, pod: Pod) -> list[str]:
    budget = StepBudget(UNLIMITED)
    return sorted(
        PodRules(state.occupancy, LabelledNodes(state.occupancy)).allowed(
            pod, frozenset(state.occupancy.nodes), budget
        )
    )


def _zones() -> Scene:
    """Two nodes in zone 1, one in zone 2, one in none; a pod of the app web on a1."""
    scene = Scene().queue("q")
    for name, zone in (("a1", "1"), ("a2", "1"), ("b1", "2")):
        scene.node(name, labels={"zone": zone})
    scene.node("none").pod(None, "a1", gpus=0, name="web", labels={"app": "web"})
    return scene


def _term(
    key: str = "zone", labels: dict[str, str] | None = None, *, anti: bool = False, **fields: Any
) -> PodAffinity:
    fields = {"namespaces": ("t",), **fields}
    return PodAffinity(key, PodSelection(with_labels(labels or WEB), **fields), anti)


def test_without_terms_all_nodes_are_allowed() -> None:
    assert _allowed(_zones(), labels={}) == ["a1", "a2", "b1", "none"]


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
    host = _term("host", {"app": "db"}, anti=True)
    for name, node in list(scene.nodes.items()):
        scene.node(name, labels={**node.node.labels, "host": name})
    assert _allowed(scene, _term(), host, labels={}) == ["a1"]


@pytest.mark.parametrize("anti", [True, False])
def test_pods_of_other_namespaces_are_not_meant(anti: bool) -> None:
    scene = _zones()
    needs = PodNeeds(pod_affinity=(_term(anti=anti),))
    scene.pod(None, gpus=0, name="new", needs=needs)
    state = scene.state()
    stranger = replace(state.occupancy.pods["t/new"], key="other/new")
    stranger = replace(
        stranger, needs=PodNeeds(pod_affinity=(_term(anti=anti, namespaces=("other",)),))
    )
    assert len(_nodes(state, stranger)) == (4 if anti else 0)


def test_affinity_means_pods_that_match_all_of_its_terms() -> None:
    scene = _zones()
    scene.pod(None, "b1", gpus=0, name="both", labels={"app": "web", "tier": "front"})
    front = _term(labels={"tier": "front"})
    assert _allowed(scene, _term(), front, labels={}) == ["b1"]


def test_named_namespaces_are_meant() -> None:
    scene = _zones()
    scene.pods["web"] = replace(scene.pods["web"], key="other/web")
    anti = _term(anti=True, namespaces=("other", "third"))
    assert _allowed(scene, anti, labels={}) == ["b1", "none"]


def test_namespaces_are_meant_by_their_labels() -> None:
    scene = _zones()
    scene.namespaces = {"other": {"team": "a"}}
    scene.pods["web"] = replace(scene.pods["web"], key="other/web")
    of_team = _term(anti=True, namespaces=(), namespace_selector=with_labels({"team": "a"}))
    assert _allowed(scene, of_team, labels={}) == ["b1", "none"]


def test_an_empty_namespace_selector_means_all_namespaces() -> None:
    scene = _zones()
    scene.pods["web"] = replace(scene.pods["web"], key="other/web")
    everywhere = _term(anti=True, namespaces=(), namespace_selector=LabelSelector())
    assert _allowed(scene, everywhere, labels={}) == ["b1", "none"]


def test_no_selector_means_no_pod() -> None:
    nothing = PodAffinity("zone", PodSelection(None, ("t",)), anti=True)
    assert _allowed(_zones(), nothing, labels={}) == ["a1", "a2", "b1", "none"]


def test_pods_with_anti_affinity_keep_others_away() -> None:
    scene = _zones()
    guard = PodNeeds(pod_affinity=(_term(labels={"app": "new"}, anti=True),))
    scene.pod(None, "b1", gpus=0, name="guard", needs=guard)
    assert _allowed(scene, labels={"app": "new"}) == ["a1", "a2", "none"]


def test_pods_of_other_namespaces_keep_away_whom_they_mean() -> None:
    scene = _zones()
    term = _term(
        labels={"app": "new"}, anti=True, namespaces=(), namespace_selector=LabelSelector()
    )
    scene.pod(None, "b1", gpus=0, name="guard", needs=PodNeeds(pod_affinity=(term,)))
    scene.pods["guard"] = replace(scene.pods["guard"], key="other/guard")
    assert _allowed(scene, labels={"app": "new"}) == ["a1", "a2", "none"]


def test_a_gang_with_anti_affinity_is_spread() -> None:
    scene = Scene().queue("q")
    for name, zone in (("a1", "1"), ("a2", "1"), ("b1", "2")):
        scene.node(name, labels={"zone": zone})
    needs = PodNeeds(pod_affinity=(_term(labels={"app": "new"}, anti=True),))
    scene.group("g", root=PodSet("", 2))
    for _ in range(2):
        scene.pod("g", gpus=0, needs=needs, labels={"app": "new"})
    zones = {scene.nodes[node].node.labels["zone"] for node in started(scene.plan()).values()}
    assert zones == {"1", "2"}


def test_a_gang_that_anti_affinity_leaves_too_few_domains_waits() -> None:
    scene = Scene().queue("q").node("a1", labels={"zone": "1"}).node("a2", labels={"zone": "1"})
    needs = PodNeeds(pod_affinity=(_term(labels={"app": "new"}, anti=True),))
    scene.group("g", root=PodSet("", 2))
    for _ in range(2):
        scene.pod("g", gpus=0, needs=needs, labels={"app": "new"})
    assert started(scene.plan()) == {}


def test_a_place_that_a_leaving_pod_guards_is_free_when_it_is_gone() -> None:
    scene = Scene().queue("q").node("n", gpus=0, labels={"zone": "1"})
    needs = PodNeeds(pod_affinity=(_term(labels={"app": "new"}, anti=True),))
    scene.pod(None, gpus=0, name="old", needs=needs, state=Evicting("n"))
    scene.group("g").pod("g", gpus=0, name="new", labels={"app": "new"})
    plan = scene.plan()
    assert started(plan) == {}
    assert nominated(plan) == {"new": "n"}


def test_a_group_is_asked_again_when_a_pod_starts_to_which_it_must_be_close() -> None:
    scene = _zones()
    del scene.pods["web"]
    scene.waits("g", gpus=0, needs=PodNeeds(pod_affinity=(_term(),)))
    state = scene.state()
    engine = Engine(state)
    state.memory = engine.decide().memory
    assert state.memory.refusals
    state.put_pod(Pod("t/other", PodNeeds(), Placed("b1")))
    assert state.memory.refusals
    state.put_pod(Pod("t/web", PodNeeds(), Placed("b1"), labels=WEB))
    assert started(engine.decide()) == {"g-0": "b1"}


def test_what_terms_cost_is_spent() -> None:
    needs = PodNeeds(pod_affinity=tuple(_term(labels={"app": str(i)}) for i in range(32)))
    scene = _zones().group("g").pod("g", gpus=0, name="new", needs=needs)
    state = scene.state()
    with pytest.raises(OutOfStepsError):
        PodRules(state.occupancy, LabelledNodes(state.occupancy)).allowed(
            state.occupancy.pods["t/new"], frozenset(state.occupancy.nodes), StepBudget(5)
        )


def test_counts_follow_trials() -> None:
    scene = _zones()
    needs = PodNeeds(pod_affinity=(_term(anti=True),))
    scene.group("g").pod("g", gpus=0, name="new", needs=needs, labels=WEB)
    scene.group("h").pod("h", gpus=0, name="other", labels=WEB)
    state, budget = scene.state(), StepBudget(UNLIMITED)
    rules, names = (
        PodRules(state.occupancy, LabelledNodes(state.occupancy)),
        frozenset(state.occupancy.nodes),
    )
    before = rules.allowed(state.occupancy.pods["t/new"], names, budget)
    mark = state.occupancy.mark()
    state.occupancy.place("t/other", "b1", ())
    assert rules.allowed(state.occupancy.pods["t/new"], names, budget) == {"none"}
    state.occupancy.rollback(mark)
    assert rules.allowed(state.occupancy.pods["t/new"], names, budget) == before


def test_of_many_terms_the_first_32_count() -> None:
    terms = [_term(labels={"app": f"x{index}"}, anti=True) for index in range(16_000)]
    beyond = _term(anti=True)
    assert _allowed(_zones(), *terms[:31], beyond, labels={}) == ["b1", "none"]
    assert _allowed(_zones(), *terms, beyond, labels={}) == ["a1", "a2", "b1", "none"]


def test_terms_that_have_been_counted_cost_no_look_at_the_pods() -> None:
    terms = tuple(_term(labels={"app": f"x{index}"}, anti=True) for index in range(32))
    scene = _zones().group("g")
    scene.pod("g", gpus=0, name="new", needs=PodNeeds(pod_affinity=terms))
    for index in range(1_000):
        scene.pod(None, "a1", gpus=0, name=f"other-{index}")
    state = scene.state()
    rules, names, budget = (
        PodRules(state.occupancy, LabelledNodes(state.occupancy)),
        frozenset(state.occupancy.nodes),
        StepBudget(1_000_000),
    )
    rules.allowed(state.occupancy.pods["t/new"], names, budget)
    spent = budget.spent
    rules.allowed(state.occupancy.pods["t/new"], names, budget)
    assert spent > 1_000
    assert budget.spent - spent < 50


def test_an_attempt_costs_the_same_whatever_has_been_asked_before() -> None:
    scene = _zones().group("g")
    needs = PodNeeds(pod_affinity=(_term(anti=True), _term()))
    scene.pod("g", gpus=0, name="new", needs=needs)
    state = scene.state()
    rules, names = (
        PodRules(state.occupancy, LabelledNodes(state.occupancy)),
        frozenset(state.occupancy.nodes),
    )
    budgets = StepBudget(1_000_000), StepBudget(1_000_000)
    for budget in budgets:
        rules.allowed(state.occupancy.pods["t/new"], names, budget)
    assert budgets[0].spent > 0
    assert budgets[0].spent == budgets[1].spent
