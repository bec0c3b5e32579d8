"""Who may leave its place on some nodes, and what the groups allow."""

from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.queues.givers import givers
from controller.engine.decide.queues.shares import Shares
from controller.engine.decide.victims.giving import Giving
from controller.engine.decide.victims.groups_on_nodes import GroupsOnNodes
from controller.engine.decide.victims.occupants import Occupants, occupants
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import PodSet, SubGroups
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting
from tests.unit.controller.engine.scene import NOW, Scene, gpus_of, names


def _scene() -> Scene:
    """A queue that asks, one with more than its share, and one within it."""
    scene = Scene().queue("q", quota=20).queue("gives", weight=0).queue("keeps", quota=20)
    return scene.node("n", 16).node("m", 32).waits("new", priority=9)


def _found(
    scene: Scene,
    action: Action,
    *,
    bystanders: bool = False,
    placed: str | None = None,
    moved: str | None = None,
) -> Occupants:
    """With a pod that has been `placed` in this cycle, or one that was evicted and has `moved`."""
    trial = scene.trial()
    state = trial.state
    state.refresh()
    shares = Shares(state)
    shares.refresh()
    eligibility = Eligibility(state, shares, state.occupancy.groups["new"], (1,), action)
    victims = Victims(trial, GroupsOnNodes(trial, givers(state.occupancy, shares)))
    giving = Giving(state.occupancy, eligibility, victims)
    if moved is not None:
        trial.evict(state.occupancy.pods[f"t/{moved}"], action, "new")
    for name in filter(None, (placed, moved)):
        place = Place("n", ((f"t/{name}", gpus_of("n", 15)),), waits=False)
        trial.take(state.occupancy.pods[f"t/{name}"], place)
    return occupants(trial, eligibility, victims, giving, {"n"}, bystanders=bystanders)


def _pods(found: Occupants) -> list[str]:
    return names(one.pod for one in found.pods)


def test_who_gives_may_go_for_good_or_move() -> None:
    found = _found(_scene().runs("old", "n", queue="gives"), Action.RECLAIM)
    assert [(one.node, one.gives, one.moves) for one in found.pods] == [("n", True, True)]


def test_who_need_not_give_may_move_with_the_bystanders() -> None:
    scene = _scene().runs("old", "n", queue="keeps")
    assert not _pods(_found(scene, Action.RECLAIM))
    found = _found(scene, Action.RECLAIM, bystanders=True)
    assert [(one.gives, one.moves) for one in found.pods] == [(False, True)]


def test_nobody_goes_for_good_by_consolidation() -> None:
    found = _found(_scene().runs("old", "n"), Action.CONSOLIDATE)
    assert [(one.gives, one.moves) for one in found.pods] == [(False, True)]


def test_whom_nobody_replaces_does_not_move() -> None:
    found = _found(_scene().runs("old", "n", moves=False), Action.PREEMPT)
    assert [(one.gives, one.moves) for one in found.pods] == [(True, False)]


def test_a_group_spares_what_it_has_above_its_minimum() -> None:
    found = _found(_scene().runs("old", "n", "n", "n", least=1), Action.PREEMPT)
    assert found.allowances["old"].spare == 2


def test_a_group_below_its_minimum_or_of_several_parts_spares_nothing() -> None:
    scene = _scene().runs("few", "n", least=3)
    scene.group("parts", root=SubGroups("", (PodSet("a", 1), PodSet("b", 1)), 1))
    scene.pod("parts", "n", pod_set="a").pod("parts", "n", pod_set="b")
    found = _found(scene, Action.PREEMPT)
    assert {name: of.spare for name, of in found.allowances.items()} == {"few": 0, "parts": 0}


def test_a_group_is_safe_for_its_min_runtime() -> None:
    scene = _scene().runs("old", "n", started=NOW - 10).runs("new-one", "n", started=NOW)
    scene.settings = Scene(preempt_min_runtime=5).settings
    found = _found(scene, Action.PREEMPT)
    safe = {name: of.is_safe for name, of in found.allowances.items()}
    assert safe == {"old": False, "new-one": True}


def test_a_group_with_few_pods_elsewhere_may_fall_with_these() -> None:
    found = _found(_scene().runs("old", "n", *["m"] * 16), Action.PREEMPT)
    allowed = found.allowances["old"]
    assert (len(found.pods), len(allowed.members), allowed.falls) == (17, 17, True)


def test_of_a_group_with_many_only_those_of_the_nodes_leave() -> None:
    found = _found(_scene().runs("old", "n", *["m"] * 17), Action.PREEMPT)
    assert _pods(found) == ["old-0"]
    assert not found.allowances["old"].falls


def test_groups_that_have_got_a_place_in_the_cycle_are_left_out() -> None:
    scene = _scene().runs("grows", "n", least=1).pod("grows")
    assert _pods(_found(scene, Action.PREEMPT)) == ["grows-0"]
    assert not _pods(_found(scene, Action.PREEMPT, placed="grows-1"))


def test_a_pod_that_is_leaving_already_is_none_of_them() -> None:
    scene = _scene().runs("old", "n", least=1).pod("old", "n", state=Evicting("n"))
    assert _pods(_found(scene, Action.PREEMPT)) == ["old-0"]


def test_groups_of_which_a_pod_waits_for_its_place_are_left_out() -> None:
    scene = _scene().runs("old", "n", "n", least=1)
    assert not _pods(_found(scene, Action.PREEMPT, moved="old-1"))
