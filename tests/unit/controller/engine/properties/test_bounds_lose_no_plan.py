"""Where a search is not begun since it would be in vain, it is in vain: plans stay the same."""

from itertools import product
from random import Random

import pytest

from controller.engine.decide.cycle import plan
from controller.engine.decide.victims.freeable import Freeable
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pod
from tests.length import seeds
from tests.unit.controller.engine.properties.small_clusters import Kind, random_case

_CASES = 40
_ACTIONS = (Action.CONSOLIDATE, Action.RECLAIM, Action.PREEMPT)


@pytest.mark.parametrize(
    ("action", "kind", "alike"), list(product(_ACTIONS, Kind, (True, False))), ids=str
)
def test_plans_are_the_same_without_the_bound(
    action: Action, kind: Kind, *, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        random_case(Random(f"{action} {kind} {alike} {seed}"), action, kind, alike=alike)
        for seed in seeds(_CASES)
    ]
    with_bound = [plan(case.snapshot()) for case in cases]
    monkeypatch.setattr(Freeable, "may_suffice", _always)
    for number, (case, found) in enumerate(zip(cases, with_bound, strict=True)):
        other = plan(case.snapshot())
        # All are written together; without the bound, a search may come to them in another order.
        assert set(found.evictions) == set(other.evictions), f"case {number}"
        assert found.nominations == other.nominations, f"case {number}"
        assert found.starts == other.starts, f"case {number}"


def _always(_: Freeable, pod: Pod, node: str) -> bool:
    return bool(pod.key and node)
