"""The place of groups in their queues."""

from controller.engine.explain import Turn
from controller.engine.state.state import State
from controller.report.places_in_queues import PlacesInQueues
from tests.unit.controller.engine.scene import Scene


def waiting(*groups: str) -> State:
    scene = Scene().node("n").queue("q", quota=1)
    for created, group in enumerate(groups):
        scene.waits(group, created=created)
    return scene.state()


def test_the_place_is_that_in_the_order_of_the_queue() -> None:
    state, turns = waiting("t/a", "t/b"), PlacesInQueues()
    assert turns.of(state, "t/b", 0) == Turn(2, 2)
    assert turns.of(state, "t/none", 0) is None


def test_places_are_computed_again_after_a_while_and_not_for_each_event() -> None:
    turns = PlacesInQueues()
    assert turns.of(waiting("t/a", "t/b"), "t/b", 0) == Turn(2, 2)
    ended = waiting("t/b")
    assert turns.of(ended, "t/b", 9) == Turn(2, 2)
    assert turns.of(ended, "t/b", 10) == Turn(1, 1)


def test_a_group_that_has_come_has_its_place_within_a_second() -> None:
    turns = PlacesInQueues()
    assert turns.of(waiting("t/a"), "t/a", 0) == Turn(1, 1)
    assert turns.of(waiting("t/a", "t/b"), "t/b", 1) == Turn(2, 2)


def test_a_queue_that_is_gone_is_forgotten() -> None:
    state, turns = waiting("t/a"), PlacesInQueues()
    turns.of(state, "t/a", 0)
    turns.keep(Scene().node("n").state())
    assert turns.of(waiting("t/b", "t/a"), "t/a", 1) == Turn(2, 2)
