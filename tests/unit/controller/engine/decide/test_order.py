"""Whose turn it is, and who gives first."""

from typing import Any
from unittest.mock import patch

from controller.engine.decide.gangs import order
from controller.engine.decide.gangs.next_chunks import NextChunks
from controller.engine.decide.gangs.order import (
    QueueOrder,
    rank_of_group,
    rank_of_queue,
)
from controller.engine.decide.queues.givers import givers, gives_before
from controller.engine.model.group import PodSet
from tests.unit.controller.engine.scene import Scene, isolation_of, shares_of


def _turns(scene: Scene) -> list[str]:
    """The groups in the order of their turns, if none gets anything."""
    state = scene.state()
    turns = QueueOrder(
        state.occupancy,
        shares_of(state),
        [state.occupancy.groups[key] for key in sorted(state.waiting)],
        isolation_of(state),
    )
    found = []
    while (group := turns.pop()) is not None:
        found.append(group.key)
        turns.update([group.queue])
    return found


def test_a_queue_is_ranked_once_while_accounts_and_what_its_groups_ask_for_are_the_same() -> None:
    scene = Scene().queue("q")
    for name in "abcdefgh":
        scene.waits(name)
    with patch.object(order, "rank_of_queue", wraps=rank_of_queue) as ranks:
        assert len(_turns(scene)) == 8
    assert ranks.call_count == 1


class TestGroupsOfAQueue:
    def test_priority_comes_first(self) -> None:
        scene = Scene().queue("q").waits("low", created=1).waits("high", priority=1, created=2)
        assert _turns(scene) == ["high", "low"]

    def test_groups_without_their_minimum_come_before_those_that_grow(self) -> None:
        scene = Scene().node("n", 4).queue("q").waits("new", created=3)
        scene.runs("grows", "n", "n", least=1, created=1).pod("grows")
        scene.runs("whole", "n", created=2).pod("whole")
        assert _turns(scene) == ["new", "whole", "grows"]

    def test_the_oldest_comes_first(self) -> None:
        scene = Scene().queue("q").waits("a", created=2).waits("b", created=1)
        assert _turns(scene) == ["b", "a"]

    def test_the_name_decides_at_last(self) -> None:
        scene = Scene().queue("q").waits("b").waits("a")
        assert _turns(scene) == ["a", "b"]

    def test_a_group_that_is_put_back_has_its_rank_of_now(self) -> None:
        scene = Scene().node("n", 4).queue("q").waits("a", 2, least=1).waits("b")
        state = scene.state()
        turns = QueueOrder(
            state.occupancy,
            shares_of(state),
            [state.occupancy.groups["a"], state.occupancy.groups["b"]],
            isolation_of(state),
        )
        first = turns.pop()
        assert first is not None
        assert first.key == "a"
        state.occupancy.place("t/a-0", "n", ())
        turns.push(first)
        turns.update(["q"])
        again = [turns.pop(), turns.pop()]
        assert [group and group.key for group in again] == ["b", "a"]
        assert turns.pop() is None

    def test_rank(self) -> None:
        state = Scene().queue("q").waits("a", priority=3, created=7).state()
        assert rank_of_group(state.occupancy, state.occupancy.groups["a"]) == (-3, 0, 7, "a")


def _first(a: dict[str, Any], b: dict[str, Any], *, gpus: tuple[int, int] = (0, 0)) -> str:
    """Which of the queues a and b has its turn first, on 12 GPUs, some in use by each."""
    scene = Scene().node("n", 12).queue("a", **a).queue("b", **b)
    for name, used in zip("ab", gpus, strict=True):
        if used:
            scene.runs(f"runs-{name}", "n", gpus=used, queue=name)
        scene.waits(name, gpus=1, queue=name)
    return _turns(scene)[0]


class TestQueues:
    """Every rule in a cluster of two queues, of which a would be first by name."""

    def test_queues_over_their_fair_share_come_last(self) -> None:
        more = {"weight": 0, "priority": 200}
        assert _first(more, {}, gpus=(1, 5)) == "b"

    def test_queues_at_their_fair_share_are_not_over_it(self) -> None:
        at_share = {"weight": 0, "quota": 1, "priority": 200}
        assert _first(at_share, {"quota": 0}, gpus=(1, 9)) == "a"

    def test_queues_whose_quota_covers_it_come_first(self) -> None:
        assert _first({"priority": 200}, {"quota": 1}) == "b"

    def test_the_quota_has_to_cover_what_is_asked_for_with_what_is_in_use(self) -> None:
        assert _first({"quota": 2}, {"quota": 2}, gpus=(2, 1)) == "b"

    def test_a_quota_without_bound_covers_everything(self) -> None:
        assert _first({"priority": 200}, {"quota": None}, gpus=(0, 2)) == "b"

    def test_a_higher_priority_comes_first(self) -> None:
        assert _first({}, {"priority": 101}, gpus=(0, 2)) == "b"

    def test_the_smaller_dominant_share_comes_first(self) -> None:
        assert _first({}, {}, gpus=(2, 1)) == "b"

    def test_the_share_is_a_part_of_what_the_queue_may_count_on(self) -> None:
        assert _first({"quota": 4}, {"quota": 8}, gpus=(4, 7)) == "b"
        assert _first({"quota": 2, "weight": 0}, {"quota": 8, "weight": 0}, gpus=(1, 5)) == "b"

    def test_of_equal_shares_the_older_queue_comes_first(self) -> None:
        assert _first({"created": 2}, {"created": 1}) == "b"

    def test_the_name_decides_at_last(self) -> None:
        assert _first({}, {}) == "a"

    def test_the_turn_goes_to_the_other_queue_when_one_has_got_something(self) -> None:
        scene = Scene().node("n", 8).queue("a").queue("b")
        scene.waits("a1", queue="a").waits("a2", queue="a").waits("b1", queue="b")
        state = scene.state()
        turns = QueueOrder(
            state.occupancy,
            shares_of(state),
            [state.occupancy.groups[key] for key in ("a1", "a2", "b1")],
            isolation_of(state),
        )
        found = []
        while (group := turns.pop()) is not None:
            found.append(group.key)
            state.occupancy.accounts.take(group.queue, (1,), preemptible=True)
            turns.update([group.queue])
        assert found == ["a1", "b1", "a2"]

    def test_queues_above_have_their_turn_before_those_below(self) -> None:
        scene = Scene().node("n", 8).queue("x").queue("y", priority=101)
        scene.queue("x1", "x", priority=500).queue("y1", "y").queue("y2", "y", priority=101)
        for leaf in ("x1", "y1", "y2"):
            scene.waits(f"of-{leaf}", queue=leaf)
        assert _turns(scene) == ["of-y2", "of-y1", "of-x1"]

    def test_a_queue_with_something_of_which_it_is_due_nothing_comes_later(self) -> None:
        scene = Scene().node("n", 8).queue("a", weight=0, priority=100).queue("b")
        scene.runs("old", "n", queue="a")
        state = scene.state()
        shares = shares_of(state)
        undue = rank_of_queue(state.occupancy, shares, "a", (0,))
        assert undue[3] is True
        assert rank_of_queue(state.occupancy, shares, "b", (0,))[3] is False

    def test_what_a_queue_has_of_nothing_due_weighs_a_thousandfold(self) -> None:
        scene = Scene().node("n", 8).queue("a", weight=0).runs("old", "n", gpus=2, queue="a")
        state = scene.state()
        rank = rank_of_queue(state.occupancy, shares_of(state), "a", (1,))
        assert rank[4:6] == (3_000, 2_000)

    def test_rank_of_a_queue_by_dominant_resource_fairness(self) -> None:
        scene = Scene().node("n", 8).queue("a", quota=4, weight=0).queue("b")
        scene.runs("old", "n", queue="a").waits("other", 8, queue="b")
        state = scene.state()
        rank = rank_of_queue(state.occupancy, shares_of(state), "a", (1,))
        assert rank == (False, False, -100, False, 0.5, 0.25, 0.5, 0, "a")

    def test_resources_that_are_not_asked_for_do_not_matter(self) -> None:
        scene = Scene().node("n", 8).queue("a", weight=0).runs("old", "n", queue="a")
        state = scene.state()
        shares = shares_of(state)
        assert rank_of_queue(state.occupancy, shares, "a", (0,))[:2] == (False, False)
        assert rank_of_queue(state.occupancy, shares, "a", (1,))[:2] == (True, True)


class TestAsked:
    def test_the_chunk_that_is_next_counts(self) -> None:
        state = Scene().queue("q").waits("g", 3, gpus=2, least=2).state()
        assert NextChunks(state.occupancy).asked(state.occupancy.groups["g"]) == (4,)

    def test_a_group_that_cannot_start_asks_for_nothing(self) -> None:
        state = Scene().queue("q").waits("g", 1, least=2).state()
        assert NextChunks(state.occupancy).asked(state.occupancy.groups["g"]) == (0,)

    def test_a_claim_that_pods_share_counts_once(self) -> None:
        scene = Scene().queue("q").claim("shared", 2).group("g", root=PodSet("", 2))
        scene.pod("g", claims=("shared",)).pod("g", claims=("shared",))
        state = scene.state()
        assert NextChunks(state.occupancy).asked(state.occupancy.groups["g"]) == (2,)

    def test_a_claim_that_a_placed_pod_uses_is_not_asked_for(self) -> None:
        scene = Scene().node("n", 2).queue("q").claim("shared", 2, "n").group("g")
        scene.pod("g", "n", claims=("shared",)).pod("g", claims=("shared",))
        state = scene.state()
        assert NextChunks(state.occupancy).asked(state.occupancy.groups["g"]) == (0,)


def _givers(scene: Scene) -> list[str]:
    state = scene.state()
    ranks = givers(state.occupancy, shares_of(state))
    return sorted(ranks, key=lambda name: ranks[name])


class TestGivers:
    def test_queues_over_their_fair_share_give_first(self) -> None:
        scene = Scene().node("n", 4).queue("a", priority=1).queue("b", weight=0)
        scene.runs("of-a", "n", queue="a").runs("of-b", "n", queue="b")
        assert _givers(scene) == ["b", "a"]

    def test_then_those_of_low_priority(self) -> None:
        scene = Scene().node("n", 4).queue("a").queue("b", priority=99)
        assert _givers(scene) == ["b", "a"]

    def test_then_those_with_the_largest_dominant_share(self) -> None:
        scene = Scene().node("n", 8).queue("a", quota=4).queue("b", quota=4)
        scene.runs("of-a", "n", queue="a").runs("of-b", "n", gpus=2, queue="b")
        assert _givers(scene) == ["b", "a"]

    def test_then_the_youngest(self) -> None:
        scene = Scene().node("n", 4).queue("a", created=1).queue("b", created=2)
        assert _givers(scene) == ["b", "a"]

    def test_level_by_level(self) -> None:
        scene = Scene().queue("x").queue("y", priority=1)
        scene.queue("x1", "x", priority=0).queue("y1", "y").queue("y2", "y", priority=2)
        assert _givers(scene) == ["y2", "y1", "x1"]


class TestOfTwoQueues:
    """Which one has to give before the other."""

    def _first(self, scene: Scene, *names: str) -> list[str]:
        """The queues that give before the other."""
        state, (a, b) = scene.state(), names
        shares = shares_of(state)
        pairs = ((a, b), (b, a))
        return [
            queue for queue, other in pairs if gives_before(state.occupancy, shares, queue, other)
        ]

    def test_the_one_with_most_beyond_its_share_does(self) -> None:
        scene = Scene().node("n", 8).queue("a", quota=2, weight=0).queue("b", quota=2, weight=0)
        scene.runs("of-a", "n", gpus=3, queue="a").runs("of-b", "n", gpus=4, queue="b")
        assert self._first(scene, "a", "b") == ["b"]

    def test_of_two_with_equally_much_neither_does_whatever_their_age(self) -> None:
        scene = Scene().node("n", 4).queue("a", created=1).queue("b", created=2)
        scene.runs("of-a", "n", queue="a").runs("of-b", "n", queue="b")
        assert self._first(scene, "a", "b") == []

    def test_those_above_them_are_compared_where_their_ways_part(self) -> None:
        scene = Scene().node("n", 8).queue("x", weight=0).queue("y", weight=0)
        scene.queue("a", "x", weight=0).queue("b", "y", weight=0).queue("c", "y", weight=0)
        scene.runs("of-a", "n", gpus=2, queue="a").runs("of-b", "n", queue="b")
        scene.runs("of-c", "n", gpus=2, queue="c")
        assert self._first(scene, "a", "b") == ["b"]

    def test_one_that_is_not_in_the_tree_does(self) -> None:
        scene = Scene().queue("a").queue("lost", "nowhere").queue("gone", "nowhere")
        assert self._first(scene, "a", "lost") == ["lost"]
        assert self._first(scene, "gone", "lost") == []
