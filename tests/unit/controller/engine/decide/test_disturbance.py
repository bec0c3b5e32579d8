"""How much a plan disturbs, by who has been evicted and who has another place."""

from collections.abc import Mapping

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.victims.disturbance import (
    FAIR,
    NOBODY_FALLS,
    Disturbance,
    disturbance,
)
from controller.engine.model.group import PodSet
from controller.engine.model.plan import Action
from tests.unit.controller.engine.scene import Scene, gpus_of


def _disturbed(
    scene: Scene, *groups: tuple[str, ...], moved: Mapping[str, int] | None = None
) -> Disturbance:
    """What it disturbs to evict pods, by group; those `moved` get a GPU of the node `free`."""
    trial = scene.node("free", 8).trial()
    state = trial.state
    units = []
    for names in groups:
        pods = tuple(state.occupancy.pods[f"t/{name}"] for name in names)
        units.append(
            EvictionUnit(state.occupancy.groups[pods[0].group or ""], pods, must_move=False)
        )
        for pod in pods:
            trial.evict(pod, Action.PREEMPT, "new")
    for name, gpu in (moved or {}).items():
        place = Place("free", ((f"t/{name}", gpus_of("free", gpu)),), waits=False)
        trial.take(state.occupancy.pods[f"t/{name}"], place)
    return disturbance(state.occupancy, units, FAIR)


def _scene() -> Scene:
    return Scene().queue("q").node("n", 8)


def test_a_group_that_spares_a_pod_does_not_fall() -> None:
    found = _disturbed(_scene().runs("job", "n", "n", least=1), ("job-1",))
    assert (found.falls, found.groups, found.priority) == (False, 0, NOBODY_FALLS)
    assert (found.gone, found.pods) == (1, 1)


def test_a_group_that_is_left_with_too_few_pods_falls() -> None:
    found = _disturbed(_scene().runs("job", "n", "n", priority=-7), ("job-0", "job-1"))
    assert (found.falls, found.groups, found.priority) == (True, 1, -7)
    assert (found.gone, found.pods) == (2, 2)


def test_a_pod_with_another_place_is_disturbed_but_not_gone() -> None:
    found = _disturbed(_scene().runs("job", "n"), ("job-0",), moved={"job-0": 0})
    assert (found.falls, found.gone, found.pods) == (False, 0, 1)


def test_a_group_that_has_had_too_few_pods_before_does_not_fall_by_moving() -> None:
    scene = _scene().runs("job", "n", least=2)
    assert not _disturbed(scene, ("job-0",), moved={"job-0": 0}).falls


def test_the_highest_priority_of_those_that_fall_counts() -> None:
    scene = _scene().runs("a", "n", priority=2).runs("b", "n", priority=5).runs("c", "n")
    found = _disturbed(scene, ("a-0",), ("b-0",), ("c-0",))
    assert (found.priority, found.groups) == (5, 3)


def test_ages_are_those_of_all_who_leave_the_oldest_first() -> None:
    scene = _scene().runs("young", "n", created=9).runs("old", "n", created=1)
    found = _disturbed(scene, ("young-0",), ("old-0",), moved={"old-0": 0})
    assert [created for created, _ in found.ages] == [-1, -9]


def test_the_last_pods_of_a_group_are_its_youngest_whoever_of_it_waits() -> None:
    scene = _scene().group("job", root=PodSet("", 0))
    scene.pod("job", rank=0).pod("job", "n", rank=1).pod("job", "n", rank=2)
    assert _disturbed(scene, ("job-2",)).ages == ((0, -1),)
    assert _disturbed(scene, ("job-1",)).ages == ((0, 0),)
