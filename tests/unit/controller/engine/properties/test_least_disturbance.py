"""Plans are compared with the best one, found by trying all, on small clusters of each kind."""

from itertools import product
from random import Random

import pytest

from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Action
from tests.length import seeds
from tests.unit.controller.engine.properties.disturbance import BruteForce, chosen
from tests.unit.controller.engine.properties.small_clusters import Case, Kind, random_case

_CASES = 400
"""Of each kind, alike and unlike, divided among the actions: 100 by default."""
_ACTIONS = (Action.CONSOLIDATE, Action.RECLAIM, Action.PREEMPT)
_MISSED, _MORE = 0.01, 0.05
"""The parts of the possible plans that may be missed, and that may disturb more than needed."""
_CHANCE_MISSED, _CHANCE_MORE = 2, 3
"""So many more by chance: few cases are drawn of each kind."""
_DRAWN = 30


@pytest.mark.parametrize(
    ("action", "kind", "alike"), list(product(_ACTIONS, Kind, (True, False))), ids=str
)
def test_plans_disturb_no_more_than_needed(action: Action, kind: Kind, *, alike: bool) -> None:
    possible, missed, more = 0, [], []
    for seed in seeds(_CASES // len(_ACTIONS)):
        case = _contested(Random(f"{action} {kind} {alike} {seed}"), action, kind, alike=alike)
        best = BruteForce(case).best()
        choice = chosen(case, plan(case.snapshot()))
        if best is None:
            assert choice is None, f"seed {seed}: {choice} is not possible"
            continue
        possible += 1
        if choice is None:
            missed.append(seed)
            continue
        disturbance = BruteForce(case).disturbance(choice)
        assert disturbance is not None, f"seed {seed}: {choice} is against the rules"
        if disturbance != best:
            more.append(seed)
    assert len(missed) <= _MISSED * possible + _CHANCE_MISSED, f"of {possible}, missed: {missed}"
    assert len(more) <= _MORE * possible + _CHANCE_MORE, f"of {possible}, disturbed more: {more}"


def _contested(rng: Random, action: Action, kind: Kind, *, alike: bool) -> Case:
    """A cluster on which the group that waits has no room, but might get it."""
    case = random_case(rng, action, kind, alike=alike)
    for _ in range(_DRAWN):
        found = BruteForce(case)
        if not found.has_room() and (action is not Action.CONSOLIDATE or found.could_ever()):
            break
        case = random_case(rng, action, kind, alike=alike)
    return case
