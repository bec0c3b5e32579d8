"""Decision time is shared by deficit: who asks expensively waits, and nobody else notices."""

from collections.abc import Container
from dataclasses import replace

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.queues.decision_time import DecisionTime
from controller.engine.model.group import Group, PodSet
from controller.engine.model.plan import Plan
from controller.engine.model.reason import Undecided
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import NOW, Scene, evicted, started

LIMIT = 100_000


def _group(key: str, queue: str = "q") -> Group:
    return Group(key, queue, PodSet("", 1))


def _asked(time: DecisionTime, *groups: Group) -> list[str]:
    asked, late = time.turn(groups)
    assert late == []
    return [group.key for group in asked]


class TestAccounts:
    def test_who_has_spent_little_owes_nothing(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT)
        time.charge(_group("a/g"), 10_000)
        assert time.debts() == {}

    def test_what_is_beyond_the_allowance_is_owed_by_queue_and_namespace(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT)
        time.charge(_group("a/g"), 15_000)
        time.charge(_group("b/g"), 11_000)
        assert time.debts() == {"q": 16_000, "q/a": 5_000, "q/b": 1_000}

    def test_nobody_waits_for_himself(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT)
        assert not time.parts([])
        assert not time.parts([_group("a/g"), _group("a/h")])
        assert time.parts([_group("a/g"), _group("b/g")]) == (time.has_spent_most,)
        of_two_queues = [_group("a/g"), _group("a/h", "r")]
        assert time.parts(of_two_queues) == (time.has_spent, time.has_spent_most)

    def test_each_cycle_pays_some_of_it(self) -> None:
        assert DecisionTime({"q": 16_000, "q/a": 5_000}, LIMIT, LIMIT).debts() == {"q": 6_000}

    def test_nobody_owes_more_than_one_attempt(self) -> None:
        time = DecisionTime({"q": LIMIT}, LIMIT, LIMIT)
        time.charge(_group("a/g"), 10 * LIMIT)
        assert time.debts()["q"] == LIMIT

    def test_queues_in_debt_are_not_asked_while_others_ask(self) -> None:
        time = DecisionTime({"q": 1}, LIMIT, LIMIT)
        assert _asked(time, _group("a/g"), _group("a/h", "r")) == ["a/h"]

    def test_they_are_asked_if_nobody_else_asks_who_owes_least_first(self) -> None:
        time = DecisionTime({"q": 2, "r": 1}, LIMIT, LIMIT)
        assert _asked(time, _group("a/g"), _group("a/h", "r")) == ["a/h"]
        assert _asked(time, _group("a/g")) == ["a/g"]

    def test_of_those_who_owe_equally_little_the_first_by_name_is_asked(self) -> None:
        queues = "hcafbegd"
        time = DecisionTime(dict.fromkeys(queues, 1), LIMIT, LIMIT)
        assert _asked(time, *(_group(f"{name}/g", name) for name in queues)) == ["a/g"]

    def test_debts_are_in_the_order_of_names_in_whatever_order_they_were_made(self) -> None:
        time = DecisionTime({"z": LIMIT}, LIMIT, LIMIT)
        for name in "hcafbegd":
            time.charge(_group("n/g", name), 20_000)
        assert list(time.debts()) == sorted(time.debts())

    def test_namespaces_in_debt_are_not_asked_while_others_of_the_queue_ask(self) -> None:
        time = DecisionTime({"q/a": 1}, LIMIT, LIMIT)
        assert _asked(time, _group("a/g"), _group("b/g")) == ["b/g"]
        assert _asked(time, _group("a/g"), _group("a/g", "r")) == ["a/g", "a/g"]

    def test_many_namespaces_are_no_larger_part_for_the_queue(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT)
        for index in range(20):
            time.charge(_group(f"n{index}/g"), 1_000)
        assert time.debts() == {"q": 10_000}

    def test_many_groups_are_no_larger_part_for_the_namespace(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT)
        for index in range(20):
            time.charge(_group(f"n/g{index}"), 1_000)
        assert time.debts() == {"q": 10_000, "q/n": 10_000}

    def test_namespaces_that_asked_in_vain_are_asked_after_others_until_their_time_is_over(
        self,
    ) -> None:
        time = DecisionTime({}, LIMIT, LIMIT, {"q/a": NOW + 1, "q/b": NOW}, NOW)
        groups = [_group("a/g"), _group("b/g"), _group("a/g", "r")]
        assert time.turn(groups) == (groups[1:], groups[:1])
        assert time.late() == {"q/a": NOW + 1}

    def test_who_asks_in_vain_is_late_and_is_asked_no_more_in_the_cycle(self) -> None:
        time = DecisionTime({}, LIMIT, LIMIT, {"q/b": NOW + 1}, NOW)
        assert not time.is_overdrawn(_group("a/g"))
        time.overdraw(_group("a/g"))
        assert time.is_overdrawn(_group("a/h"))
        assert not time.is_overdrawn(_group("b/g"))
        assert not time.is_overdrawn(_group("a/g", "r"))
        assert time.late() == {"q/a": NOW + 300, "q/b": NOW + 1}

    @pytest.mark.parametrize(("steps", "has_spent"), [(99, False), (100, True)])
    def test_a_queue_has_had_its_part_of_the_cycle_once_it_is_spent(
        self, steps: int, *, has_spent: bool
    ) -> None:
        time = DecisionTime({}, LIMIT, 100)
        time.charge(_group("a/g"), steps)
        assert time.has_spent(_group("b/g")) is has_spent
        assert not time.has_spent(_group("a/g", "r"))


class TestCycles:
    """Gangs that cost more than an attempt may, and pods that arrive before each cycle."""

    def _state(self, hostile: int = 6) -> State:
        scene = Scene(attempt_steps=80_000, attempt_steps_per_node=0)
        scene.node("n", 64, pods=100_000).queue("evil", quota=64).queue("good", quota=8)
        for index in range(hostile):
            scene.group(f"evil/g{index}", "evil", PodSet("", 1_000), created=NOW - 9)
        state = scene.state()
        for index in range(hostile):
            self._add_pods(state, f"evil/g{index}", 1_000)
        return state

    def _add_pods(self, state: State, key: str, pods: int = 1) -> None:
        template = Scene().waits("x", gpus=0).pods["x-0"]
        for rank in range(pods):
            needs = replace(template.needs, cpu=0)
            state.put_pod(
                replace(template, key=f"{key}-{rank}", group=key, rank=rank, needs=needs, claims=())
            )

    def _arrive(self, state: State, key: str, queue: str) -> None:
        state.put_group(replace(_group(key, queue), created=NOW))
        self._add_pods(state, key)

    def _cycle(self, state: State) -> Plan:
        decided = Engine(state).decide()
        state.memory = decided.memory
        return decided

    def test_others_start_while_who_asks_expensively_waits(self) -> None:
        state = self._state()
        self._cycle(state)
        for turn in (1, 2):
            self._arrive(state, f"good/p{turn}", "good")
            for key in list(state.memory.set_aside):  # they change, so that they are asked again
                state.put_group(replace(state.occupancy.groups[key], priority=turn))
            decided = self._cycle(state)
            assert f"good/p{turn}-0" in started_keys(decided)
            assert decided.undecided == ()
            assert decided.is_unfinished
            for start in decided.starts:
                state.remove_pod(start.pod)

    def test_who_changes_groups_all_the_time_pays_for_each_fresh_attempt(self) -> None:
        state, cycles, spent = self._state(), 20, 0
        for turn in range(cycles):
            self._arrive(state, f"good/p{turn}", "good")
            for index in range(6):  # a changed group has a fresh first limit
                state.put_group(replace(state.occupancy.groups[f"evil/g{index}"], priority=turn))
            decided = self._cycle(state)
            assert f"good/p{turn}-0" in started_keys(decided)
            assert decided.steps <= 20_000 + 1_000, "one first attempt, and who has come"
            spent += decided.steps
            for start in decided.starts:
                state.remove_pod(start.pod)
        assert spent <= cycles * (10_000 + 1_000) + 20_000, "the allowance, and one attempt"

    @pytest.mark.parametrize("queues", [3, 12])
    def test_however_many_ask_expensively_who_comes_starts_at_once(self, queues: int) -> None:
        scene = Scene(attempt_steps=80_000, attempt_steps_per_node=0).node("n", 64, pods=100_000)
        scene.queue("good", quota=0)
        for index in range(queues):
            scene.queue(f"evil{index}", quota=64)
            scene.group(f"e{index}/g", f"evil{index}", PodSet("", 1_000), created=NOW - 9)
        state = scene.state()
        for index in range(queues):
            self._add_pods(state, f"e{index}/g", 1_000)
        for _ in range(queues + queues // 2):
            decided = Engine(state).decide(lambda: 0.1)  # after an attempt in vain time is up
            state.memory = decided.memory
            for key in decided.undecided:  # it changes, so that it is asked again
                group = state.occupancy.groups[key]
                state.put_group(replace(group, priority=1 - group.priority))
            assert decided.undecided
        self._arrive(state, "good/p", "good")
        assert started_keys(Engine(state).decide(lambda: 0.1)) == ["good/p-0"]

    def test_room_is_made_for_all_others_before_who_asks_expensively(self) -> None:
        scene = Scene(attempt_steps=80_000, attempt_steps_per_node=0).node("n", 8, pods=100_000)
        scene.queue("evil", quota=0).queue("owner", quota=8)
        scene.runs("borrowed", *["n"] * 8, queue="evil", least=0)
        scene.group("evil/g", "evil", PodSet("", 1_000), created=NOW - 9)
        for index in range(4):
            scene.waits(f"o{index}", queue="owner")
        scene.memory = replace(scene.memory, asked_late={"evil/evil": NOW + 1})
        state = scene.state()
        self._add_pods(state, "evil/g", 1_000)
        decided = Engine(state).decide(lambda: 0.1)  # after an attempt in vain time is up
        assert len(decided.evictions) == 4
        state.memory = decided.memory
        assert Engine(state).decide(lambda: 0.1).undecided == ("evil/g",)

    def test_an_attempt_of_who_asks_expensively_gives_way_to_who_comes(self) -> None:
        state = self._state(1)
        self._cycle(state)
        state.put_group(replace(state.occupancy.groups["evil/g0"], priority=1))
        asked: list[Container[str]] = []

        def come(besides: Container[str]) -> bool:
            asked.append(besides)
            return "good" not in besides

        decided = Engine(state).decide(newcomers=come)
        assert asked == [{"evil"}], "it ends at the first look"
        assert (decided.undecided, decided.is_unfinished) == ((), True)
        assert decided.memory.deferred == ("evil/g0",)
        assert decided.memory.debts["evil"] > 0, "it is charged for what was in vain"

    def test_others_that_ask_expensively_are_nobody_to_give_way_to(self) -> None:
        state = self._state(1)
        self._cycle(state)
        state.put_group(replace(state.occupancy.groups["evil/g0"], priority=1))
        decided = Engine(state).decide(newcomers=lambda besides: "evil" not in besides)
        assert decided.undecided == ("evil/g0",)

    @pytest.mark.parametrize(
        ("limit", "most", "seconds"), [(10_000, 300, 10), (20_000, 300, 20), (20_000, 15, 15)]
    )
    def test_it_gives_way_for_a_hundred_times_as_long_as_it_takes(
        self, limit: int, most: float, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("controller.engine.decide.gangs.isolation._GIVES_WAY", most)
        state = self._state(1)
        self._cycle(state)
        state.put_group(replace(state.occupancy.groups["evil/g0"], priority=1))
        for now in (0, seconds / 2, seconds - 1):
            state.memory = replace(
                state.memory,
                attempt_limits={"evil/g0": limit},
                asked_late={"evil/evil": NOW + 1_000},  # for attempts of other groups
            )
            state.advance(NOW + now)
            decided = Engine(state).decide(newcomers=lambda _: True)
            assert decided.undecided == ()
            state.memory = decided.memory
        state.advance(NOW + seconds)
        decided = Engine(state).decide(newcomers=lambda _: True)
        assert decided.undecided == ("evil/g0",)
        assert decided.memory.gives_way_since == {}

    def test_a_first_attempt_gives_way_to_nobody(self) -> None:
        decided = Engine(self._state(1)).decide(newcomers=lambda _: True)
        assert decided.undecided == ("evil/g0",)

    def test_what_others_get_is_written_before_who_asks_expensively_is_asked(self) -> None:
        state = self._state(1)
        state.memory = replace(state.memory, asked_late={"evil/evil": NOW + 300})
        self._arrive(state, "good/p1", "good")
        first = self._cycle(state)
        assert (started_keys(first), first.undecided) == (["good/p1-0"], ())
        assert first.is_unfinished
        self._arrive(state, "good/p2", "good")
        second = self._cycle(state)  # not passed over again
        assert "good/p2-0" in started_keys(second)
        assert second.undecided == ("evil/g0",)

    def test_what_is_stale_goes_for_who_asked_expensively_too(self) -> None:
        scene = Scene().node("n", 8).queue("q", quota=8)
        scene.group("stale", "q", PodSet("", 2), stale_since=NOW - 100, started=NOW - 200)
        scene.pod("stale", "n", gpus=8)
        scene.waits("g", gpus=8)
        scene.memory = replace(scene.memory, asked_late={"q/t": NOW + 1, "q/g": NOW + 1})
        assert evicted(scene.plan()) == ["stale-0"]

    def test_who_asked_expensively_is_late_for_a_while(self) -> None:
        state = self._state(1)
        decided = self._cycle(state)
        assert decided.memory.asked_late == {"evil/evil": NOW + 300}
        state.advance(NOW + 299)
        assert self._cycle(state).memory.asked_late.keys() == {"evil/evil"}
        state.memory = replace(state.memory, attempt_limits={})
        state.advance(NOW + 10_000)
        state.remove_group("evil/g0")
        assert self._cycle(state).memory.asked_late == {}

    def test_it_is_asked_when_nobody_else_asks(self) -> None:
        state = self._state(1)
        self._cycle(state)
        state.put_group(replace(state.occupancy.groups["evil/g0"], priority=1))
        assert self._cycle(state).undecided == ("evil/g0",)

    def test_a_namespace_that_asks_expensively_keeps_no_other_of_its_queue_waiting(self) -> None:
        state = self._state()
        self._cycle(state)
        for key in list(state.memory.set_aside):
            state.put_group(replace(state.occupancy.groups[key], priority=1))
        self._arrive(state, "honest/p", "evil")
        decided = self._cycle(state)
        assert started_keys(decided) == ["honest/p-0"]
        assert decided.undecided == ()

    def _refused(self, gangs: int) -> State:
        """Gangs that cost less than a first attempt may, and have no room for their last pods."""
        scene = Scene(attempt_steps=40_000, attempt_steps_per_node=0)
        scene.node("n", cpu=90, pods=100_000).queue("shared", quota=None)
        scene.queue("other", quota=None)
        for index in range(gangs):
            scene.group(f"evil/g{index}", "shared", PodSet("", 100), created=NOW - 9)
        state = scene.state()
        template = Scene().waits("x", gpus=0).pods["x-0"]
        for index in range(gangs):
            for rank in range(100):
                key = f"evil/g{index}"
                needs = replace(template.needs, cpu=1, memory=index)  # no two of them are alike
                pod = replace(template, key=f"{key}-{rank}", group=key, rank=rank, claims=())
                state.put_pod(replace(pod, needs=needs))
        return state

    def test_a_namespace_that_is_refused_at_great_cost_starves_no_other_of_its_queue(self) -> None:
        state = self._refused(12)
        assert self._cycles_until_start(state, looks=800) == 1  # time for some of the gangs

    def test_who_was_left_out_keeps_its_turn_while_its_queue_is_in_debt(self) -> None:
        state = self._refused(12)
        assert self._cycles_until_start(state, looks=70) < 5  # not even time for one of them

    def _cycles_until_start(self, state: State, looks: int) -> int:
        """After how many cycles of so many looks a pod starts whose queue has room, if others ask
        in each.
        """
        self._arrive(state, "honest/p", "shared")
        for turn in range(40):
            self._arrive(state, f"good/p{turn}", "other")
            count = iter(range(1, 1_000_000))
            decided = Engine(state).decide(lambda: next(count) / looks)  # noqa: B023
            state.memory = decided.memory
            for start in decided.starts:
                state.remove_pod(start.pod)
            if "honest/p-0" in started_keys(decided):
                return turn + 1
        return 40

    def test_a_cycle_has_one_attempt_in_vain_of_each_namespace(self) -> None:
        state = self._state(3)
        for count in (1, 2, 3):
            decided = self._cycle(state)
            assert len(decided.undecided) == 1
            assert len(decided.memory.set_aside) == count
            assert decided.is_unfinished == (count < 3)

    def test_a_group_that_an_attempt_in_vain_kept_waiting_is_asked_by_the_next_cycle(self) -> None:
        state = self._state(1)
        state.put_group(replace(state.occupancy.groups["evil/g0"], priority=1))
        self._arrive(state, "evil/p", "evil")
        first = self._cycle(state)
        assert (started(first), first.memory.held_back) == ({}, ("evil/p",))
        assert started_keys(self._cycle(state)) == ["evil/p-0"]

    def test_others_come_before_the_second_attempt_of_who_asks_expensively(self) -> None:
        state = self._state(2)
        self._arrive(state, "good/p", "good")
        looks = iter([0, 0, 0, 0, 0])  # time is up once two groups have been asked
        decided = Engine(state).decide(lambda: next(looks, 1.0))
        assert started_keys(decided) == ["good/p-0"]

    def test_who_changes_its_group_again_and_again_pays_for_each_attempt(self) -> None:
        state = self._state(1)
        cycles, undecided = 20, 0
        for turn in range(cycles):
            self._arrive(state, f"good/p{turn}", "good")
            state.put_group(replace(state.occupancy.groups["evil/g0"], priority=turn))
            decided = self._cycle(state)
            undecided += len(decided.undecided)
            assert f"good/p{turn}-0" in started_keys(decided)
            for start in decided.starts:
                state.remove_pod(start.pod)
        assert undecided <= cycles / 2  # an attempt costs two allowances

    def test_an_attempt_in_vain_ends_the_cycle_and_others_come_first_in_the_next(self) -> None:
        state = self._state(1)
        self._arrive(state, "evil/p", "evil")
        first = Engine(state).decide(lambda: 0.1)
        assert (first.undecided, started(first)) == (("evil/g0",), {})
        assert first.is_unfinished
        state.memory = first.memory
        self._arrive(state, "good/p", "good")
        assert started_keys(Engine(state).decide(lambda: 0.1)) == ["good/p-0"]

    def test_debts_end(self) -> None:
        state = self._state(1)
        decided = self._cycle(state)
        assert isinstance(decided.waiting["evil/g0"][-1], Undecided)
        for _ in range(5):
            self._cycle(state)
        assert state.memory.debts == {}

    def test_what_waits_for_its_turn_keeps_its_reason(self) -> None:
        scene = Scene().node("n", 1).queue("q").queue("r").waits("big", gpus=9)
        state = scene.state()
        before = self._cycle(state).waiting["big"]
        state.memory = replace(state.memory, debts={"q": 50_000})
        state.put_node(replace(state.occupancy.nodes["n"], cpu=1_000))
        self._arrive(state, "a/p", "r")
        decided = self._cycle(state)
        assert decided.memory.held_back == ("big",)
        assert decided.waiting["big"] == before
        assert started(decided)


def started_keys(decided: Plan) -> list[str]:
    """The keys of the pods that start."""
    return [start.pod for start in decided.starts]
