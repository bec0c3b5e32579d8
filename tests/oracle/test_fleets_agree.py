"""On the fleets of the benchmark, as many nodes suit a pod as upstream finds."""

import json

import pytest

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.preference import Policy
from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Pod, Scenario, pages
from tests.benchmarks.fleets import SCENARIOS
from tests.benchmarks.upstream import ALL_NODES, UpstreamAllocator
from tests.oracle.upstream import Upstream

pytestmark = pytest.mark.oracle

_KINDS = 3


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_same_number_of_suitable_nodes(upstream_bench: Upstream, scenario: Scenario) -> None:
    theirs, ours = UpstreamAllocator(upstream_bench), Carina()
    for page in pages(scenario.make(scenario.nodes_in_tests)):
        ours.add(page)
        theirs.add(page, json.dumps(page.objects))
    pods = [
        scenario.one(0),
        *(event.then(0) for event in scenario.events),
        *(question.pod(number) for question in scenario.questions for number in range(_KINDS)),
    ]
    suitable = [tried.suitable for tried in theirs.ask(pods, enough=ALL_NODES)]
    assert suitable == [_suitable(ours, pod) for pod in pods]


def _suitable(carina: Carina, pod: Pod) -> int:
    request = carina.request(pod)
    answers = (
        allocate(
            request.claims,
            carina.cluster.state(node),
            new_share_id=lambda: "share",
            policy=Policy(),
        )
        for node in carina.cluster.nodes
    )
    return sum(isinstance(answer, Allocated) for answer in answers)
