"""Where a search is not begun since it would be in vain, it is in vain: plans stay the same."""

from collections.abc import Sequence
from itertools import product
from random import Random

import pytest

from carina_dra.placement.cluster.card import PartKind
from controller.engine.decide.cycle import plan
from controller.engine.decide.victims.freeable import Freeable
from controller.engine.model.plan import Action, Plan
from controller.engine.model.pod import Pod
from controller.engine.model.reason import NoVictims, TooFewParts
from controller.engine.state.spare_parts import SpareParts
from tests.length import seeds
from tests.unit.controller.engine.properties.small_clusters import Case, Kind, random_case

_CASES = 40
_ACTIONS = (Action.CONSOLIDATE, Action.RECLAIM, Action.PREEMPT)


@pytest.mark.parametrize(
    ("action", "kind", "alike"), list(product(_ACTIONS, Kind, (True, False))), ids=str
)
def test_plans_are_the_same_without_the_bound_of_a_node(
    action: Action, kind: Kind, *, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = _cases(action, kind, alike=alike)
    with_bound = [plan(case.snapshot()) for case in cases]
    monkeypatch.setattr(Freeable, "may_suffice", _always)
    _expect_the_same(cases, with_bound)


def test_plans_are_the_same_without_the_bound_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [
        case
        for kind, alike in product((Kind.SHARED, Kind.DIVIDED), (True, False))
        for case in _cases(Action.CONSOLIDATE, kind, alike=alike)
    ]
    with_bound = [plan(case.snapshot()) for case in cases]
    assert any(map(_is_by_bound, with_bound))
    monkeypatch.setattr(SpareParts, "most", _all)
    _expect_the_same(cases, with_bound)


def _cases(action: Action, kind: Kind, *, alike: bool) -> Sequence[Case]:
    return [
        random_case(Random(f"{action} {kind} {alike} {seed}"), action, kind, alike=alike)
        for seed in seeds(_CASES)
    ]


def _expect_the_same(cases: Sequence[Case], with_bound: Sequence[Plan]) -> None:
    for number, (case, found) in enumerate(zip(cases, with_bound, strict=True)):
        other = plan(case.snapshot())
        # All are written together; without the bound, a search may come to them in another order.
        assert set(found.evictions) == set(other.evictions), f"case {number}"
        assert found.nominations == other.nominations, f"case {number}"
        assert found.starts == other.starts, f"case {number}"


def _is_by_bound(found: Plan) -> bool:
    reasons = (one for reasons in found.waiting.values() for one in reasons)
    return any(isinstance(one, NoVictims) and isinstance(one.why, TooFewParts) for one in reasons)


def _always(_: Freeable, pod: Pod, node: str) -> bool:
    return bool(pod.key and node)


def _all(_: SpareParts, kind: PartKind) -> int:
    return 1 << 60 + len(kind)
