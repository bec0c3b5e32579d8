"""What has become of pods that are evicted on trial."""

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.victims.evictor import Evictor
from controller.engine.decide.victims.guarded import Guarded
from controller.engine.model.plan import Action
from tests.unit.controller.engine.scene import Scene, gpus_of, names, shares_of


class Evicting:
    """Evicts pods of a cluster for the group `new`, and gives some another place."""

    def __init__(self, scene: Scene, action: Action = Action.PREEMPT) -> None:
        self.trial: Trial = scene.node("free", 8).waits("new").trial()
        self.state = self.trial.state
        shares = shares_of(self.state)
        eligibility = Eligibility(
            self.state, shares, self.state.occupancy.groups["new"], (1,), action
        )
        self.evictor = Evictor(self.trial, eligibility, Guarded(self.state), frozenset())

    def evict(self, *pods: str) -> bool:
        """Evicts pods of a group together."""
        found = tuple(self.state.occupancy.pods[f"t/{name}"] for name in pods)
        group = self.state.occupancy.groups[found[0].group or ""]
        return self.evictor.evict(EvictionUnit(group, found, must_move=False))

    def place(self, pod: str, gpu: int) -> "Evicting":
        """Gives a pod a GPU of the node that is free."""
        place = Place("free", ((f"t/{pod}", gpus_of("free", gpu)),), waits=False)
        self.trial.take(self.state.occupancy.pods[f"t/{pod}"], place)
        return self

    def gone(self) -> list[list[str]]:
        return [names(unit.pods) for unit in self.evictor.gone()]


def _scene() -> Scene:
    return Scene().queue("q").node("n", 8).runs("gang", "n", "n").runs("loose", "n", "n", least=0)


def test_a_group_that_falls_is_gone_as_a_whole_and_pods_of_others_each_by_itself() -> None:
    evicting = Evicting(_scene())
    evicting.evict("gang-0", "gang-1")
    evicting.evict("loose-0")
    evicting.evict("loose-1")
    assert evicting.gone() == [["gang-0", "gang-1"], ["loose-0"], ["loose-1"]]


def test_who_has_another_place_is_not_gone_but_has_moved() -> None:
    evicting = Evicting(_scene())
    evicting.evict("gang-0", "gang-1")
    evicting.evict("loose-0")
    assert evicting.evictor.moved() == []
    evicting.place("loose-0", 0)
    assert (evicting.gone(), evicting.evictor.moved()) == ([["gang-0", "gang-1"]], ["loose"])
    evicting.place("gang-0", 1)
    assert evicting.evictor.moved() == ["gang", "loose"]
    evicting.place("gang-1", 2)
    assert (evicting.gone(), evicting.evictor.moved()) == ([], ["gang", "loose"])


def test_a_group_that_has_too_few_pods_is_not_gone_if_all_have_another_place() -> None:
    evicting = Evicting(Scene().queue("q").node("n", 8).runs("few", "n", least=2))
    evicting.evict("few-0")
    evicting.place("few-0", 0)
    assert evicting.gone() == []


def test_who_lost_a_place_of_this_plan_only_has_left_nobody() -> None:
    evicting = Evicting(_scene().waits("other"))
    evicting.place("other-0", 0)
    evicting.evict("other-0")
    assert not evicting.evictor.someone_leaves()
    assert evicting.evictor.displaced() == ["other"]
    evicting.evict("loose-0")
    assert evicting.evictor.someone_leaves()
    assert evicting.evictor.displaced() == ["other"]


def test_no_more_pods_move_than_the_limit() -> None:
    scene = _scene()
    scene.settings = Scene(consolidation_limit=2).settings
    evicting = Evicting(scene, Action.CONSOLIDATE)
    assert evicting.evict("loose-0")
    assert not evicting.evict("gang-0", "gang-1")
    assert evicting.evict("loose-1")


def test_what_it_costs_does_not_count_against_an_attempt_that_reclaims() -> None:
    for action, costs in ((Action.PREEMPT, 20), (Action.RECLAIM, 0)):
        evicting = Evicting(_scene(), action)
        budget = evicting.trial.places.budget
        spent, limit = budget.spent, budget.limit
        evicting.evict("gang-0", "gang-1")
        assert (budget.spent - spent) - (budget.limit - limit) == costs
