"""A changing cluster answers as a new one with the same objects, and as its nodes one by one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.node import Node
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import PoolSlice, gather
from carina_dra.allocator.preference import UPSTREAM, Policy
from carina_dra.allocator.usage import Usage
from carina_dra.placement.choice.placer import (
    PlacedClaims,
    Placement,
    PlacementRequest,
    Placer,
    Unplaceable,
)
from carina_dra.resource import (
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from tests.conformance.answer import share_ids
from tests.length import parts, seeds
from tests.model.checker import violation
from tests.model.problem import Problem
from tests.samples.followed_cluster import FollowedCluster
from tests.samples.random_cluster import RandomCluster
from tests.samples.random_pools import Object

_CLUSTERS = seeds(20)
"""Each is followed with every policy."""
_PART = 10
_EVENTS = 24
_EVENTS_PER_QUESTION = 2
_STEP_LIMITS = (1, 5, 25)
_POLICIES = ("upstream", "binpack", "spread", "fragmentation", "spread/binpack")
_LIMIT = 3
"""The number of failures that a test reports."""


_Outcome = Answer | Exception
"""Of one node."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What claims are answered at a point of a cluster's history."""

    where: str
    policy: Policy
    one_by_one: dict[str, _Outcome]
    """What `allocate` answers for each node, from nothing but the objects."""
    by_state: dict[str, _Outcome]
    """What it answers with the state that the cluster keeps of the node."""
    placement: Placement | Exception
    some: list[str]
    placement_on_some: Placement | Exception
    placement_of_new_cluster: Placement | Exception
    limited: list[Placement | Exception]
    """With step limits."""
    violations: list[str]
    """What is wrong with the allocations of the placements."""


@pytest.fixture(scope="module", params=parts(_CLUSTERS, _PART))
def clusters(request: pytest.FixtureRequest) -> range:
    """The seeds of some of the clusters."""
    some: range = request.param
    return some


@pytest.fixture(scope="module", params=_POLICIES)
def asked(request: pytest.FixtureRequest, clusters: range) -> list[_Asked]:
    """The questions to these clusters between their events; what is placed is allocated."""
    policy = Policy.parse(request.param)
    return [asked for seed in clusters for asked in _history(seed, policy)]


def _history(seed: int, policy: Policy) -> Iterator[_Asked]:
    followed = FollowedCluster(seed)
    placer = Placer(followed.cluster, policy, new_share_id=share_ids())
    for event in range(_EVENTS):
        followed.objects.change()
        followed.follow()
        question = followed.request() if event % _EVENTS_PER_QUESTION == 0 else None
        if question is None:
            continue
        claims, request = question
        where = f"seed {seed}, event {event}"
        yield _ask(where, followed, placer, policy, claims, request)
        placed = _place(placer, request)
        if isinstance(placed, PlacedClaims):
            for claim, allocation in zip(claims, placed.allocated.allocations, strict=True):
                followed.objects.allocate(claim, encode(allocation))
            followed.follow()


def _ask(
    where: str,
    followed: FollowedCluster,
    placer: Placer,
    policy: Policy,
    claims: list[Object],
    request: PlacementRequest,
) -> _Asked:
    def with_limit(steps: int) -> Placer:
        return Placer(followed.cluster, policy, new_share_id=share_ids(), max_steps=steps)

    nodes = sorted(followed.objects.nodes)
    some = followed.random.sample(nodes, len(nodes) // 2)
    new = Placer(followed.fresh(), policy, new_share_id=share_ids())
    placement = _place(placer, request)
    limited = [_place(with_limit(steps), request) for steps in _STEP_LIMITS]
    violations = [
        broken
        for placed in (placement, *limited)
        if isinstance(placed, PlacedClaims)
        and (broken := _violation(followed.objects, placed, claims)) is not None
    ]
    return _Asked(
        where,
        policy,
        one_by_one=dict(_one_by_one(followed, request, policy)),
        by_state={name: _allocate(request, followed.cluster.state(name), policy) for name in nodes},
        placement=placement,
        some=some,
        placement_on_some=_place(placer, request, some),
        placement_of_new_cluster=_place(new, request),
        limited=limited,
        violations=violations,
    )


def _place(
    placer: Placer, request: PlacementRequest, nodes: list[str] | None = None
) -> Placement | Exception:
    try:
        return placer.place(request, nodes)
    except Exception as error:  # noqa: BLE001 the tests say which errors there may be
        return error


def _one_by_one(
    followed: FollowedCluster, request: PlacementRequest, policy: Policy
) -> Iterator[tuple[str, _Outcome]]:
    objects = followed.objects
    rules = [decode(DeviceTaintRule, body) for _, body in sorted(objects.rules.items())]
    slices = [PoolSlice.of(decode(ResourceSlice, body), rules) for body in objects.slices.values()]
    claims = [decode(ResourceClaim, body) for body in objects.claims.values()]
    allocations = [claim.status.allocation for claim in claims]
    usage = Usage.of(
        result
        for allocation in allocations
        if allocation is not None
        for result in allocation.devices.results
    )
    for name, body in objects.nodes.items():
        node = Node.of(body)
        pools = gather(slices, node, followed.features)
        yield name, _allocate(request, NodeState(node, pools, usage, followed.features), policy)


def _allocate(request: PlacementRequest, state: NodeState, policy: Policy) -> _Outcome:
    try:
        return allocate(request.claims, state, new_share_id=share_ids(), policy=policy)
    except Exception as error:  # noqa: BLE001 the tests say which errors there may be
        return error


def _violation(objects: RandomCluster, placed: PlacedClaims, claims: list[Object]) -> str | None:
    given = [encode(allocation) for allocation in placed.allocated.allocations]
    return violation(Problem(objects.case(placed.node, claims)), given)


def _expected(outcomes: dict[str, _Outcome], policy: Policy) -> list[object]:
    """What placement may answer, see `_told`.

    Under the policy `upstream`, a fatal error on one node is one of the whole attempt if the node
    is looked at before the best node is known.
    """
    allocated = {
        name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Allocated)
    }
    answers: list[object] = ["nothing"]
    if allocated:
        best = min(allocated, key=lambda name: (allocated[name].score, name))
        answers = [(best, allocated[best].score, _devices(allocated[best]))]
    if policy == UPSTREAM and any(
        isinstance(outcome, Exception) and not isinstance(outcome, NodeAllocationError)
        for outcome in outcomes.values()
    ):
        return ["error", *answers] if allocated else ["error"]
    return answers


def _told(placement: Placement | Exception) -> object:
    """What placement answers, without the UIDs of shares and the text of errors."""
    match placement:
        case PlacedClaims(node=node, allocated=allocated):
            return node, allocated.score, _devices(allocated)
        case Unplaceable():
            return "nothing"
        case AllocationError():
            return "error"
        case Exception():
            return placement


def _devices(allocated: Allocated) -> object:
    return [
        replace(
            allocation,
            devices=replace(
                allocation.devices,
                results=tuple(
                    replace(result, share_id=result.share_id and "any")
                    for result in allocation.devices.results
                ),
            ),
        )
        for allocation in allocated.allocations
    ]


def test_questions_are_of_every_kind(asked: list[_Asked]) -> None:
    kinds = Counter(type(one.placement) for one in asked)
    assert min(kinds[PlacedClaims], kinds[Unplaceable]) > len(asked) / 10


def test_the_best_of_all_nodes_is_chosen(asked: list[_Asked]) -> None:
    wrong = []
    for one in asked:
        told, expected = _told(one.placement), _expected(one.one_by_one, one.policy)
        if told not in expected:
            wrong.append(f"{one.where}: {told} instead of {expected[0]}")
    assert not wrong, _report(wrong)


def test_the_best_of_some_nodes_is_chosen(asked: list[_Asked]) -> None:
    wrong = []
    for one in asked:
        outcomes = {name: one.one_by_one[name] for name in one.some}
        told, expected = _told(one.placement_on_some), _expected(outcomes, one.policy)
        if told not in expected:
            wrong.append(f"{one.where}, {one.some}: {told} instead of {expected[0]}")
    assert not wrong, _report(wrong)


def test_new_cluster_with_the_same_objects_answers_the_same(asked: list[_Asked]) -> None:
    wrong = [
        f"{one.where}: {_told(one.placement_of_new_cluster)} instead of {_told(one.placement)}"
        for one in asked
        if repr(_told(one.placement_of_new_cluster)) != repr(_told(one.placement))
    ]
    assert not wrong, _report(wrong)


def test_state_of_each_node_is_that_of_its_objects(asked: list[_Asked]) -> None:
    wrong = [
        f"{one.where}, {name}: {one.by_state[name]} instead of {outcome}"
        for one in asked
        for name, outcome in one.one_by_one.items()
        if repr(one.by_state[name]) != repr(outcome)
    ]
    assert not wrong, _report(wrong)


def test_placed_claims_have_valid_allocations(asked: list[_Asked]) -> None:
    wrong = [f"{one.where}: {broken}" for one in asked for broken in one.violations]
    assert not wrong, _report(wrong)


def test_nodes_with_invalid_pools_are_named(asked: list[_Asked]) -> None:
    wrong = [
        f"{one.where}: {name} is not among {one.placement.failed}"
        for one in asked
        if isinstance(one.placement, Unplaceable)
        for name, outcome in one.one_by_one.items()
        if isinstance(outcome, NodeAllocationError)
        and "invalid resource pools" in str(outcome)
        and f"{name}: {outcome}" not in one.placement.failed
    ]
    assert not wrong, _report(wrong)


def test_nothing_is_raised_but_errors_of_allocation(asked: list[_Asked]) -> None:
    wrong = [
        f"{one.where}: {outcome!r}"
        for one in asked
        for outcome in (
            one.placement,
            one.placement_on_some,
            one.placement_of_new_cluster,
            *one.limited,
            *one.one_by_one.values(),
            *one.by_state.values(),
        )
        if isinstance(outcome, Exception) and not isinstance(outcome, AllocationError)
    ]
    assert not wrong, _report(wrong)


def _report(wrong: list[str]) -> str:
    return "\n".join([f"{len(wrong)} times", *wrong[:_LIMIT]])
