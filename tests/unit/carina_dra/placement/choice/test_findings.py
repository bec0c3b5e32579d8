"""What is known of a node before its devices are chosen never hides a better allocation."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.preference import BROKEN, Policy
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.choice.distances import NodeDistances
from carina_dra.placement.choice.findings import Bounded, Estimated, Findings
from carina_dra.placement.choice.order import Entry, NodeOrder
from carina_dra.step_budget import StepBudget
from tests.samples.random_questions import Question, questions


def _bounds(question: Question) -> Iterator[Entry]:
    """The best score that a node could have, as more and more is known of it."""
    of, claims = question.cluster, question.request.claims
    demand = Demand(claims, of.features)
    wide = any(map(demand.concerns, of.wide_devices()))
    distances = NodeDistances(of, demand.required.devices, close=True, wide=wide)
    order = NodeOrder(of, distances, question.policy.nodes)
    findings = Findings(claims, demand, of, question.policy, max_steps=None)
    entry = order.entry(question.node)
    assert entry is not None
    yield entry
    findings.look(entry, None, StepBudget.unlimited())
    while isinstance(known := findings.get(question.node), Estimated | Bounded):
        yield known.entry
        findings.look(known.entry, None, StepBudget.unlimited())


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_bound_is_never_worse_than_the_allocation(seed: int, policy: str) -> None:
    for question in questions(seed, Policy.parse(policy)):
        if question.allocated is None:
            continue
        score = question.allocated.score
        allocated = (score.alternatives, score.distance, score.use, question.node)
        assert max(_bounds(question)) <= allocated


def test_random_claims_break_gpus_for_certain_and_do_not() -> None:
    """So the property above would find a bound that is wrong."""
    certain = spared = 0
    for seed in range(40):
        for question in questions(seed, Policy.parse("fragmentation")):
            if question.allocated is not None:
                certain += list(_bounds(question))[-1][2] >= BROKEN
                spared += question.allocated.score.use < BROKEN
    assert min(certain, spared) > 5
