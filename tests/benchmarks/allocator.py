"""Measures a scenario: Carina's allocator, and upstream's on the same objects in the same run."""

from contextlib import ExitStack

from tests.benchmarks import decisions, loading, turnover
from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Scenario
from tests.benchmarks.subject import Hear, Subject
from tests.benchmarks.upstream import UpstreamAllocator
from tests.oracle import upstream as oracle


def size(scenario: Scenario, scale: float) -> int:
    """The number of nodes of a scenario at a scale."""
    return max(1, round(scenario.nodes * scale))


def measure(scenario: Scenario, hear: Hear, *, scale: float = 1, compare: bool = True) -> None:
    """Measures everything of a scenario, on a fleet of `scale` times its size.

    Without `compare`, upstream is not measured.

    Raises:
        DisagreementError: the two allocators do not agree, so that the times mean nothing.
    """
    with ExitStack() as stack:
        upstream = (
            UpstreamAllocator(stack.enter_context(oracle.running("bench"))) if compare else None
        )
        subject = Subject(scenario, size(scenario, scale), Carina(), upstream, hear)
        if scenario.churn is not None:
            turnover.churn(subject, scenario.churn)
        loading.load(subject)
        answered = [(each, decisions.ask(subject, each)) for each in scenario.questions]
        for event in scenario.events:
            decisions.after(subject, event)
        if scenario.denser is not None:
            question, measurement = answered[0]
            decisions.denser(subject, scenario.denser, question, measurement.value)
        if scenario.goals.gang_s is not None:
            turnover.gang(subject, scenario.goals.gang_s)
        if scenario.goals.release_s is not None:
            turnover.releases(subject, scenario.goals.release_s)
