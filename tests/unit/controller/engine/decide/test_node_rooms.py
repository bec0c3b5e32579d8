"""Whether a node has room for some pods once others have left it."""

from carina_dra.allocator.preference import Policy
from controller.engine.decide.victims.node_rooms import Comer, NodeRooms
from controller.engine.model.plan import Action
from tests.unit.controller.engine.scene import Scene

CARD = 1_000_000


class Rooms:
    """A node `n` with four GPUs, of which the pods of `old` have one each, and those that come."""

    def __init__(self) -> None:
        scene = Scene().queue("q").node("n", 4).node("m", 4).runs("old", "n", "n")
        scene.waits("one").waits("two", gpus=2).waits("three", gpus=3).waits("five", gpus=5)
        self.trial = scene.trial()
        self.rooms = NodeRooms(self.trial, Action.PREEMPT, "new")

    def comer(self, name: str, *, has_place: bool = False) -> Comer:
        pod = self.trial.state.occupancy.pods[f"t/{name}-0"]
        return Comer(pod, Policy(), name, has_place=has_place)

    def old(self, *numbers: int) -> list[Comer]:
        pods = [self.trial.state.occupancy.pods[f"t/old-{number}"] for number in numbers]
        return [Comer(pod, Policy(), pod.key, has_place=True) for pod in pods]

    def weigh(self) -> None:
        self.rooms.weigh("n", self.old(0, 1))

    def has_room(self, *comers: str, without: tuple[int, ...] = ()) -> bool:
        return self.rooms.has_room("n", self.old(*without), list(map(self.comer, comers)))


def test_there_is_room_where_all_fit_together() -> None:
    rooms = Rooms()
    assert rooms.has_room("two")
    assert rooms.has_room("one")
    assert not rooms.has_room("one", "two")
    assert not rooms.has_room("two", "one")


def test_there_is_more_once_others_have_left() -> None:
    rooms = Rooms()
    rooms.weigh()
    assert rooms.has_room("one", "two", without=(0,))
    assert not rooms.has_room("two", "three", without=(0, 1))
    assert rooms.has_room("three", without=(1,))


def test_nothing_has_changed_after_a_question() -> None:
    rooms = Rooms()
    before = dict(rooms.trial.state.occupancy.holds)
    rooms.weigh()
    rooms.has_room("one", "two", without=(0,))
    rooms.has_room("five", without=(0, 1))
    assert rooms.trial.state.occupancy.holds == before
    assert not rooms.trial.placed
    assert not rooms.trial.evictions


def test_a_question_is_tried_out_once() -> None:
    rooms = Rooms()
    rooms.has_room("one", "two", without=(0,))
    spent = rooms.trial.places.budget.spent
    assert rooms.has_room("one", "two", without=(0,))
    assert rooms.trial.places.budget.spent == spent


def test_what_a_pod_takes_is_known_once_it_has_been_tried() -> None:
    rooms = Rooms()
    rooms.weigh()
    assert rooms.rooms.least_cards(rooms.comer("two")) == 0
    rooms.has_room("two")
    assert rooms.rooms.least_cards(rooms.comer("two")) == 2 * CARD
    assert [rooms.rooms.least_cards(old) for old in rooms.old(0, 1)] == [CARD, CARD]
