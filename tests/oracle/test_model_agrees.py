"""The model that allocations are checked with says what upstream's own code says."""

from collections import Counter
from random import Random

import pytest

from tests.length import seeds
from tests.model.checker import violation
from tests.model.exhaustive import best
from tests.model.problem import Problem
from tests.oracle.upstream import Upstream
from tests.samples.allocator_cases import random_case, small_case

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]

_SEEDS = seeds(2_000)


def test_upstreams_allocations_are_valid(upstream_allocator: Upstream) -> None:
    allocated = 0
    cases = [random_case(Random(seed)) for seed in _SEEDS]
    for seed, case, answer in zip(_SEEDS, cases, upstream_allocator.answers(cases), strict=True):
        if "allocations" in answer:
            allocated += 1
            assert violation(Problem(case), answer["allocations"]) is None, f"seed {seed}"
    assert allocated > len(_SEEDS) / 5


def test_search_of_all_allocations_finds_one_where_upstream_does(
    upstream_allocator: Upstream,
) -> None:
    """But for admin access, which upstream refuses in some cases."""
    cases = [small_case(Random(seed)) for seed in _SEEDS]
    kinds: Counter[bool] = Counter()
    for seed, case, answer in zip(_SEEDS, cases, upstream_allocator.answers(cases), strict=True):
        problem = Problem(case)
        has_admin = any(
            alternative.is_admin
            for claim in problem.requests
            for alternatives in claim
            for alternative in alternatives
        )
        if "error" not in answer and not has_admin:
            is_possible = best(problem, sorted(problem.devices)) is not None
            assert is_possible == ("allocations" in answer), f"seed {seed}"
            kinds[is_possible] += 1
    assert min(kinds[True], kinds[False]) > len(_SEEDS) / 10
