"""Topology spread constraints that must hold; also in random clusters, by the rules one by one."""

from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from carina_dra.allocator.node import Node
from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from carina_dra.step_budget import UNLIMITED, OutOfStepsError, StepBudget
from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.decide.nodes.node_fit import is_selected, is_tolerated
from controller.engine.decide.nodes.spread import SpreadRules
from controller.engine.model.group import PodSet
from controller.engine.model.label_selector import LabelSelector, with_labels
from controller.engine.model.node import ClusterNode, Taint
from controller.engine.model.pod import (
    Evicting,
    Pending,
    Placed,
    Pod,
    PodNeeds,
    PodSelection,
    PodTolerationOperator,
    SpreadConstraint,
    Toleration,
)
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene, started

_WEB: Final = {"app": "web"}


def _spread(key: str = "zone", skew: int = 1, **fields: Any) -> SpreadConstraint:
    selector = fields.pop("selector", with_labels(_WEB))
    return SpreadConstraint(key, skew, PodSelection(selector, ("t",)), **fields)


def _zones(*sizes: int) -> Scene:
    """Zones with so many pods of the app web, each with one node."""
    scene = Scene().queue("q")
    for zone, size in enumerate(sizes):
        scene.node(f"n{zone}", labels={"zone": str(zone)})
        for index in range(size):
            scene.pod(None, f"n{zone}", gpus=0, name=f"web-{zone}-{index}", labels=_WEB)
    return scene


def _allowed(scene: Scene, *constraints: SpreadConstraint, labels: Any = None) -> list[str]:
    needs = PodNeeds(spread=constraints)
    own = _WEB if labels is None else labels
    scene.group("g").pod("g", gpus=0, name="new", needs=needs, labels=own)
    state = scene.state()
    rules = SpreadRules(state.occupancy, LabelledNodes(state.occupancy))
    names = frozenset(state.occupancy.nodes)
    return sorted(rules.allowed(state.occupancy.pods["t/new"], names, StepBudget(UNLIMITED)))


def test_a_pod_goes_where_fewest_are() -> None:
    assert _allowed(_zones(1, 0, 1), _spread()) == ["n1"]


def test_a_skew_is_allowed() -> None:
    assert _allowed(_zones(1, 0, 2), _spread(skew=2)) == ["n0", "n1"]


def test_a_pod_that_does_not_count_itself_may_go_to_the_fullest() -> None:
    assert _allowed(_zones(1, 0, 2), _spread(), labels={}) == ["n0", "n1"]


def test_nodes_that_come_and_go_count_as_they_are() -> None:
    scene = _zones(1, 1).group("g")
    scene.pod("g", gpus=0, name="new", needs=PodNeeds(spread=(_spread(),)), labels=_WEB)
    state = scene.state()
    rules, found = SpreadRules(state.occupancy, LabelledNodes(state.occupancy)), []
    node = replace(state.occupancy.nodes["n1"], node=Node("n2", {"zone": "2"}))
    for comes in (None, True, False):
        if comes:
            state.put_node(node)
        elif comes is not None:
            state.remove_node("n2")
        names = frozenset(state.occupancy.nodes)
        found.append(rules.allowed(state.occupancy.pods["t/new"], names, StepBudget(UNLIMITED)))
    assert found == [{"n0", "n1"}, {"n2"}, {"n0", "n1"}]


def test_nodes_without_the_key_are_not_allowed() -> None:
    assert _allowed(_zones(1, 1).node("none"), _spread()) == ["n0", "n1"]


def test_an_empty_selector_counts_no_pod() -> None:
    assert _allowed(_zones(5, 0), _spread(selector=LabelSelector())) == ["n0", "n1"]


def test_too_few_domains_count_as_an_empty_one() -> None:
    assert _allowed(_zones(1, 1), _spread(min_domains=3)) == []
    assert _allowed(_zones(1, 1), _spread(min_domains=3, skew=2)) == ["n0", "n1"]


def test_the_node_of_a_pinned_pod_has_no_more_than_the_skew_where_domains_are_a_minimum() -> None:
    assert _allowed(_zones(1, 1), _spread(min_domains=2)) == []
    assert _allowed(_zones(1, 1), _spread(min_domains=2, honors_affinity=False)) == ["n0", "n1"]


def test_nodes_that_the_pod_cannot_have_do_not_count() -> None:
    tainted = (Taint("full"),)
    scene = _zones(1, 1).node("n2", labels={"zone": "2"}, taints=tainted)
    assert _allowed(scene, _spread()) == ["n2"]
    scene = _zones(1, 1).node("n2", labels={"zone": "2"}, taints=tainted)
    assert _allowed(scene, _spread(honors_taints=True)) == ["n0", "n1", "n2"]


def test_pods_that_are_being_evicted_do_not_count() -> None:
    scene = _zones(0, 0)
    scene.pod(None, gpus=0, name="old", labels=_WEB, state=Evicting("n0"))
    assert _allowed(scene, _spread()) == ["n0", "n1"]


def test_a_gang_is_spread() -> None:
    scene = _zones(0, 0, 0)
    scene.group("g", root=PodSet("", 6))
    for _ in range(6):
        scene.pod("g", gpus=0, needs=PodNeeds(spread=(_spread(),)), labels=_WEB)
    assert sorted(started(scene.plan()).values()) == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_the_reason_names_the_constraint() -> None:
    scene = _zones(1, 1)
    needs = PodNeeds(spread=(_spread(min_domains=3),))
    scene.group("g").pod("g", gpus=0, needs=needs, labels=_WEB)
    [reasons] = scene.plan().waiting.values()
    assert "topology spread on 2" in str(reasons[0])


def test_a_group_is_asked_again_when_the_pods_are_spread_more_evenly() -> None:
    scene = (
        Scene().queue("q").node("n0", labels={"zone": "0"}).node("n1", labels={"zone": "1"}, cpu=1)
    )
    scene.pod(None, "n0", gpus=0, name="web", labels=_WEB)
    scene.group("g").pod("g", gpus=0, needs=PodNeeds(cpu=2, spread=(_spread(),)), labels=_WEB)
    state = scene.state()
    engine = Engine(state)
    state.memory = engine.decide().memory
    assert state.memory.refusals
    state.put_pod(Pod("t/other", PodNeeds(), Placed("n1"), labels=_WEB))
    assert started(engine.decide()) == {"g-0": "n0"}


def test_what_constraints_cost_is_spent() -> None:
    needs = PodNeeds(spread=tuple(_spread(skew=index) for index in range(1, 32)))
    state = _zones(1, 1).group("g").pod("g", gpus=0, name="new", needs=needs).state()
    rules = SpreadRules(state.occupancy, LabelledNodes(state.occupancy))
    with pytest.raises(OutOfStepsError):
        rules.allowed(
            state.occupancy.pods["t/new"], frozenset(state.occupancy.nodes), StepBudget(5)
        )


# By the rules one by one -------------------------------------------------------------------------


def _expected(state: State, pod: Pod) -> set[str]:
    """The nodes by the rules of kube-scheduler's filter, with no index."""
    constraints, nodes = pod.needs.spread, state.occupancy.nodes
    found = set(nodes)
    for each in constraints:
        selector = each.selection.selector
        assert selector is not None
        counts: dict[str, int] = {}
        on_node: dict[str, int] = {}
        for name, node in nodes.items():
            if not all(one.topology_key in node.node.labels for one in constraints):
                continue
            if each.honors_affinity and not is_selected(pod.needs, node):
                continue
            if each.honors_taints and not is_tolerated(pod.needs, node):
                continue
            on_node[name] = sum(
                other.state == Placed(name)
                and other.namespace == pod.namespace
                and selector.requirements != ()
                and selector.matches(other.labels)
                for other in state.occupancy.pods.values()
            )
            value = node.node.labels[each.topology_key]
            counts[value] = counts.get(value, 0) + on_node[name]
        least = 0 if len(counts) < each.min_domains else min(counts.values())
        own = selector.matches(pod.labels)
        is_alone = each.min_domains > 1 and each.honors_affinity
        for name, node in nodes.items():
            of_key = node.node.labels.get(each.topology_key)
            if (
                of_key is None
                or counts.get(of_key, 0) + own - least > each.max_skew
                or (is_alone and on_node.get(name, 0) + own > each.max_skew)
            ):
                found.discard(name)
    return found


def _constraint(random: Random) -> SpreadConstraint:
    selector = LabelSelector() if random.random() < 0.1 else with_labels(_WEB)
    return SpreadConstraint(
        random.choice(("zone", "host")),
        random.randint(1, 2),
        PodSelection(selector, ("t",)),
        random.randint(1, 3),
        random.random() < 0.5,
        random.random() < 0.5,
    )


def _on_disks() -> NodeSelector:
    requirement = NodeSelectorRequirement("disk", NodeSelectorOperator.EXISTS)
    return NodeSelector((NodeSelectorTerm((requirement,)),))


@pytest.mark.parametrize("seed", range(300))
def test_allowed_nodes_are_those_of_the_rules(seed: int) -> None:
    random = Random(seed)
    nodes = []
    for index in range(random.randint(1, 6)):
        labels = {"zone": str(random.randrange(3)), "host": str(index), "disk": "x"}
        kept = {key: value for key, value in labels.items() if random.random() < 0.85}
        taints = (Taint("full"),) if random.random() < 0.2 else ()
        nodes.append(ClusterNode(Node(f"n{index}", kept), 1000, 1000, taints=taints))
    names = [node.name for node in nodes]
    pods = [
        Pod(
            f"{random.choice('ttt' + 'u')}/p{index}",
            PodNeeds(),
            Placed(random.choice(names)),
            labels=_WEB if random.random() < 0.8 else {},
        )
        for index in range(random.randint(0, 10))
    ]
    tolerates = Toleration("full", operator=PodTolerationOperator.EXISTS)
    needs = PodNeeds(
        affinity=_on_disks() if random.random() < 0.4 else None,
        tolerations=(tolerates,) if random.random() < 0.4 else (),
        spread=tuple(_constraint(random) for _ in range(random.randint(1, 3))),
    )
    new = Pod("t/new", needs, Pending(), labels=_WEB if random.random() < 0.8 else {})
    state = State(Snapshot(now=0, nodes=tuple(nodes), pods=(*pods, new)))
    rules, budget = (
        SpreadRules(state.occupancy, LabelledNodes(state.occupancy)),
        StepBudget(UNLIMITED),
    )
    for _ in range(3):
        assert rules.allowed(new, frozenset(names), budget) == _expected(state, new)
        if pods:
            moved = random.choice(pods)
            state.put_pod(
                Pod(moved.key, moved.needs, Placed(random.choice(names)), labels=moved.labels)
            )
