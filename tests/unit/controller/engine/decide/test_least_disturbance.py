"""Of the plans that fairness permits, the one that disturbs least is chosen."""

import pytest

from controller.engine.model.group import PodSet, TopologyConstraint
from controller.engine.model.plan import Action
from controller.engine.model.pod import PodNeeds
from tests.unit.controller.engine.scene import Scene, evicted, nominated, only


def _consolidating(*gpus: int) -> Scene:
    scene = Scene(**only(Action.CONSOLIDATE)).queue("q", quota=99)
    for name, count in zip("abcd", gpus, strict=False):
        scene.node(name, count)
    return scene


class TestMoves:
    def test_the_pod_moves_that_fits_elsewhere(self) -> None:
        scene = _consolidating(4, 4).runs("x", "a", gpus=3).runs("one", "b")
        plan = scene.runs("two", "b", gpus=2, created=1).waits("new", gpus=2).plan()
        assert (evicted(plan), nominated(plan)) == (["one-0"], {"one-0": "a", "new-0": "b"})

    def test_one_pod_of_a_gang_moves_if_that_does(self) -> None:
        scene = _consolidating(4, 4).group("gang", root=PodSet("", 2))
        scene.pod("gang", "a").pod("gang", "b", gpus=3)
        plan = scene.waits("new", gpus=4).plan()
        assert (evicted(plan), nominated(plan)) == (["gang-1"], {"gang-1": "a", "new-0": "b"})

    def test_one_pod_moves_rather_than_two(self) -> None:
        scene = _consolidating(3, 3, 3).runs("firm", "c", preemptible=False)
        scene.runs("young", "a", created=9).runs("younger", "a", created=9)
        scene.runs("old", "b", gpus=2, created=1)
        plan = scene.waits("new", gpus=3).plan()
        assert evicted(plan) == ["old-0"]

    def test_pods_move_in_a_chain(self) -> None:
        """Only `b` has room for the group that waits, and only `c` for who makes way there."""
        scene = _consolidating(4, 3, 2)
        scene.node("b", 3, labels={"kind": "b"}).runs("two", "b", gpus=2)
        scene.runs("firm", "a", gpus=3, preemptible=False).runs("three", "c")
        needs = PodNeeds(node_selector=(("kind", "b"),))
        plan = scene.waits("new", gpus=2, needs=needs).plan()
        assert nominated(plan) == {"new-0": "b", "two-0": "c", "three-0": "a"}

    def test_a_pod_that_has_to_move_on_is_moved_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For the first pod of the gang `y` moves to `a`, and on to `c` for the second one."""
        monkeypatch.setattr("controller.engine.decide.victims.few_nodes._STEPS", 0)
        scene = _consolidating(4, 4, 4).runs("x", "a").runs("y", "b", created=1)
        scene.runs("firm", "c", gpus=2, preemptible=False)
        plan = scene.waits("new", 2, gpus=4).plan()
        assert sorted(evicted(plan)) == ["x-0", "y-0"]
        assert nominated(plan) == {"x-0": "c", "y-0": "c", "new-0": "b", "new-1": "a"}


class TestManyNodes:
    """Then the nodes that promise most are looked at."""

    def _scene(self, *actions: Action) -> Scene:
        """All nodes but the first two are full."""
        scene = Scene(**only(*actions)).queue("q", quota=999)
        for index in range(30):
            scene.node(f"n{index:02}", 4)
            if index > 1:
                scene.runs(f"firm-{index:02}", f"n{index:02}", gpus=4, preemptible=False)
        return scene

    def test_the_pod_moves_that_fits_elsewhere(self) -> None:
        scene = self._scene(Action.CONSOLIDATE).runs("x", "n00", gpus=3).runs("small", "n01")
        plan = scene.runs("large", "n01", gpus=2, created=1).waits("new", gpus=2).plan()
        assert nominated(plan) == {"small-0": "n00", "new-0": "n01"}

    def test_one_pod_goes_rather_than_two(self) -> None:
        scene = self._scene(Action.PREEMPT).runs("x", "n00", gpus=4, preemptible=False)
        scene.runs("young", "n01", created=9).runs("younger", "n01", created=9)
        plan = scene.runs("old", "n01", gpus=2, created=1).waits("new", gpus=2, priority=9).plan()
        assert evicted(plan) == ["old-0"]


class TestEvictions:
    def test_one_pod_goes_rather_than_two(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 4)
        scene.runs("young", "n", created=9).runs("younger", "n", created=9)
        plan = scene.runs("old", "n", gpus=2, created=1).waits("new", gpus=2, priority=9).plan()
        assert evicted(plan) == ["old-0"]

    def test_the_younger_of_two_goes_that_free_as_much(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q")
        for name, created in (("a", 1), ("b", 5)):
            scene.node(name, cpu=100).group(f"of-{name}", created=created)
            scene.pod(f"of-{name}", name, gpus=0, needs=PodNeeds(cpu=60))
        for name, created in (("a", 9), ("b", 0)):
            scene.group(f"small-{name}", created=created)
            scene.pod(f"small-{name}", name, gpus=0, needs=PodNeeds(cpu=40))
        plan = scene.waits("new", gpus=0, priority=9, needs=PodNeeds(cpu=50)).plan()
        assert evicted(plan) == ["of-b-0"]

    @pytest.mark.parametrize(("replaced", "expected"), [(True, "old-0"), (False, "young-0")])
    @pytest.mark.parametrize("action", [Action.PREEMPT, Action.RECLAIM])
    def test_a_pod_moves_only_if_somebody_replaces_it(
        self, action: Action, expected: str, *, replaced: bool
    ) -> None:
        """If not, its work is lost like that of any other, and the youngest goes."""
        scene = Scene(**only(action)).queue("q", quota=9).queue("other", weight=0)
        scene.node("n", 2, labels={"kind": "n"}).node("m", 2)
        theirs = {Action.PREEMPT: "q", Action.RECLAIM: "other"}[action]
        bound = PodNeeds(node_selector=(("kind", "n"),))
        scene.runs("old", "n", queue=theirs, created=1, moves=replaced)
        scene.group("young", theirs, created=5).pod("young", "n", needs=bound)
        plan = scene.waits("new", priority=9, needs=bound).plan()
        assert evicted(plan) == [expected]
        assert nominated(plan) == {"new-0": "n"} | ({"old-0": "m"} if replaced else {})

    def test_a_low_priority_goes_whatever_its_number(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 4)
        scene.runs("low", "n").runs("lower", "n").runs("high", "n", gpus=2, priority=5)
        plan = scene.waits("new", gpus=2, priority=9).plan()
        assert sorted(evicted(plan)) == ["low-0", "lower-0"]


class TestGroupsThatAsk:
    """What the search for the plan that disturbs least does not look at, it breaks nowhere."""

    def test_pods_that_share_a_claim_get_the_plan_of_the_first_search(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 2)
        scene.runs("old", "n", gpus=2).claim("shared", 2)
        scene.group("new", root=PodSet("", 2), priority=9)
        scene.pod("new", claims=("shared",)).pod("new", claims=("shared",))
        plan = scene.plan()
        assert (evicted(plan), nominated(plan)) == (["old-0"], {"new-0": "n", "new-1": "n"})

    def test_a_gang_of_which_a_pod_fits_nowhere_waits(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).queue("q").node("n", 4)
        for number in range(4):
            scene.runs(f"old-{number}", "n")
        scene.group("new", root=PodSet("", 2), priority=9).pod("new", gpus=4).pod("new", gpus=5)
        plan = scene.plan()
        assert not evicted(plan)
        assert not plan.memory.set_aside

    @pytest.mark.parametrize("required", [True, False])
    def test_a_gang_stays_in_its_domain(self, *, required: bool) -> None:
        """Without a domain, the youngest would go, who are in different ones."""
        scene = Scene(**only(Action.PREEMPT)).queue("q")
        scene.topologies = {"t": ("rack",)}
        for name, created in (("a1", 9), ("a2", 1), ("b1", 8), ("b2", 2)):
            scene.node(name, 1, labels={"rack": name[0]}).runs(f"of-{name}", name, created=created)
        constraint = TopologyConstraint("t", required="rack") if required else None
        scene.group("new", root=PodSet("", 2, constraint), priority=9).pod("new").pod("new")
        places = nominated(scene.plan())
        assert len({node[0] for node in places.values()}) == (1 if required else 2)


class TestQueuesThatGive:
    def _scene(self) -> Scene:
        """Two queues that have equally too much, each with a pod of a low priority."""
        scene = Scene(**only(Action.RECLAIM)).node("n", 4).queue("q", quota=2)
        for name in ("a", "b"):
            scene.queue(name, weight=0)
            scene.runs(f"low-{name}", "n", queue=name)
            scene.runs(f"high-{name}", "n", queue=name, priority=5)
        return scene

    def test_two_with_equally_too_much_give_one_each(self) -> None:
        plan = self._scene().waits("new", gpus=2).plan()
        assert sorted(evicted(plan)) == ["low-a-0", "low-b-0"]

    def test_so_they_do_for_a_gang(self) -> None:
        plan = self._scene().waits("new", 2).plan()
        assert sorted(evicted(plan)) == ["low-a-0", "low-b-0"]

    def test_nobody_goes_only_so_that_it_is_the_turn_of_another_queue(self) -> None:
        """Once the gang is gone, `spare` can stay, though its queue has most beyond its share."""
        scene = Scene(**only(Action.RECLAIM)).queue("q", quota=4)
        scene.queue("most", quota=2, weight=0).queue("less", quota=2, weight=0)
        scene.node("far", 4)
        for name, gpus in (("m", 2), ("n", 1)):
            scene.node(name, gpus, labels={"name": name})
        scene.runs("spare", "m", queue="most").runs("gang", "m", "n", queue="less")
        scene.runs("firm", "far", "far", "far", queue="most", preemptible=False)
        scene.runs("firm-too", "far", queue="less", preemptible=False)
        scene.group("new", root=PodSet("", 2))
        for name in "mn":
            scene.pod("new", needs=PodNeeds(node_selector=(("name", name),)))
        plan = scene.plan()
        assert sorted(evicted(plan)) == ["gang-0", "gang-1"]
        assert nominated(plan) == {"new-0": "m", "new-1": "n"}

    def test_nor_if_the_group_gets_other_nodes_then(self) -> None:
        """With `spare` and one pod of the gang gone, both pods fit on `m`; the gang is enough."""
        scene = Scene(**only(Action.RECLAIM)).queue("q", quota=4)
        scene.queue("most", quota=2, weight=0).queue("less", quota=2, weight=0)
        scene.node("m", 2).node("n", 1).node("far", 4)
        scene.runs("spare", "m", queue="most").runs("gang", "m", "n", queue="less")
        scene.runs("firm", "far", "far", "far", queue="most", preemptible=False)
        scene.runs("firm-too", "far", queue="less", preemptible=False)
        plan = scene.waits("new", 2).plan()
        assert sorted(evicted(plan)) == ["gang-0", "gang-1"]
        assert nominated(plan) == {"new-0": "m", "new-1": "n"}
