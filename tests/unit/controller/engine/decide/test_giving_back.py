"""What a queue has borrowed is given back in time, whatever the grace period of its pods."""

from dataclasses import replace

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.places import PlaceFinder
from controller.engine.model.plan import Action, BudgetClock, CarriedOver, Plan
from controller.engine.model.pod import Evicting, PodNeeds
from controller.engine.model.queue import Entitlement, Hold, RespectBudgets
from controller.engine.model.resource import Cpu
from tests.unit.controller.engine.scene import NOW, Scene, evicted, nominated, only, started

LINGERING = Evicting("n", stuck=True, lingers=True)


def _borrowed(**settings: object) -> Scene:
    """Four GPUs, all of which are guaranteed to `q`; the queue `thief` has none."""
    scene = Scene(**{**only(Action.RECLAIM), **settings}).node("n", 4)
    return scene.queue("q", quota=4).queue("thief", eviction_grace=10)


def test_free_devices_are_looked_for_only_if_nobody_has_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    has_free_devices = PlaceFinder.has_free_devices

    def noted(places: PlaceFinder) -> bool:
        asked.append(has_free_devices(places))
        return asked[-1]

    monkeypatch.setattr(PlaceFinder, "has_free_devices", noted)
    scene = _borrowed().runs("old", "n", gpus=4, queue="thief").waits("new", gpus=4)
    assert evicted(scene.plan()) == ["old-0"]
    assert not asked


class TestGracePeriods:
    def test_a_reclaimed_pod_gets_the_grace_of_its_queue(self) -> None:
        plan = _borrowed().runs("old", "n", gpus=4, queue="thief").waits("new", gpus=4).plan()
        assert [(one.pod, one.grace) for one in plan.evictions] == [("t/old-0", 10)]

    def test_a_preempted_pod_gets_it_too(self) -> None:
        """With a longer one it would be charged again, beside what has started in its place."""
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q", eviction_grace=10)
        plan = scene.runs("old", "n").waits("new", priority=1).plan()
        assert [one.grace for one in plan.evictions] == [10]

    def test_a_pod_of_a_stale_group_gets_it_too(self) -> None:
        scene = Scene(**only(Action.STALE)).node("n", 2).queue("q", eviction_grace=10)
        scene.runs("old", "n", least=2, stale_since=NOW - 60).waits("new", gpus=2)
        assert [one.grace for one in scene.plan().evictions] == [10]

    def test_a_pod_of_a_queue_that_is_emptied_gets_it_too(self) -> None:
        scene = Scene().node("n", 1).queue("q", eviction_grace=10, hold=Hold.DRAIN)
        assert [one.grace for one in scene.runs("old", "n").plan().evictions] == [10]

    def test_it_is_ten_minutes_where_no_queue_says_it(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q")
        plan = scene.runs("old", "n").waits("new", priority=1).plan()
        assert [one.grace for one in plan.evictions] == [600]


class TestLingeringPods:
    """Pods that their tenant deleted with a grace period that is longer than its queue allows."""

    def _lingering(self, **fields: object) -> Scene:
        scene = _borrowed().group("old", "thief")
        return scene.pod("old", "n", gpus=4, state=LINGERING, **fields)  # type: ignore[arg-type]

    def test_a_reclaim_makes_them_end_sooner(self) -> None:
        plan = self._lingering().waits("new", gpus=4).plan()
        assert evicted(plan) == ["old-0"]
        assert plan.evictions[0].grace == 10
        assert nominated(plan) == {"new-0": "n"}

    def test_they_need_not_move(self) -> None:
        plan = self._lingering().node("free", 4).waits("new", 2, gpus=4).plan()
        assert nominated(plan) | started(plan) == {}
        plan = self._lingering().node("free", 4).queue("q", quota=8).waits("new", 2, gpus=4).plan()
        assert evicted(plan) == ["old-0"]
        assert {*nominated(plan)} == {"new-0", "new-1"}

    def test_their_queue_is_charged_meanwhile(self) -> None:
        state = self._lingering().state()
        assert state.occupancy.accounts.allocated["thief"] == (4,)

    def test_those_of_a_queue_within_its_quota_are_left_alone(self) -> None:
        scene = self._lingering().queue("thief", quota=4).queue("q", quota=0)
        assert evicted(scene.waits("new", gpus=4).plan()) == []

    def test_a_preemption_does_not(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 4).queue("q").group("old")
        scene.pod("old", "n", gpus=4, state=LINGERING).waits("new", gpus=4, priority=1)
        assert evicted(scene.plan()) == []

    def test_those_whose_time_is_over_are_left_alone(self) -> None:
        scene = _borrowed().group("old", "thief")
        scene.pod("old", "n", gpus=4, state=Evicting("n", stuck=True)).waits("new", gpus=4)
        assert evicted(scene.plan()) == []


def _plan(scene: Scene) -> Plan:
    """What is decided once the time has come for which something was refused."""
    state = scene.state()
    state.advance(scene.now)
    return Engine(state).decide()


class TestDisruptionBudgets:
    """A budget that is spent guards what a queue has borrowed for its `evictionGrace`."""

    def _guarded(self, **fields: object) -> Scene:
        scene = _borrowed(**fields).runs("old", "n", gpus=4, queue="thief", budgets=("b",))
        scene.budgets["b"] = 0
        return scene.waits("new", gpus=4)

    def _later(self, scene: Scene, seconds: float) -> Plan:
        scene.memory = _plan(scene).memory
        scene.now += seconds
        return _plan(scene)

    def test_it_is_respected_at_first(self) -> None:
        plan = self._guarded().plan()
        assert evicted(plan) == []
        assert plan.wake == NOW + 10

    def test_the_group_that_waits_reads_of_it_without_its_name(self) -> None:
        reason = str(self._guarded().plan().waiting["new"][-1])
        assert "a disruption budget of queue thief refuses" in reason

    def test_it_is_not_respected_for_ever(self) -> None:
        plan = self._later(self._guarded(), 10)
        assert [(one.pod, one.grace, one.past_budgets) for one in plan.evictions] == [
            ("t/old-0", 10, True)
        ]
        assert nominated(plan) == {"new-0": "n"}

    def test_it_is_respected_until_its_time_is_over(self) -> None:
        assert evicted(self._later(self._guarded(), 9.9)) == []

    def test_one_that_is_created_again_gets_no_more_time(self) -> None:
        scene = self._guarded()
        scene.memory = _plan(scene).memory
        scene.now += 9
        scene.pods["old-0"] = replace(scene.pods["old-0"], budgets=("c", "d"))
        scene.budgets = {"c": 0, "d": 0}
        scene.memory = replace(scene.memory, refusals={})
        scene.memory = _plan(scene).memory
        scene.now += 1
        assert evicted(_plan(scene)) == ["old-0"]

    def test_pods_that_replace_guarded_ones_get_no_more_time(self) -> None:
        scene = self._guarded()
        scene.memory = _plan(scene).memory
        scene.now += 10
        scene.group("other", "thief")
        scene.pods["other-0"] = replace(scene.pods.pop("old-0"), key="t/other-0", group="other")
        assert evicted(_plan(scene)) == ["other-0"]

    def test_one_of_a_queue_that_has_them_respected_always_is(self) -> None:
        scene = self._guarded()
        scene.queue("thief", eviction_grace=10, respect_budgets=RespectBudgets.ALWAYS)
        assert evicted(self._later(scene, 1000)) == []

    def test_what_is_within_the_quota_stays_guarded(self) -> None:
        scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=3)
        scene.queue("thief", quota=1, eviction_grace=10)
        for name in ("a", "b", "c", "d"):
            scene.runs(name, "n", queue="thief", budgets=("b",), created=ord(name))
        scene.budgets["b"] = 0
        scene.waits("new", 4, least=0)
        plan = self._later(scene, 10)
        assert sorted(evicted(plan)) == ["b-0", "c-0", "d-0"]

    @pytest.mark.parametrize(("quota", "expected"), [(7, ["old-0"]), (8, [])])
    def test_so_does_what_is_within_the_quota_of_a_queue_above(
        self, quota: int, expected: list[str]
    ) -> None:
        """Although the queue above that one has more than its own."""
        scene = Scene(**only(Action.RECLAIM)).node("n", 8).queue("q", quota=4)
        scene.queue("top", quota=4).queue("middle", "top", quota=quota)
        scene.queue("thief", "middle", eviction_grace=10)
        scene.runs("old", "n", gpus=8, queue="thief", budgets=("b",)).waits("new", gpus=4)
        scene.budgets["b"] = 0
        assert evicted(self._later(scene, 10)) == expected

    def test_what_is_beyond_the_quota_of_one_resource_is_borrowed(self) -> None:
        scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=4)
        scene.queue("thief", eviction_grace=10)
        for name, cpu in (("q", None), ("thief", 64_000)):
            of = scene.queues[name]
            both = {**of.entitlements, Cpu(): Entitlement(cpu)}
            scene.queues[name] = replace(of, entitlements=both)
        needs = PodNeeds(cpu=8_000)
        scene.group("old", "thief").pod("old", "n", gpus=4, needs=needs, budgets=("b",))
        scene.budgets["b"] = 0
        assert evicted(self._later(scene.waits("new", gpus=4, needs=needs), 10)) == ["old-0"]

    def test_pods_without_a_budget_go_first(self) -> None:
        scene = _borrowed().runs("guarded", "n", gpus=2, queue="thief", budgets=("b",))
        scene.budgets["b"] = 0
        scene.runs("free", "n", gpus=2, queue="thief", created=-1).waits("new", gpus=2)
        clock = BudgetClock(NOW - 100, ("new",))
        scene.memory = CarriedOver(budget_refusals={"q": {"thief": clock}})
        assert evicted(_plan(scene)) == ["free-0"]

    def test_preemption_respects_it_always(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q", eviction_grace=10)
        scene.runs("old", "n", budgets=("b",)).waits("new", priority=1)
        scene.budgets["b"] = 0
        assert evicted(self._later(scene, 1000)) == []

    def test_preemption_starts_no_time(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 1).queue("q", eviction_grace=10)
        scene.runs("old", "n", budgets=("b",)).waits("new", priority=1)
        scene.budgets["b"] = 0
        plan = scene.plan()
        assert (plan.memory.budget_refusals, plan.wake) == ({}, None)

    def test_groups_that_ask_alike_wait_from_the_same_time_on(self) -> None:
        scene = _borrowed()
        for name in ("a", "b"):
            scene.runs(name, "n", gpus=2, queue="thief", budgets=("b",))
        scene.budgets["b"] = 0
        scene.waits("new", gpus=2).waits("next", gpus=2)
        assert sorted(evicted(self._later(scene, 10))) == ["a-0", "b-0"]


class TestGracePeriodsAfterBudgets:
    """A budget and a grace period together leave the claimant's queue without its quota once."""

    def _guarded(self, grace: float = 600, budgets: tuple[str, ...] = ("b",)) -> Scene:
        scene = _borrowed().queue("thief", eviction_grace=grace)
        scene.runs("old", "n", gpus=4, queue="thief", budgets=budgets)
        scene.budgets["b"] = 0
        return scene.waits("new", gpus=4)

    def _refused(self, scene: Scene, seconds: float) -> Scene:
        """The scene, some time after a budget has refused the group."""
        scene.memory = replace(_plan(scene).memory, refusals={})
        scene.now += seconds
        return scene

    def test_a_pod_past_its_budgets_has_half_a_minute(self) -> None:
        plan = _plan(self._refused(self._guarded(), 600))
        assert [(one.grace, one.past_budgets) for one in plan.evictions] == [(30, True)]

    def test_one_whose_queue_allows_less_has_that(self) -> None:
        plan = _plan(self._refused(self._guarded(grace=7), 7))
        assert [one.grace for one in plan.evictions] == [7]

    def test_one_that_its_budget_lets_go_meanwhile_has_what_is_left(self) -> None:
        scene = self._refused(self._guarded(), 400)
        scene.budgets["b"] = 4
        plan = _plan(scene)
        assert [(one.grace, one.past_budgets) for one in plan.evictions] == [(200, False)]

    def test_one_that_is_deleted_with_a_longer_grace_meanwhile_has_what_is_left(self) -> None:
        scene = self._refused(self._guarded(), 400)
        scene.pods["old-0"] = replace(scene.pods["old-0"], state=LINGERING, budgets=())
        assert [one.grace for one in _plan(scene).evictions] == [200]

    def test_a_queue_that_no_budget_has_refused_gives_the_whole(self) -> None:
        scene = self._refused(self._guarded(), 400)
        scene.queue("third", quota=4)
        del scene.groups["new"], scene.pods["new-0"]
        scene.budgets["b"] = 4
        plan = _plan(scene.waits("else", queue="third", gpus=4).queue("q", quota=0))
        assert [one.grace for one in plan.evictions] == [600]

    def test_a_group_in_place_of_the_one_that_waited_waits_no_longer(self) -> None:
        scene = self._refused(self._guarded(), 500)
        del scene.groups["new"], scene.pods["new-0"]
        scene = self._refused(scene, 50)
        scene = self._refused(scene.waits("again", gpus=4), 50)
        assert [one.past_budgets for one in _plan(scene).evictions] == [True]

    def test_the_time_of_one_that_waits_beside_it_goes_on_without_it(self) -> None:
        scene = self._guarded().waits("next", gpus=4)
        scene = self._refused(scene, 100)
        del scene.groups["new"], scene.pods["new-0"]
        plan = _plan(scene)
        assert plan.memory.budget_refusals == {"q": {"thief": BudgetClock(NOW, ("next",))}}
        assert plan.wake == NOW + 600

    def test_one_that_comes_long_after_it_does(self) -> None:
        scene = self._refused(self._guarded(), 500)
        del scene.groups["new"], scene.pods["new-0"]
        scene = self._refused(scene, 600)
        plan = _plan(scene.waits("later", gpus=4))
        assert (evicted(plan), plan.wake) == ([], scene.now + 600)
