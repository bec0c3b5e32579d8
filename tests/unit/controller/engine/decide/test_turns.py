"""Whether queues may give what a plan takes for good, and in which order they do."""

import pytest

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.queues.givers import givers
from controller.engine.decide.queues.shares import Shares
from controller.engine.decide.victims.disturbance import FAIR, FairGiving
from controller.engine.decide.victims.groups_on_nodes import GroupsOnNodes
from controller.engine.decide.victims.turns import Turns
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.plan import Action
from tests.unit.controller.engine.scene import Scene, names


class Order:
    """The order in which some pods of a cluster go, each by itself, or with others (`a-0 a-1`)."""

    def __init__(self, scene: Scene, *units: str, action: Action = Action.RECLAIM) -> None:
        trial = scene.waits("new", preemptible=False).trial()
        state = trial.state
        state.refresh()
        shares = Shares(state)
        shares.refresh()
        eligibility = Eligibility(state, shares, state.occupancy.groups["new"], (1,), action)
        victims = Victims(trial, GroupsOnNodes(trial, givers(state.occupancy, shares)))
        groups = [group for group in state.occupancy.groups.values() if group.preemptible]
        turns = Turns(trial, eligibility, victims, groups)
        before = dict(state.occupancy.holds)
        found = turns.order([self._unit(scene, unit) for unit in units])
        assert state.occupancy.holds == before, "nothing has changed"
        self.fairness: FairGiving | None = None
        self.pods: list[str] = []
        if found is not None:
            self.fairness = found[0]
            self.pods = [name for unit in found[1] for name in names(unit.pods)]

    def _unit(self, scene: Scene, unit: str) -> EvictionUnit:
        pods = tuple(scene.pods[name] for name in unit.split())
        return EvictionUnit(scene.groups[pods[0].group or ""], pods, must_move=False)


def _scene(**gpus: int) -> Scene:
    """Queues with a quota of 2, of which each has so many GPUs by as many pods."""
    scene = Scene().node("n", 16).queue("q", quota=4)
    for name, count in gpus.items():
        scene.queue(name, quota=2, weight=0)
        scene.runs(name, *["n"] * count, queue=name, least=0)
    return scene


def test_the_queue_with_most_beyond_its_share_gives_first() -> None:
    order = Order(_scene(a=3, b=4), "a-2", "b-3")
    assert (order.fairness, order.pods) == (FAIR, ["b-3", "a-2"])


def test_they_are_compared_again_after_each_pod() -> None:
    order = Order(_scene(a=4, b=5), "a-2", "a-3", "b-3", "b-4")
    assert order.fairness == FAIR
    assert [name[0] for name in order.pods] in (["b", "a", "b", "a"], ["b", "b", "a", "a"])


def test_a_queue_that_gives_before_its_turn_is_less_fair() -> None:
    assert Order(_scene(a=3, b=4), "a-2").fairness == FairGiving(1, is_below=False)


@pytest.mark.parametrize("turn", [1, 2])
def test_the_more_queues_should_have_given_before(turn: int) -> None:
    more = dict([("b", 4), ("c", 5)][:turn])
    assert Order(_scene(a=3, **more), "a-2").fairness == FairGiving(turn, is_below=False)


def test_what_a_queue_has_within_its_share_it_need_not_give() -> None:
    assert Order(_scene(a=4), "a-2", "a-3").fairness == FAIR
    assert Order(_scene(a=3), "a-1", "a-2").fairness is None
    assert Order(_scene(a=2), "a-1").fairness is None


def test_pods_that_go_together_may_leave_a_queue_below_its_share() -> None:
    order = Order(_scene(a=3), "a-1 a-2")
    assert (order.fairness, order.pods) == (FairGiving(0, is_below=True), ["a-1", "a-2"])


def test_a_queue_that_gave_all_that_it_has_to_is_asked_for_no_more() -> None:
    """After its pod, `b` has no more than its share, so it is not its turn before that of `a`."""
    assert Order(_scene(a=4, b=3), "a-2", "b-2", "a-3").fairness == FAIR


def test_a_queue_that_has_nobody_left_who_could_go_does_not_hold_up_others() -> None:
    scene = _scene(a=3, b=1)
    scene.runs("firm", *["n"] * 5, queue="b", preemptible=False)
    assert Order(scene, "b-0", "a-2").fairness == FAIR


def test_another_order_is_tried_where_the_first_one_takes_from_who_need_not_give() -> None:
    """Once the pair is gone, the queue has no more than its share."""
    scene = _scene(a=1).runs("pair", "n", "n", queue="a").runs("solo", "n", queue="a", priority=5)
    order = Order(scene, "pair-0 pair-1", "solo-0")
    assert order.fairness == FairGiving(0, is_below=True)
    assert order.pods == ["solo-0", "pair-0", "pair-1"]


def test_whom_nobody_reclaims_goes_by_priority() -> None:
    scene = Scene().node("n", 4).queue("q")
    scene.runs("high", "n", priority=2).runs("low", "n", priority=1)
    order = Order(scene, "high-0", "low-0", action=Action.PREEMPT)
    assert (order.fairness, order.pods) == (FAIR, ["low-0", "high-0"])
