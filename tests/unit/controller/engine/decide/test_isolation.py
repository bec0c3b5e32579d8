"""An error in the work for one group ends neither the cycle nor anything for the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.gangs import order
from controller.engine.decide.gangs.isolation import Isolation, earlier, next_end
from controller.engine.decide.gangs.next_chunks import NextChunks
from controller.engine.decide.starts import promise
from controller.engine.decide.starts.allocation import Allocating
from controller.engine.decide.starts.reservation import Reservations
from controller.engine.decide.victims import stale
from controller.engine.decide.victims.eviction import MakingRoom
from controller.engine.model.group import Group
from controller.engine.model.plan import Action, Plan, SetAsideGroup
from controller.engine.model.pod import Evicting
from controller.engine.model.reason import DecisionFailed
from controller.engine.state.state import State
from tests.unit.controller.engine.properties.following import observe
from tests.unit.controller.engine.scene import NOW, Scene, evicted, isolation_of, only, started


class OddError(Exception):
    """What nobody expects."""


def fails_for(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, key: str, *, late: bool = False
) -> None:
    """Has a function fail for a group, which is one of its arguments; `late`: once it is done."""
    known: Callable[..., Any] = getattr(where, name)

    def odd(*arguments: Any, **named: Any) -> Any:
        concerns = any(isinstance(one, Group) and one.key == key for one in arguments)
        if concerns and not late:
            raise OddError("of somebody's object")
        found = known(*arguments, **named)
        if concerns:
            raise OddError("of somebody's object")
        return found

    monkeypatch.setattr(where, name, odd)


def _two() -> Scene:
    """A group that will fail, and one of another queue, with room for both."""
    scene = Scene().node("n", 2).queue("q").queue("r")
    return scene.waits("bad", created=NOW - 9).waits("good", queue="r", created=NOW)


@pytest.mark.parametrize(
    ("where", "name", "late"),
    [
        (order, "rank_of_group", False),
        (NextChunks, "asked", False),
        (Allocating, "_attempt", False),
        (Allocating, "_attempt", True),
        (Reservations, "end", False),
    ],
)
def test_others_start(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, late: bool
) -> None:
    fails_for(monkeypatch, where, name, "bad", late=late)
    decided = _two().plan()
    assert started(decided) == {"good-0": "n"}
    assert decided.waiting == {"bad": (DecisionFailed("OddError", NOW + 10),)}


def test_the_failure_is_in_the_plan_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_for(monkeypatch, Allocating, "_attempt", "bad")
    (failure,) = _two().plan().failures
    assert (failure.group, failure.times) == ("bad", 1)
    assert "OddError: of somebody's object" in failure.traceback


def test_the_reason_does_not_tell_the_text_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_for(monkeypatch, Allocating, "_attempt", "bad")
    (reason,) = _two().plan().waiting["bad"]
    assert "somebody" not in str(reason)


def _victims() -> Scene:
    """Two groups that run, and two that come before them, each of which needs one of their GPUs."""
    scene = Scene(**only(Action.PREEMPT)).node("n", 1).node("m", 1).queue("q")
    scene.runs("old", "n").runs("older", "m")
    return scene.waits("bad", priority=2).waits("good", priority=1)


@pytest.mark.parametrize("name", ["concerns", "attempt"])
@pytest.mark.parametrize("late", [False, True])
def test_others_make_room(monkeypatch: pytest.MonkeyPatch, name: str, late: bool) -> None:
    fails_for(monkeypatch, MakingRoom, name, "bad", late=late)
    decided = _victims().plan()
    assert [(one.group, one.action) for one in decided.evictions] == [("good", Action.PREEMPT)]
    assert isinstance(decided.waiting["bad"][-1], DecisionFailed)


def test_an_attempt_that_fails_at_its_end_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in places, devices and budgets, and not in what protects groups or whom they go for."""
    fails_for(monkeypatch, MakingRoom, "attempt", "bad", late=True)
    with_bad = _victims().plan()
    without = _victims()
    del without.groups["bad"]
    del without.pods["bad-0"]
    assert with_bad.evictions == without.plan().evictions
    assert with_bad.nominations == without.plan().nominations


def test_evictions_that_an_attempt_took_over_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second group takes the place that was made for the first, and then fails."""
    scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q")
    scene.runs("old", "n").waits("first", priority=1).waits("bad", priority=2, created=NOW)
    whole = scene.plan()
    assert [one.group for one in whole.evictions] == ["bad"]
    fails_for(monkeypatch, MakingRoom, "attempt", "bad", late=True)
    assert [one.group for one in scene.plan().evictions] == ["first"]


def test_the_state_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_for(monkeypatch, MakingRoom, "attempt", "bad", late=True)
    state = _victims().state()
    state.refresh()
    before = observe(state)
    Engine(state).decide()
    assert observe(state) == before


def test_a_promise_that_cannot_be_kept_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = _victims()
    decided = scene.plan()
    scene.memory = decided.memory
    for gone in decided.evictions:
        name = gone.pod.removeprefix("t/")
        scene.pods[name] = replace(scene.pods[name], state=Evicting(gone.node))
    fails_for(monkeypatch, promise, "is_satisfied", "bad")
    decided = scene.plan()
    assert [one.pod for one in decided.nominations] == ["t/good-0"]
    assert isinstance(decided.waiting["bad"][-1], DecisionFailed)


def test_a_stale_group_that_fails_keeps_others_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(**only(Action.STALE), staleness_grace=0).node("n", 4).queue("q")
    for name in ("bad", "good"):
        scene.runs(name, "n", least=2, stale_since=NOW - 9)
    scene.waits("other", gpus=3)
    fails_for(monkeypatch, stale, "is_satisfied", "bad")
    assert evicted(scene.plan()) == ["good-0"]


class TestTimes:
    """A group that is set aside is asked again later and later, or when it has changed."""

    @pytest.fixture(autouse=True)
    def _bad(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fails_for(monkeypatch, Allocating, "_attempt", "bad")

    def _state(self) -> State:
        state = _two().state()
        self._cycle(state)
        return state

    def _cycle(self, state: State) -> Plan:
        decided = Engine(state).decide()
        state.memory = decided.memory
        return decided

    def test_it_is_not_asked_before_its_time_although_much_changes(self) -> None:
        state = self._state()
        for second in range(1, 10):
            state.put_node(Scene().node(f"more{second}").nodes[f"more{second}"])
            state.advance(NOW + second)
            decided = self._cycle(state)
            assert decided.failures == ()
            assert decided.wake == NOW + 10
            assert isinstance(decided.waiting["bad"][-1], DecisionFailed)

    def test_its_time_doubles_up_to_a_quarter_of_an_hour(self) -> None:
        state = self._state()
        waits = []
        for _ in range(9):
            wake = state.memory.set_aside["bad"].until
            waits.append(wake - state.now)
            state.advance(wake)
            self._cycle(state)
        assert waits == [10, 20, 40, 80, 160, 320, 640, 900, 900]

    def test_it_is_asked_again_when_it_has_changed(self) -> None:
        state = self._state()
        state.put_group(replace(state.occupancy.groups["bad"], priority=1))
        assert self._cycle(state).failures[0].times == 1

    def test_what_is_refused_to_others_is_not_asked_again_for_it(self) -> None:
        scene = Scene().node("n", 2).queue("q").waits("bad").waits("large", gpus=9)
        state = scene.state()
        self._cycle(state)
        state.advance(NOW + 10)
        decided = self._cycle(state)
        assert (len(decided.failures), decided.steps) == (1, 0)

    def test_it_starts_when_it_fails_no_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        state = self._state()
        monkeypatch.undo()
        state.advance(NOW + 10)
        decided = self._cycle(state)
        assert started(decided)["bad-0"] == "n"
        assert decided.memory.set_aside == {}


def test_a_group_that_fails_several_times_in_a_cycle_has_failed_once() -> None:
    scene = _two()
    isolation, group = isolation_of(scene.state()), scene.groups["bad"]

    def odd() -> None:
        raise OddError

    for _ in range(2):
        isolation.run(group, odd)
    assert [one.times for one in isolation.failures] == [1]


def test_a_group_that_costs_too_much_several_times_in_a_cycle_is_undecided_once() -> None:
    scene = _two()
    trial = scene.trial()
    isolation, group = Isolation(trial), scene.groups["bad"]
    for _ in range(2):
        isolation.run_within_limit(group, lambda: trial.places.budget.spend(2 * isolation.limit))
    assert isolation.undecided == ["bad"]


def test_work_for_others_that_costs_too_much_is_undone_and_sets_nobody_aside() -> None:
    trial = _victims().trial()
    state = trial.state
    state.refresh()
    before, isolation = observe(state), Isolation(trial)

    def evict_and_search() -> None:
        trial.evict(state.occupancy.pods["t/old-0"], Action.STALE, "old")
        trial.places.budget.spend(isolation.limit + 1)

    assert isolation.run_for_others(state.occupancy.groups["bad"], evict_and_search) is None
    assert trial.evictions == {}
    assert observe(state) == before
    assert isolation.set_aside == {}


def test_what_comes_after_the_work_for_a_group_is_not_within_its_limit() -> None:
    scene = _two()
    trial = scene.trial()
    isolation, group, before = Isolation(trial), scene.groups["bad"], trial.places.budget
    isolation.run_within_limit(group, lambda: None)
    isolation.run_for_others(group, lambda: None)
    assert trial.places.budget is before


def test_the_next_group_is_asked_when_the_first_time_that_is_to_come_is_over() -> None:
    known = {str(until): SetAsideGroup(until, 1, ()) for until in (NOW - 1, NOW, NOW + 9, NOW + 5)}
    assert next_end(known, NOW) == NOW + 5
    assert next_end({}, NOW) is None


def test_never_is_later_than_any_time() -> None:
    assert [earlier(5.0, 3.0), earlier(None, 3.0), earlier(5.0, None)] == [3.0, 3.0, 5.0]
    assert earlier(None, None) is None
