"""Claims that cost too much are undecided, and pods of other queues start all the same."""

from itertools import pairwise

import pytest

from carina_dra.allocator.preference import Order, Policy
from carina_dra.price import CONDITION, STEP, attempt_limit
from carina_dra.resource import (
    CelSelector,
    DeviceSelector,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.decide.gangs.assigner import Assigner
from controller.engine.decide.gangs.gang import Gang
from controller.engine.decide.gangs.placement_unit import PlacementUnit, next_chunk
from controller.engine.decide.nodes.places import Place
from controller.engine.model.group import PodSet, TopologyConstraint
from controller.engine.model.label_selector import with_labels
from controller.engine.model.pod import PodNeeds, PodSelection, SpreadConstraint, Toleration
from tests.unit.controller.engine.decide.costly import costly
from tests.unit.controller.engine.scene import Scene, gpu_claim, started


def _scene(nodes: int = 20) -> Scene:
    """Nodes of which 5 are in use by preemptible pods, and a pod with costly selectors."""
    scene = Scene().queue("good", quota=8).queue("evil", quota=8)
    for index in range(nodes):
        scene.node(f"n{index:02}", 8)
    for index in range(5):
        scene.runs(f"runs{index}", f"n{index:02}", gpus=8, queue="good")
    selectors = (*map(costly, "abcdefgh"), DeviceSelector(CelSelector("device.driver == 'none'")))
    scene.waits("evil", queue="evil")
    scene.claims["evil-0"] = gpu_claim("evil-0", selectors=selectors)
    return scene


def testcostly_claim_does_not_end_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.engine.decide.nodes.places.attempt_limit", lambda _: 2_000)
    plan = _scene().waits("good", queue="good").plan()
    assert set(started(plan)) == {"good-0"}
    assert "evil" in plan.waiting


def test_attempt_has_one_budget_for_all_of_its_searches() -> None:
    trial = _scene(nodes=7).trial()
    trial.places.budget = budget = StepBudget(18_000)
    pod = trial.state.occupancy.pods["t/evil-0"]
    trial.places.find(pod, Policy(), frozenset(["n05"]))
    with pytest.raises(OutOfStepsError):
        trial.places.find(pod, Policy(), frozenset(["n06"]))
    assert budget.left == 0


def test_question_of_an_attempt_costs_the_same_when_it_was_asked_before() -> None:
    trial = _scene(nodes=7).trial()
    pod, spent = trial.state.occupancy.pods["t/evil-0"], []
    for _ in range(3):
        trial.places.budget = budget = StepBudget(10**9)
        assert trial.places.find(pod, Policy()) is None
        spent.append(budget.spent)
    assert all(before == after for before, after in pairwise(spent))


def test_claim_of_everybody_costs_an_attempt_little() -> None:
    trial = _scene().waits("good", queue="good").trial()
    trial.places.budget = budget = StepBudget(attempt_limit(20))
    assert isinstance(trial.places.find(trial.state.occupancy.pods["t/good-0"], Policy()), Place)
    assert budget.spent < 60


def test_checking_a_claim_is_charged_by_what_is_written_in_it() -> None:
    scene = _scene(nodes=6)
    text = " && ".join(["device.driver != 'x'"] * 400)
    scene.claims["evil-0"] = gpu_claim("evil-0", selectors=(DeviceSelector(CelSelector(text)),))
    trial = scene.trial()
    trial.places.budget = StepBudget(500)
    with pytest.raises(OutOfStepsError):
        trial.places.kind(trial.state.occupancy.pods["t/evil-0"])


def test_attempt_that_has_run_out_leaves_no_trace() -> None:
    trial = _scene(nodes=7).trial()
    pod = trial.state.occupancy.pods["t/evil-0"]
    for limit in range(0, 3_000, 250):
        trial.places.budget = StepBudget(limit)
        with pytest.raises(OutOfStepsError):
            trial.places.find(pod, Policy())
    trial.places.budget = StepBudget(10**9)
    assert trial.places.find(pod, Policy()) is None


_MANY = tuple(f"rack-{number}" for number in range(20_000))
_NOT_THERE = NodeSelectorRequirement("rack", NodeSelectorOperator.NOT_IN, _MANY)
_SOMEWHERE_ELSE = NodeSelector((NodeSelectorTerm((_NOT_THERE,)),))


@pytest.mark.parametrize(
    "needs",
    [
        PodNeeds(affinity=_SOMEWHERE_ELSE),
        PodNeeds(tolerations=tuple(Toleration(f"taint-{number}") for number in range(200))),
        PodNeeds(node_selector=tuple((f"label-{number}", "") for number in range(200))),
    ],
    ids=["values", "tolerations", "labels"],
)
def test_conditions_of_a_pod_are_charged_for_each_node(needs: PodNeeds) -> None:
    scene = _scene(nodes=50).waits("choosy", queue="evil", needs=needs)
    trial = scene.trial()
    trial.places.budget = budget = StepBudget(10**9)
    trial.places.find(trial.state.occupancy.pods["t/choosy-0"], Policy())
    assert budget.spent > 50 * 200 * CONDITION // STEP


def test_spread_constraint_costs_as_much_as_the_conditions_that_it_honors() -> None:
    selection = PodSelection(with_labels({"app": "even"}), ("t",))
    spread = SpreadConstraint("zone", 1, selection, honors_affinity=True)
    spent = []
    for affinity in (None, _SOMEWHERE_ELSE):
        scene = _scene(nodes=50)
        scene.waits("even", needs=PodNeeds(spread=(spread,), affinity=affinity))
        trial = scene.trial()
        trial.places.budget = budget = StepBudget(10**9)
        trial.places.find(trial.state.occupancy.pods["t/even-0"], Policy())
        spent.append(budget.spent)
    assert spent[1] - spent[0] > 2 * 50 * 200 * CONDITION // STEP


def test_claims_that_have_devices_are_charged_to_the_pod_that_names_them() -> None:
    scene, names = _scene(), [f"held-{number}" for number in range(100)]
    for name in names:
        scene.claim(name, 0, "n00")
    scene.group("many").pod("many", claims=tuple(names))
    trial = scene.trial()
    trial.places.budget = budget = StepBudget(10**9)
    place = trial.places.find(trial.state.occupancy.pods["t/many-0"], Policy())
    assert isinstance(place, Place)
    assert place.node == "n00"
    assert budget.spent >= 100


def test_domains_of_a_level_are_charged_to_the_group_that_names_it() -> None:
    scene, constraint = _scene(nodes=50), TopologyConstraint("", required="none-has-it")
    scene.group("far", root=PodSet("", 1, topology=constraint)).pod("far", gpus=0)
    trial = scene.trial()
    trial.places.budget = budget = StepBudget(10**9)
    chunk = next_chunk(trial.state.occupancy, trial.state.occupancy.groups["far"])
    assert isinstance(chunk, PlacementUnit)
    for _ in range(2):
        Gang(trial, Assigner(trial, Policy()).take).place(chunk)
    assert 5 < budget.spent < 20


def test_conditions_of_more_pods_than_are_remembered_are_charged_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.engine.decide.nodes.places.most_sets", lambda _: 3)
    trial, spent = _scene(nodes=50).trial(), []
    pods = [PodNeeds(node_selector=((f"label-{number}", ""),)) for number in range(4)]
    for some in (pods[:3], pods):
        for _ in range(2):  # what is remembered makes no difference
            trial.places.budget = budget = StepBudget(10**9)
            for _ in range(5):
                for needs in some:
                    trial.places.suitable(needs)
            spent.append(budget.spent)
    once = spent[0] // 3
    assert spent == [3 * once, 3 * once, 20 * once, 20 * once]


@pytest.mark.parametrize("kinds", [1, 20])
def test_scoring_nodes_is_charged_for_each_kind_of_pods_without_devices(kinds: int) -> None:
    scene = _scene(nodes=50)
    for index in range(kinds):
        scene.waits(f"kind{index:02}", needs=PodNeeds(cpu=100 << index), gpus=0)
    trial, asked = scene.trial(), [f"t/kind{index:02}-0" for index in range(kinds)]
    prices = []
    for _ in range(2):
        trial.places.budget = budget = StepBudget(10**9)
        for key in asked:
            trial.places.find(trial.state.occupancy.pods[key], Policy(nodes=Order.BALANCED))
        prices.append(budget.spent)
    assert prices[0] == prices[1] > kinds * 50


def test_scoring_nodes_again_is_charged_where_there_are_more_kinds_than_are_remembered() -> None:
    scene = _scene(nodes=50)
    for index in range(20):
        scene.waits(f"kind{index:02}", needs=PodNeeds(cpu=100 << index), gpus=0)
    trial = scene.trial()
    trial.places.budget = budget = StepBudget(10**9)
    for _ in range(3):
        for index in range(20):
            pod = trial.state.occupancy.pods[f"t/kind{index:02}-0"]
            trial.places.find(pod, Policy(nodes=Order.BALANCED))
    assert budget.spent > 3 * 20 * 50
