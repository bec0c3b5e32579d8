"""Which groups hold a queue, and what a closed queue says of them."""

from controller.api.condition import StatusCondition
from controller.api.queue import GroupCounts
from controller.engine.model.pod import Evicting
from controller.engine.model.queue import Hold
from controller.report.queue_status import queue_status
from controller.report.queue_use import queues_in_use, use_of_stopped_queues
from tests.unit.controller.engine.scene import NOW, Scene


def active(scene: Scene, queue: str = "q") -> StatusCondition:
    state = scene.state()
    use = use_of_stopped_queues(state.occupancy).get(queue)
    return queue_status(state.occupancy, scene.plan(), queue, GroupCounts(), use).conditions[0]


def test_queues_and_those_above_are_in_use_as_long_as_a_group_has_something() -> None:
    scene = Scene().node("n", 4).queue("top").queue("q", "top").queue("idle").queue("leaving")
    scene.runs("g", "n").waits("w", queue="idle").group("gone", "leaving")
    scene.pod("gone", "n", state=Evicting("n"))
    assert queues_in_use(scene.state().occupancy) == {"q", "top", "leaving"}


def test_a_queue_that_is_cut_off_is_in_use_as_well() -> None:
    scene = Scene().node("n", 4).queue("q", "gone").runs("g", "n")
    assert queues_in_use(scene.state().occupancy) == {"q"}


def test_a_deleted_queue_says_who_holds_it_and_what_to_do() -> None:
    scene = Scene().node("n", 8).queue("q", deleted=NOW)
    for name in "edcba":
        scene.runs(name, "n")
    condition = active(scene)
    assert (condition.holds, condition.reason) == (False, "Deleted")
    assert condition.message == (
        "the queue was deleted and admits nothing; 5 groups hold it: a, b, c and 2 more; it ends "
        "with the last of them: delete their pods, or have them evicted with carina queue stop q "
        "--drain"
    )


def test_an_emptied_queue_says_who_is_left() -> None:
    scene = Scene().node("n", 8).queue("q", hold=Hold.DRAIN).runs("g", "n")
    condition = active(scene)
    assert (condition.holds, condition.reason) == (False, "Drained")
    assert condition.message == (
        "the queue is on hold and its groups are evicted; 1 group left in it: g"
    )


def test_a_held_queue_says_what_runs_in_it() -> None:
    condition = active(Scene().node("n", 8).queue("q", hold=Hold.HOLD).runs("g", "n"))
    assert (condition.holds, condition.reason) == (False, "Held")
    assert condition.message == ("the queue is on hold, and nothing starts in it; 1 group in it: g")


def test_a_queue_below_a_stopped_one_says_which_stops_it() -> None:
    scene = Scene().node("n", 8).queue("top", deleted=NOW).queue("q", "top").runs("g", "n")
    condition = active(scene)
    assert (condition.holds, condition.reason) == (False, "StoppedAbove")
    assert condition.message == "queue top, which is above it, is being deleted"


def test_an_emptied_queue_says_that_nothing_is_left() -> None:
    condition = active(Scene().queue("q", hold=Hold.DRAIN))
    assert condition.message == (
        "the queue is on hold and its groups are evicted; nothing is left in it"
    )
