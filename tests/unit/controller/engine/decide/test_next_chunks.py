"""What is placed next of a group is found out once a cycle, whatever number of actions ask for it.

This buys the row "a pod ended, with 100 groups that wait" of docs/performance.md.
"""

import pytest

from controller.engine.decide.gangs import next_chunks
from controller.engine.decide.gangs.next_chunks import NextChunks
from controller.engine.decide.gangs.placement_unit import PlacementUnit, next_chunk
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.reason import TooFewPods
from controller.engine.state.occupancy import Occupancy
from tests.unit.controller.engine.scene import Scene

_WAITING = 10


def test_it_is_found_out_once_for_each_group_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def counted(occupancy: Occupancy, group: Group) -> PlacementUnit | TooFewPods | None:
        found.append(group.key)
        return next_chunk(occupancy, group)

    monkeypatch.setattr(next_chunks, "next_chunk", counted)
    actions = (Action.CONSOLIDATE, Action.RECLAIM, Action.PREEMPT)
    scene = Scene(actions=actions).node("n", 1).queue("q").runs("r", "n")
    for at in range(_WAITING):
        scene.waits(f"w{at}")
    assert len(scene.plan().waiting) == _WAITING
    assert sorted(found) == [f"w{at}" for at in range(_WAITING)]


def test_a_claim_that_others_may_get_devices_for_is_asked_for_again() -> None:
    scene = Scene().node("n", 2).queue("q").claim("shared", 2).group("g").group("h")
    scene.pod("g", claims=("shared",)).pod("h", claims=("shared",))
    state = scene.state()
    chunks, group = NextChunks(state.occupancy), state.occupancy.groups["g"]
    assert chunks.asked(group) == (2,)
    (other,) = (pod for pod in state.occupancy.pods.values() if pod.group == "h")
    state.occupancy.place(other.key, "n", ())
    assert chunks.asked(group) == (0,)
