"""On random clusters and claims the allocator answers as upstream's own code does."""

from collections import Counter
from random import Random

import pytest

from carina_dra.allocator.errors import AllocationError
from tests.conformance.answer import answer, attempt, written
from tests.oracle.compare import difference
from tests.oracle.upstream import Upstream
from tests.samples.allocator_cases import random_case

pytestmark = pytest.mark.oracle

_CASES = 10_000
_PART = 1_000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, _CASES, _PART))
def test_same_answer_in_no_more_steps(upstream_allocator: Upstream, first: int) -> None:
    answers: Counter[str] = Counter()
    for seed in range(first, first + _PART):
        case = random_case(Random(seed))
        expected = upstream_allocator.answer(case)
        try:
            found = attempt(case)
        except AllocationError:
            assert difference(expected, answer(case)) is None, f"seed {seed}"
        else:
            assert difference(expected, written(found)) is None, f"seed {seed}"
            assert found.steps <= expected["searchSteps"], f"seed {seed}"
        answers["yes" if "allocations" in expected else "no"] += 1
    assert min(answers["yes"], answers["no"]) > _PART / 5, "the cases say something"
