"""Where a group would have its places once others have ended, when they said they would."""

from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.overrun import Overruns
from controller.engine.decide.starts.expected_room import ExpectedPlaces, ExpectedRoom
from tests.unit.controller.engine.scene import NOW, Scene, gpus_of


def _scene(gpus: int = 2) -> Scene:
    return Scene().node("n", gpus).queue("q", reserves=True)


def _room(trial: Trial) -> ExpectedRoom:
    trial.state.refresh()
    return ExpectedRoom(trial, Isolation(trial), Overruns(trial.state))


def _earliest(trial: Trial) -> ExpectedPlaces | None:
    """When and where `new` could start."""
    return _room(trial).earliest(trial.state.occupancy.groups["new"])


def _ends(scene: Scene, name: str, seconds: float, gpus: int = 1) -> Scene:
    """Adds a group that ends so many seconds from now."""
    return scene.runs(name, "n", gpus=gpus, started=NOW, run_time=seconds)


def test_it_is_when_enough_have_ended() -> None:
    scene = _ends(_ends(_scene(), "soon", 10), "later", 20)
    found = _earliest(scene.waits("new", gpus=2).trial())
    assert found is not None
    assert (found.at, list(found.pods_on)) == (NOW + 20, ["n"])


def test_nobody_knows_it_if_others_have_not_said_when_they_end() -> None:
    scene = _ends(_scene(), "soon", 10).runs("silent", "n")
    assert _earliest(scene.waits("new", gpus=2).trial()) is None


def test_a_claim_that_others_use_keeps_its_devices_when_one_of_its_users_ends() -> None:
    scene = _scene().claim("shared", 2, "n", users=("ends-0", "stays-0"))
    scene.group("ends", started=NOW, run_time=10).pod("ends", "n", claims=("shared",))
    scene.group("stays").pod("stays", "n", claims=("shared",))
    assert _earliest(scene.waits("new", gpus=2).trial()) is None


def test_its_devices_are_free_when_the_last_of_them_ends() -> None:
    scene = _scene().claim("shared", 2, "n", users=("ends-0", "stays-0"))
    scene.group("ends", started=NOW, run_time=10).pod("ends", "n", claims=("shared",))
    scene.group("stays", started=NOW, run_time=20).pod("stays", "n", claims=("shared",))
    found = _earliest(scene.waits("new", gpus=2).trial())
    assert found is not None
    assert found.at == NOW + 20


def test_those_who_start_now_end_as_well() -> None:
    scene = _scene(1).waits("starts", run_time=30).waits("new")
    trial = scene.trial()
    room = _room(trial)
    place = Place("n", (("t/starts-0", gpus_of("n", 0)),), waits=False)
    trial.take(trial.state.occupancy.pods["t/starts-0"], place)
    found = room.earliest(trial.state.occupancy.groups["new"])
    assert found is not None
    assert found.at == NOW + 30


def test_a_question_changes_nothing() -> None:
    trial = _ends(_scene(), "soon", 10).waits("new", gpus=2).trial()
    before = dict(trial.state.occupancy.holds)
    _earliest(trial)
    assert trial.state.occupancy.holds == before
    assert not trial.placed
