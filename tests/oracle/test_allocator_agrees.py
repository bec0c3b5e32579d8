"""On random clusters and claims, upstream's own code says what can be allocated.

With the policy `upstream` the devices are the same. With any other policy the claims can be
allocated if and only if upstream allocates them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import pytest

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.preference import UPSTREAM, Policy
from carina_dra.allocator.request import Claim
from carina_dra.allocator.search import Impossible
from tests.conformance.answer import read, share_ids, written
from tests.length import parts, seeds
from tests.model.checker import choices_of, violation
from tests.model.exhaustive import ranks
from tests.model.problem import Problem
from tests.oracle.compare import difference
from tests.oracle.upstream import Object, Upstream
from tests.samples.allocator_cases import random_case

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(600)]

_SEEDS = seeds(20_000)
"""Of cases, each of which is answered by every policy."""
_PART = 1_000
_POLICIES = ("binpack", "spread", "fragmentation", "spread/binpack")
_STEPS_BEFORE_PARTS = 5_000
_LIMIT = 5
"""The number of failures that a test reports."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A case with its claims, or why they are not valid, and upstream's answer."""

    seed: int
    body: Object
    question: tuple[list[Claim], NodeState] | AllocationError
    expected: Object

    @property
    def is_possible(self) -> bool:
        """Whether upstream allocates the claims."""
        return "allocations" in self.expected


@pytest.fixture(scope="module", params=parts(_SEEDS, _PART))
def cases(request: pytest.FixtureRequest, upstream_allocator: Upstream) -> list[_Case]:
    """Some of the random cases."""
    some: range = request.param
    bodies = [random_case(Random(seed)) for seed in some]
    expected = upstream_allocator.answers(bodies)
    return [
        _Case(seed, body, _question(body), of_upstream)
        for seed, body, of_upstream in zip(some, bodies, expected, strict=True)
    ]


def _question(body: Object) -> tuple[list[Claim], NodeState] | AllocationError:
    try:
        return read(body)
    except AllocationError as error:
        return error


def test_cases_are_of_every_kind(cases: list[_Case]) -> None:
    kinds = Counter(next(iter(case.expected)) for case in cases)
    assert min(kinds[kind] for kind in ("allocations", "unsatisfiable", "error")) > len(cases) / 20


def test_policy_upstream_gives_the_same_devices_in_no_more_steps(cases: list[_Case]) -> None:
    wrong = []
    for case in cases:
        question = case.question
        found: Answer | Exception = (
            question if isinstance(question, AllocationError) else _answer(*question, UPSTREAM)
        )
        different = difference(case.expected, written(found))
        if different:
            wrong.append(f"seed {case.seed}: {different}")
        elif not isinstance(found, Exception) and found.steps > _most_steps(case):
            steps = case.expected["searchSteps"]
            wrong.append(f"seed {case.seed}: {found.steps} steps instead of {steps}")
    assert not wrong, _report(wrong)


def _most_steps(case: _Case) -> int:
    """As many as upstream's; a search of more than 5,000 steps also tries each part alone.

    The parts are the claims, if there are several, and the requests of a claim with several.
    """
    steps: int = case.expected["searchSteps"]
    if steps <= _STEPS_BEFORE_PARTS:
        return steps
    claims = case.body["claims"]
    requests = [len(claim["spec"]["devices"]["requests"]) for claim in claims]
    parts = sum(count for count in (len(claims), *requests) if count > 1)
    return steps + parts * _STEPS_BEFORE_PARTS


_Answers = list[tuple[_Case, Answer | Exception]]


@pytest.fixture(scope="module", params=_POLICIES)
def answers(request: pytest.FixtureRequest, cases: list[_Case]) -> _Answers:
    """The answers of a policy to the cases whose claims are valid."""
    policy = Policy.parse(request.param)
    return [
        (case, _answer(*case.question, policy))
        for case in cases
        if not isinstance(case.question, AllocationError)
    ]


def _answer(claims: list[Claim], state: NodeState, policy: Policy) -> Answer | Exception:
    try:
        return allocate(claims, state, new_share_id=share_ids(), policy=policy)
    except Exception as error:  # noqa: BLE001 the tests say which errors there may be
        return error


def test_nothing_is_raised_but_errors_of_allocation(answers: _Answers) -> None:
    wrong = [
        f"seed {case.seed}: {found!r}"
        for case, found in answers
        if isinstance(found, Exception) and not isinstance(found, AllocationError)
    ]
    assert not wrong, _report(wrong)


def test_claims_that_upstream_allocates_are_allocated(answers: _Answers) -> None:
    wrong = [
        f"seed {case.seed}: {found!r}"
        for case, found in answers
        if case.is_possible and not isinstance(found, Allocated)
    ]
    assert not wrong, _report(wrong)


def test_claims_for_which_upstream_finds_nothing_are_impossible(answers: _Answers) -> None:
    wrong = [
        f"seed {case.seed}: {found!r}"
        for case, found in answers
        if "unsatisfiable" in case.expected and not isinstance(found, Impossible)
    ]
    assert not wrong, _report(wrong)


def test_invalid_pool_is_an_error_of_the_node_as_in_upstream(answers: _Answers) -> None:
    wrong = [
        f"seed {case.seed}: {found!r}"
        for case, found in answers
        if case.expected.get("nodeLocal") and not isinstance(found, NodeAllocationError)
    ]
    assert not wrong, _report(wrong)


def test_error_without_a_failing_device_is_an_error_under_every_policy(answers: _Answers) -> None:
    """Another order of devices may find an allocation before a device that fails.

    An alternative for all devices of a pool that cannot be used fails only if it is needed.
    """
    wrong = [
        f"seed {case.seed}: {found!r}"
        for case, found in answers
        if "error" in case.expected
        and " device " not in case.expected["error"]
        and not _of_a_later_alternative(case.expected["error"])
        and not isinstance(found, AllocationError)
    ]
    assert not wrong, _report(wrong)


def _of_a_later_alternative(error: str) -> bool:
    """Whether all devices of a pool that cannot be used are asked for, by an alternative."""
    is_later = "request sub-" in error and "request sub-0" not in error
    return is_later and "asks for all devices, but resource pool" in error


def test_allocations_are_valid(answers: _Answers) -> None:
    wrong = [f"seed {case.seed}: {broken}" for case, broken in _violations(answers) if broken]
    assert not wrong, _report(wrong)


def _violations(answers: _Answers) -> Iterator[tuple[_Case, str | None]]:
    for case, found in answers:
        if isinstance(found, Allocated):
            allocations = written(found)["allocations"]
            yield case, violation(_problem(case.seed), allocations)


@lru_cache(maxsize=_PART)
def _problem(seed: int) -> Problem:
    return Problem(random_case(Random(seed)))


def test_no_alternative_is_later_than_upstreams(answers: _Answers) -> None:
    wrong = []
    for case, found in answers:
        if isinstance(found, Allocated) and case.is_possible:
            problem = _problem(case.seed)
            chosen = ranks(choices_of(problem, written(found)["allocations"]))
            expected = ranks(choices_of(problem, case.expected["allocations"]))
            if chosen > expected:
                wrong.append(f"seed {case.seed}: {chosen} instead of {expected}")
    assert not wrong, _report(wrong)


def _report(wrong: list[str]) -> str:
    return "\n".join([f"{len(wrong)} cases", *wrong[:_LIMIT]])
