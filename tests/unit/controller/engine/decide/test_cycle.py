"""One cycle, and what it leaves to the next."""

from dataclasses import replace

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.model.group import PodSet, SubGroups
from controller.engine.model.plan import Action
from controller.engine.model.pod import Ended, PodNeeds
from controller.engine.model.reason import (
    Delayed,
    NoRoom,
    NoVictims,
    OverFairShare,
    SearchCut,
    TooFewPods,
    UnknownQueue,
)
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import (
    NOW,
    Scene,
    evicted,
    gpu_slice,
    nominated,
    only,
    started,
)


def _refused() -> Scene:
    """A group that waits for the only GPU."""
    return Scene(**only()).node("n", 1).queue("q").runs("old", "n").waits("new")


class TestOrderOfWork:
    def test_groups_start_before_anybody_is_evicted(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 2).queue("q").runs("old", "n")
        plan = scene.waits("new", priority=1).plan()
        assert (started(plan), evicted(plan)) == ({"new-0": "n"}, [])

    def test_a_group_that_has_started_grows_in_the_same_cycle(self) -> None:
        scene = Scene(**only()).node("n", 3).queue("q").waits("g", 3, least=1)
        assert len(started(scene.plan())) == 3

    def test_groups_that_grow_let_others_start_first(self) -> None:
        scene = Scene(**only()).node("n", 2).queue("q").waits("a", 2, least=1).waits("b")
        assert set(started(scene.plan())) == {"a-0", "b-0"}

    def test_a_group_moves_before_others_lose_something(self) -> None:
        scene = Scene(**only(Action.CONSOLIDATE, Action.PREEMPT)).queue("q")
        scene.node("a", 2).node("b", 2).runs("x", "a").runs("y", "b")
        plan = scene.waits("new", gpus=2, priority=1).plan()
        assert {one.action for one in plan.evictions} == {Action.CONSOLIDATE}

    def test_actions_have_the_order_of_the_settings(self) -> None:
        scene = Scene(**only(Action.PREEMPT, Action.CONSOLIDATE)).queue("q")
        scene.node("a", 2).node("b", 2).runs("x", "a").runs("y", "b")
        plan = scene.waits("new", gpus=2, priority=1).plan()
        assert {one.action for one in plan.evictions} == {Action.PREEMPT}

    def test_nothing_starts_unless_groups_are_allocated(self) -> None:
        scene = Scene(**only(), allocates=False).node("n", 1).queue("q").waits("new")
        assert started(scene.plan()) == {}


class TestReasons:
    def test_a_queue_that_does_not_exist(self) -> None:
        plan = Scene().waits("new", queue="gone").plan()
        assert plan.waiting == {"new": (UnknownQueue("gone", exists=False),)}

    def test_a_queue_with_children(self) -> None:
        plan = Scene().queue("top").queue("q", "top").waits("new", queue="top").plan()
        assert plan.waiting == {"new": (UnknownQueue("top", exists=True),)}

    def test_every_action_that_was_tried_gives_one(self) -> None:
        scene = Scene().node("n", 1).queue("q").runs("old", "n").waits("new", created=1)
        reasons = scene.plan().waiting["new"]
        assert [type(reason) for reason in reasons] == [NoRoom, NoVictims, OverFairShare, NoVictims]

    def test_nobody_is_evicted_for_a_group_with_too_few_pods(self) -> None:
        scene = Scene().node("n", 1).queue("q").runs("old", "n")
        plan = scene.waits("new", 1, least=2, priority=1).plan()
        assert (plan.waiting, evicted(plan)) == ({"new": (TooFewPods("", 1, 2),)}, [])

    def test_a_group_that_gets_everything_has_none(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q").runs("old", "n")
        plan = scene.waits("new", priority=1).plan()
        assert plan.waiting == {}

    def test_a_group_of_no_object_is_not_asked(self) -> None:
        scene = _refused()
        del scene.groups["new"]
        assert scene.plan().waiting == {}


class TestMemory:
    """What was refused is not asked again before something relevant has changed."""

    def _cycle(self, state: State) -> int:
        """Decides; the placements that this took."""
        plan = Engine(state).decide()
        state.memory = plan.memory
        assert plan.waiting.keys() == {"new"}
        return plan.steps

    def test_nothing_is_asked_again_when_nothing_has_changed(self) -> None:
        state = _refused().state()
        assert [self._cycle(state), self._cycle(state)] == [1, 0]

    def test_the_reasons_stay(self) -> None:
        scene = _refused()
        first = scene.plan()
        scene.memory = first.memory
        assert scene.plan().waiting == first.waiting

    def test_a_group_that_has_changed_is_asked_again(self) -> None:
        state = _refused().state()
        self._cycle(state)
        state.put_group(replace(state.occupancy.groups["new"], priority=2))
        assert self._cycle(state) == 1

    def test_another_group_that_waits_changes_nothing_for_it(self) -> None:
        scene = _refused()
        state = scene.state()
        self._cycle(state)
        late = scene.waits("late", queue="gone")
        state.put_group(late.groups["late"])
        state.put_claim(late.claims["late-0"])
        state.put_pod(late.pods["late-0"])
        assert Engine(state).decide().steps == 0

    @pytest.mark.parametrize("event", ["node", "node gone", "devices", "pod ended", "pod gone"])
    def test_all_are_asked_again_when_there_may_be_room(self, event: str) -> None:
        scene = _refused().node("other")
        state = scene.state()
        self._cycle(state)
        match event:
            case "node":
                state.put_node(replace(scene.nodes["other"], cpu=1))
            case "node gone":
                state.remove_node("other")
            case "devices":
                state.put_devices(gpu_slice("other", 1))
            case "pod ended":
                state.put_pod(replace(scene.pods["old-0"], state=Ended(succeeded=True)))
            case _:
                state.remove_pod("t/old-0")
        assert Engine(state).decide().steps > 0

    def test_budgets_that_change_count_as_well(self) -> None:
        state = _refused().state()
        self._cycle(state)
        state.put_budgets({"b": 1})
        assert self._cycle(state) == 1

    def test_time_alone_changes_an_answer_when_the_plan_says_so(self) -> None:
        scene = Scene(**only(Action.PREEMPT), preempt_min_runtime=10).node("n", 1).queue("q")
        scene.runs("old", "n", started=NOW - 4).waits("new", priority=1)
        state = scene.state()
        plan = Engine(state).decide()
        assert plan.wake == NOW + 6
        state.memory = plan.memory
        state.advance(NOW + 5)
        assert Engine(state).decide().evictions == ()
        state.advance(NOW + 6)
        assert evicted(Engine(state).decide()) == ["old-0"]

    def test_a_min_runtime_ends_although_cycles_in_between_ask_nobody(self) -> None:
        scene = Scene(**only(Action.PREEMPT), preempt_min_runtime=10).node("n", 1).queue("q")
        scene.runs("old", "n", started=NOW - 4).waits("new", priority=1)
        assert self._evicted_in_time(scene.state()) == ["old-0"]

    def test_a_preemption_delay_ends_although_cycles_in_between_ask_nobody(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q").runs("old", "n")
        scene.waits("new", priority=1, created=NOW - 4, preemption_delay=10)
        assert self._evicted_in_time(scene.state()) == ["old-0"]

    def _evicted_in_time(self, state: State) -> list[str]:
        """Who is evicted 6 seconds from now, with cycles until then that ask nobody."""
        self._cycle(state)
        for second in range(1, 6):
            state.advance(NOW + second)
            plan = Engine(state).decide()
            assert (plan.steps, plan.wake) == (0, NOW + 6)
            state.memory = plan.memory
        state.advance(NOW + 6)
        return evicted(Engine(state).decide())

    def test_the_state_is_the_same_after_a_cycle(self) -> None:
        state = Scene().node("n", 1).queue("q").runs("old", "n").waits("new", priority=1).state()
        engine = Engine(state)
        assert engine.decide() == engine.decide()


class TestDelay:
    def test_nobody_is_evicted_for_a_group_before_its_delay(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q").runs("old", "n")
        scene.waits("new", priority=1, created=NOW - 4, preemption_delay=10)
        plan = scene.plan()
        assert plan.waiting["new"][-1] == Delayed(NOW + 6)
        assert (evicted(plan), plan.wake) == ([], NOW + 6)
        scene.now = NOW + 6
        assert evicted(scene.plan()) == ["old-0"]

    def test_it_counts_from_the_last_eviction_of_the_group(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q").runs("old", "n")
        scene.waits("new", priority=1, created=0, evicted=NOW - 1, preemption_delay=10)
        assert scene.plan().waiting["new"][-1] == Delayed(NOW + 9)

    def test_a_free_place_needs_no_delay(self) -> None:
        scene = Scene().node("n", 1).queue("q")
        plan = scene.waits("new", created=NOW, preemption_delay=10).plan()
        assert started(plan) == {"new-0": "n"}


class TestCursor:
    """A search that is cut short goes on in the next cycle where it ended."""

    def _scene(self, steps: int | None) -> Scene:
        # On each node but the last, a group that may not be evicted has the cpu.
        scene = Scene(**only(Action.PREEMPT), search_steps=steps).queue("q")
        for index in range(6):
            scene.node(f"n{index}", 2).group(f"hard{index}", priority=9)
            scene.pod(f"hard{index}", f"n{index}", gpus=0, needs=PodNeeds(cpu=60_000))
            scene.runs(f"soft{index}", f"n{index}", gpus=2, created=-index)
        scene.node("z", 2).runs("last", "z", gpus=2, created=-9)
        return scene.waits("new", gpus=2, priority=5, needs=PodNeeds(cpu=10_000))

    def test_without_a_limit_one_cycle_does(self) -> None:
        assert evicted(self._scene(None).plan()) == ["last-0"]

    def test_with_a_limit_several_cycles_do(self) -> None:
        scene = self._scene(4)
        looked = []
        while not (plan := scene.plan()).evictions:
            reason = plan.waiting["new"][-1]
            assert isinstance(reason, SearchCut)
            assert reason.looked_at not in looked
            looked.append(reason.looked_at)
            scene.memory = plan.memory
        assert evicted(plan) == ["last-0"]
        assert looked == sorted(looked)
        assert len(looked) > 1

    def test_a_group_that_is_cut_short_is_asked_again(self) -> None:
        memory = self._scene(4).plan().memory
        assert set(memory.cursors) == {"new"}
        assert "new" not in memory.refusals

    def test_the_next_actions_wait_for_it(self) -> None:
        scene = self._scene(4)
        scene.settings = replace(scene.settings, actions=(Action.RECLAIM, Action.PREEMPT))
        scene.queue("other").runs("theirs", "n0", queue="other", priority=0)
        plan = scene.plan()
        assert evicted(plan) == []
        assert len({one.action for one in plan.memory.cursors.values()}) == 1

    def test_actions_that_came_before_it_are_not_tried_again(self) -> None:
        scene = self._scene(4).queue("q", weight=0)
        scene.settings = replace(scene.settings, actions=(Action.RECLAIM, Action.PREEMPT))
        first = scene.plan()
        assert [type(one) for one in first.waiting["new"]] == [NoRoom, OverFairShare, SearchCut]
        scene.memory = first.memory
        assert [type(one) for one in scene.plan().waiting["new"]] == [NoRoom, SearchCut]


def test_fair_shares_are_told_by_queue_and_resource() -> None:
    scene = Scene().node("n", 4).queue("a").queue("b").waits("x", 8, queue="a")
    assert scene.plan().fair_shares == {"a": {"deviceClass gpu": 4}, "b": {"deviceClass gpu": 0}}


def test_a_plan_is_empty_when_nothing_is_to_be_done() -> None:
    assert _refused().plan().is_empty
    assert not Scene().node("n", 1).queue("q").waits("new").plan().is_empty


def test_nominations_of_pods_that_move_are_not_remembered() -> None:
    scene = Scene(**only(Action.CONSOLIDATE)).queue("q")
    scene.node("a", 2).node("b", 2).runs("x", "a").runs("y", "b")
    plan = scene.waits("new", gpus=2).plan()
    assert len(nominated(plan)) == 2
    assert [one.pod for one in plan.memory.nominations] == ["t/new-0"]


def test_a_group_whose_sub_groups_lack_pods_is_broken() -> None:
    scene = Scene(**only(Action.STALE)).node("n", 4).queue("q")
    parts = (PodSet("a", 1), PodSet("b", 1))
    scene.group("g", root=SubGroups("", parts, 2), stale_since=0).pod("g", "n", pod_set="a")
    assert scene.plan().stale == ("g",)
