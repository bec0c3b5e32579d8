"""On the fleets of the benchmark, the chosen node is the best of all nodes tried one by one.

So a benchmark cannot be fast and wrong. The fleets are small here; questions and events are the
same.
"""

from collections.abc import Iterator

import pytest

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.preference import UPSTREAM, Order, Policy, Score
from carina_dra.placement.choice.placer import PlacedClaims
from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Asking, Pod, Question, Scenario, pages
from tests.benchmarks.fleets import SCENARIOS
from tests.benchmarks.fleets.alike import FULL

_POLICIES = {
    "binpack": Policy(),
    "spread": Policy(Order.SPREAD, Order.SPREAD),
    "fragmentation": Policy(Order.FRAGMENTATION, Order.FRAGMENTATION),
    "upstream": UPSTREAM,
}
_KINDS = 2
_GIVEN = 4


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.name)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """A scenario of the benchmark."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=_POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    """A policy."""
    return _POLICIES[request.param]


@pytest.fixture
def carina(scenario: Scenario, policy: Policy) -> Carina:
    """The scenario's fleet with few nodes."""
    fleet = scenario.make(scenario.nodes_in_tests)
    loaded = Carina(policy)
    for page in pages(fleet):
        loaded.add(page)
    return loaded


def _best(carina: Carina, pod: Pod, policy: Policy) -> tuple[Score, str] | None:
    """The best score of all nodes, and the first node by name that has it."""
    request = carina.request(pod)
    answers = {
        node: allocate(
            request.claims,
            carina.cluster.state(node),
            new_share_id=lambda: "share",
            policy=policy,
        )
        for node in carina.cluster.nodes
    }
    scores = (
        (answer.score, node) for node, answer in answers.items() if isinstance(answer, Allocated)
    )
    return min(scores, default=None)


def _chosen(carina: Carina, pod: Pod) -> tuple[Score, str] | None:
    placement = carina.place(pod)
    if isinstance(placement, PlacedClaims):
        return placement.allocated.score, placement.node
    return None


def _pods(question: Question) -> Iterator[Pod]:
    count = _KINDS if question.asking is Asking.NEW else _GIVEN
    return (question.pod(number) for number in range(count))


def test_answer_is_the_best_of_all_nodes(
    carina: Carina, scenario: Scenario, policy: Policy
) -> None:
    for question in scenario.questions:
        for pod in _pods(question):
            assert _chosen(carina, pod) == _best(carina, pod, policy), question.what
            if question.asking is not Asking.NEW:
                carina.give(pod)


def test_answer_is_the_best_of_all_nodes_after_each_of_a_gang(
    carina: Carina, scenario: Scenario, policy: Policy
) -> None:
    given = []
    for number in range(_GIVEN):
        pod = scenario.one(number)
        assert _chosen(carina, pod) == _best(carina, pod, policy)
        given += carina.give(pod)
    for claim in given:
        carina.cluster.release(claim)
    assert _chosen(carina, scenario.one(0)) == _best(carina, scenario.one(0), policy)


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.events], ids=lambda scenario: scenario.name
)
def test_answer_is_the_best_of_all_nodes_after_a_change_and_after_its_undoing(
    carina: Carina, scenario: Scenario, policy: Policy
) -> None:
    for event in scenario.events:
        pod = event.then(0)
        for repetition in range(_KINDS):
            carina.place(pod)
            event.change(carina.cluster, repetition)
            assert _chosen(carina, pod) == _best(carina, pod, policy), event.what
            if event.undo is not None:
                event.undo(carina.cluster, repetition)
                assert _chosen(carina, pod) == _best(carina, pod, policy), event.what


def test_every_fleet_but_the_full_one_has_a_place(scenario: Scenario) -> None:
    loaded = Carina()
    for page in pages(scenario.make(scenario.nodes_in_tests)):
        loaded.add(page)
    pods = [scenario.one(0), *(question.pod(0) for question in scenario.questions)]
    assert any(_chosen(loaded, pod) for pod in pods) == (scenario is not FULL)
