"""An attempt that costs more steps than it may is undecided, and waits longer the more it cost."""

from dataclasses import replace
from functools import partial

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.model.plan import Action, Plan
from controller.engine.model.reason import NoRoom, Undecided
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.small import Cluster, group, node, pod, queue
from tests.unit.controller.engine.properties.following import observe
from tests.unit.controller.engine.scene import NOW, Scene, evicted, only, started

LIMIT = 200


def _scene(pods: int = 40, gpus: int = 64, **settings: object) -> Scene:
    """A gang that takes more steps than an attempt may, and a pod of another queue."""
    limits = {"attempt_steps": 4 * LIMIT, "attempt_steps_per_node": 0, "attempt_steps_per_pod": 0}
    scene = Scene(**limits | settings)
    scene.node("n", gpus).queue("q").queue("r")
    return scene.waits("t/gang", pods, created=NOW - 9).waits("t/one", queue="r", created=NOW)


def _cycle(state: State) -> Plan:
    """Decides, and has those that ask expensively asked in the next cycle, whoever starts."""
    decided = Engine(state).decide()
    state.memory = replace(decided.memory, passes_over=True)
    return decided


def test_the_reason_names_the_price_and_the_object() -> None:
    decided = _scene().plan()
    (reason,) = decided.waiting["t/gang"]
    assert isinstance(reason, Undecided)
    assert LIMIT < reason.steps < LIMIT + 100
    assert reason.about.startswith("pod t/t/gang-")
    assert decided.undecided == ("t/gang",)


def test_others_start() -> None:
    assert started(_scene().plan()) == {"t/one-0": "n"}


def test_others_start_although_expensive_groups_of_several_tenants_change_again_and_again() -> None:
    scene = _scene()
    for tenant in ("u", "v"):
        scene.waits(f"{tenant}/gang", 40, created=NOW - 9)
    state = scene.waits("w/last", created=NOW).state()
    found: set[str] = set()
    for _ in range(8):
        decided = Engine(state).decide(lambda: 0.1)
        found |= {one.pod for one in decided.starts}
        state.memory = replace(decided.memory, set_aside={})  # as if they had changed
    assert "t/w/last-0" in found


def test_nothing_of_it_is_left() -> None:
    state = _scene().state()
    state.refresh()
    before = observe(state)
    decided = Engine(state).decide()
    assert [one.pod for one in decided.starts] == ["t/t/one-0"]
    assert observe(state) == before


def test_it_is_decided_where_nodes_allow_for_it() -> None:
    decided = _scene(attempt_steps_per_node=8_000).plan()
    assert len(decided.starts) == 41


def test_a_search_for_victims_is_bounded_as_well() -> None:
    scene = Scene(
        **only(Action.PREEMPT), attempt_steps=LIMIT, attempt_steps_per_node=0, search_steps=None
    )
    scene.queue("q").waits("new", gpus=2, priority=5)
    for index in range(40):
        scene.node(f"n{index}", 2).runs(f"hard{index}", f"n{index}", priority=9)
        scene.runs(f"soft{index}", f"n{index}")
    decided = scene.plan()
    assert isinstance(decided.waiting["new"][-1], Undecided)
    assert decided.evictions == ()
    assert decided.memory.cursors == {}


def test_it_is_not_asked_before_its_time_although_much_changes() -> None:
    state = _scene().state()
    until = _cycle(state).memory.set_aside["t/gang"].until
    state.put_node(replace(state.occupancy.nodes["n"], cpu=1_000_000))
    state.advance(until - 1)
    decided = _cycle(state)
    assert decided.undecided == ()
    assert isinstance(decided.waiting["t/gang"][-1], Undecided)
    state.advance(until)
    assert _cycle(state).undecided == ("t/gang",)


def test_it_is_asked_again_when_it_has_changed() -> None:
    state = _scene().state()
    _cycle(state)
    state.put_group(replace(state.occupancy.groups["t/gang"], priority=1))
    assert _cycle(state).undecided == ("t/gang",)


@pytest.mark.parametrize(("steps", "seconds"), [(200, 3), (100_000, 20), (1_000_000, 200)])
def test_the_more_it_costs_the_longer_it_waits(steps: int, seconds: int) -> None:
    limits = {"attempt_steps": steps, "attempt_steps_per_node": 0, "attempt_steps_per_pod": 0}
    scene = Scene(**limits).queue("q").waits("g")
    trial = scene.trial()
    isolation, group = Isolation(trial), trial.state.occupancy.groups["g"]
    assert isolation.run_within_limit(group, partial(trial.places.spend, steps + 1)) is None
    assert isolation.set_aside["g"].until == pytest.approx(NOW + seconds, abs=0.01)


def test_its_time_doubles() -> None:
    state = _scene().state()
    waits = []
    for _ in range(3):
        until = _cycle(state).memory.set_aside["t/gang"].until
        waits.append(until - state.now)
        state.advance(until)
    assert waits == [3, 6, 12]


class TestLimits:
    """The limit of a group's attempts grows while they are undecided."""

    def _state(self, pods: int = 30, gpus: int = 64) -> State:
        return _scene(pods, gpus, attempt_steps_per_node=2_000, actions=()).state()

    def _limits(self, state: State, attempts: int) -> list[int]:
        """What each of the next attempts of the gang costs."""
        found = []
        for _ in range(attempts):
            decided = _cycle(state)
            reason = decided.waiting["t/gang"][-1]
            assert isinstance(reason, Undecided)
            found.append(reason.steps)
            state.advance(state.memory.set_aside["t/gang"].until)
        return found

    def test_the_first_may_cost_a_quarter_and_the_next_twice_as_much(self) -> None:
        state = self._state(200)
        first, second, third, fourth = self._limits(state, 4)
        assert 700 < first < 800
        assert 1_400 < second < 1_500
        assert 2_800 < third < 2_900
        assert third == fourth

    def test_a_gang_of_any_size_is_decided_since_each_pod_adds_to_the_limit(self) -> None:
        state = _scene(100, 101, attempt_steps_per_pod=120, actions=()).state()
        decided = _cycle(state)
        while decided.undecided:
            state.advance(state.memory.set_aside["t/gang"].until)
            decided = _cycle(state)
        assert len(decided.starts) == 101

    def test_so_an_expensive_group_is_decided_later(self) -> None:
        state = self._state()
        self._limits(state, 1)
        assert len(_cycle(state).starts) == 31
        assert state.memory.attempt_limits == {}

    def test_it_stays_while_the_group_waits_for_something_else(self) -> None:
        state = self._state(gpus=20)
        self._limits(state, 2)
        assert isinstance(_cycle(state).waiting["t/gang"][0], NoRoom)
        state.put_node(replace(state.occupancy.nodes["n"], cpu=1_000_000))
        assert isinstance(_cycle(state).waiting["t/gang"][0], NoRoom)

    def test_it_ends_when_the_group_has_changed(self) -> None:
        state = self._state(200)
        self._limits(state, 2)
        state.put_group(replace(state.occupancy.groups["t/gang"], priority=1))
        assert 700 < self._limits(state, 1)[0] < 800

    def test_it_ends_with_the_group(self) -> None:
        state = self._state(200)
        self._limits(state, 1)
        assert state.memory.attempt_limits
        state.remove_group("t/gang")
        _cycle(state)
        assert state.memory.attempt_limits == {}


def test_an_honest_gang_is_decided_by_default() -> None:
    nodes = [node(f"n{index:03}", 8) for index in range(500)]
    gang = group("gang", least=512)
    pods = [pod(gang, 4, rank=rank) for rank in range(512)]
    decided = Cluster(*nodes, queue("queue", quota=None), gang, *pods).decide()
    assert len(decided.starts) == 512


def test_a_gang_without_room_is_refused_and_not_undecided() -> None:
    decided = Scene().node("n", 8).queue("q").waits("gang", 9).plan()
    assert isinstance(decided.waiting["gang"][0], NoRoom)
    assert evicted(decided) == []
