"""On small random cases, no possible allocation is better by the policy than the one given.

The best allocation is found by trying all, see `tests.model`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import in_use
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.preference import UPSTREAM, Policy, rank_devices
from carina_dra.allocator.request import Claim
from tests.conformance.answer import read, share_ids, written
from tests.length import parts, seeds
from tests.model.checker import choices_of, violation
from tests.model.exhaustive import Best, best, ranks
from tests.model.pools import Key
from tests.model.problem import ModelChoice, Problem
from tests.samples.allocator_cases import small_case

_SEEDS = seeds(1500)
_PART = 500
_POLICIES = ("binpack", "spread")
"""Those that order the devices of a node in each way."""
_LIMIT = 5
"""The number of failures that a test reports."""


@dataclass(frozen=True, slots=True)
class _Case:
    seed: int
    problem: Problem
    claims: list[Claim]
    state: NodeState
    fails: bool
    """Whether the attempt fails under the policy `upstream`: an answer is then optional."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A case, its best allocation, and the one that is given."""

    case: _Case
    best: Best | None
    found: Answer | AllocationError

    @property
    def allocations(self) -> list[dict[str, object]]:
        """The allocations, as JSON."""
        allocations: list[dict[str, object]] = written(self.found)["allocations"]
        return allocations


@pytest.fixture(scope="module", params=parts(_SEEDS, _PART))
def cases(request: pytest.FixtureRequest) -> list[_Case]:
    """Some of the random cases, those whose claims are valid."""
    return list(_cases(request.param))


def _cases(seeds: range) -> Iterator[_Case]:
    for seed in seeds:
        body = small_case(Random(seed))
        try:
            claims, state = read(body)
        except AllocationError:
            continue
        fails = isinstance(_answer(claims, state, UPSTREAM), AllocationError)
        yield _Case(seed, Problem(body), claims, state, fails)


def _answer(claims: list[Claim], state: NodeState, policy: Policy) -> Answer | AllocationError:
    try:
        return allocate(claims, state, new_share_id=share_ids(), policy=policy)
    except AllocationError as error:
        return error


@pytest.fixture(scope="module", params=_POLICIES)
def given(request: pytest.FixtureRequest, cases: list[_Case]) -> list[_Given]:
    """What the policy gives, and should give."""
    policy = Policy.parse(request.param)
    return [
        _Given(
            case,
            best(case.problem, _ranked(case.state, policy)),
            _answer(case.claims, case.state, policy),
        )
        for case in cases
    ]


def _ranked(state: NodeState, policy: Policy) -> list[Key]:
    assert policy.devices is not None
    ranked = rank_devices(state, in_use(state.ready, state.usage), policy.devices)
    return [(*candidate.id,) for candidate in ranked]


def test_claims_are_allocated_if_and_only_if_it_is_possible(given: list[_Given]) -> None:
    wrong = [
        f"seed {of.case.seed}: {of.found}"
        for of in given
        if not of.case.fails and isinstance(of.found, Allocated) != (of.best is not None)
    ]
    assert not wrong, _report(wrong)


def test_allocations_are_valid(given: list[_Given]) -> None:
    wrong = []
    for of in given:
        if isinstance(of.found, Allocated):
            broken = violation(of.case.problem, of.allocations)
            if broken:
                wrong.append(f"seed {of.case.seed}: {broken}")
    assert not wrong, _report(wrong)


def test_no_earlier_alternatives_are_possible(given: list[_Given]) -> None:
    wrong = []
    for of, wanted in _comparable(given):
        chosen = ranks(choices_of(of.case.problem, of.allocations))
        if chosen != wanted.ranks:
            wrong.append(f"seed {of.case.seed}: {chosen} instead of {wanted.ranks}")
    assert not wrong, _report(wrong)


def test_score_is_that_of_the_chosen_alternatives_and_their_closeness(
    given: list[_Given],
) -> None:
    wrong = []
    for of, wanted in _comparable(given):
        assert isinstance(of.found, Allocated)
        score = of.found.score.alternatives, of.found.score.distance
        expected = sum(wanted.ranks), wanted.distance
        if score != expected:
            wrong.append(f"seed {of.case.seed}: {score} instead of {expected}")
    assert not wrong, _report(wrong)


def test_devices_are_the_first_in_the_order_of_the_policy(given: list[_Given]) -> None:
    wrong = []
    for of, wanted in _comparable(given):
        chosen = _devices(choices_of(of.case.problem, of.allocations))
        if chosen != _devices(wanted.choices):
            wrong.append(f"seed {of.case.seed}: {chosen} instead of {_devices(wanted.choices)}")
    assert not wrong, _report(wrong)


def test_cases_have_choices(cases: list[_Case]) -> None:
    orders = [sorted(case.problem.devices) for case in cases]
    several = [
        best(case.problem, order) != best(case.problem, order[::-1])
        for case, order in zip(cases, orders, strict=True)
    ]
    assert sum(several) > len(cases) / 10


def _comparable(given: list[_Given]) -> Iterator[tuple[_Given, Best]]:
    """The cases with an allocation; an attempt that fails under `upstream` may end with any."""
    for of in given:
        if isinstance(of.found, Allocated) and of.best is not None and not of.case.fails:
            yield of, of.best


def _devices(choices: tuple[ModelChoice, ...]) -> list[tuple[int, str, list[str]]]:
    """The devices of each request, in any order within it."""
    by_request: dict[tuple[int, str], list[str]] = {}
    for choice in choices:
        by_request.setdefault((choice.claim, choice.alternative.name), []).append(
            "/".join(choice.device.key)
        )
    return [(claim, name, sorted(names)) for (claim, name), names in by_request.items()]


def _report(wrong: list[str]) -> str:
    return "\n".join([f"{len(wrong)} cases", *wrong[:_LIMIT]])
