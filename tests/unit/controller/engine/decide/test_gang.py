"""Pods of a gang start together, within their topology, or not at all."""

from typing import Any

from controller.engine.model.group import PodSet, SubGroups, TopologyConstraint
from controller.engine.model.plan import Action, Plan
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import NoDomain, NoRoom
from tests.unit.controller.engine.scene import Scene, evicted, nominated, only, started


def _racks(*gpus: tuple[str, int], **settings: Any) -> Scene:
    """Nodes `<rack><number>` with their GPUs, and a topology of zone and rack."""
    scene = Scene(**{**only(), **settings}).queue("q")
    scene.topologies = {"t": ("zone", "rack")}
    for name, count in gpus:
        scene.node(name, count, labels={"zone": "z", "rack": name[0]})
    return scene


def _gang(scene: Scene, pods: int, *, gpus: int = 1, **constraint: Any) -> Plan:
    topology = TopologyConstraint("t", **constraint)
    scene.group("gang", root=PodSet("", pods, topology))
    for _ in range(pods):
        scene.pod("gang", gpus=gpus)
    return scene.plan()


class TestAllOrNone:
    def test_a_gang_that_fits_starts(self) -> None:
        plan = Scene(**only()).node("n", 2).queue("q").waits("g", 2).plan()
        assert started(plan) == {"g-0": "n", "g-1": "n"}

    def test_a_gang_of_which_one_pod_has_no_room_leaves_everything_to_others(self) -> None:
        scene = Scene(**only()).node("n", 2).queue("q").waits("g", 3, created=1)
        plan = scene.waits("later", 2, created=2).plan()
        assert set(started(plan)) == {"later-0", "later-1"}
        assert plan.waiting == {"g": (NoRoom("t/g-2", 1, (("devices", 1),)),)}

    def test_pods_that_grow_a_group_start_one_by_one(self) -> None:
        scene = Scene(**only()).node("n", 2).queue("q")
        assert set(started(scene.waits("g", 3, least=1).plan())) == {"g-0", "g-1"}

    def test_all_of_a_gang_wait_if_one_waits_for_others_to_leave(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 2).queue("q").runs("old", "n")
        plan = scene.waits("g", 2, priority=1).plan()
        assert (started(plan), evicted(plan)) == ({}, ["old-0"])
        assert nominated(plan) == {"g-0": "n", "g-1": "n"}

    def test_a_pod_starts_that_the_minimum_is_complete_with(self) -> None:
        scene = Scene(**only(Action.PREEMPT)).node("n", 2).queue("q").runs("old", "n")
        plan = scene.waits("g", 2, least=1, priority=1).plan()
        assert (started(plan), nominated(plan)) == ({"g-0": "n"}, {"g-1": "n"})

    def test_a_pod_waits_if_another_of_its_gang_has_to_move(self) -> None:
        scene = Scene(**only(Action.CONSOLIDATE)).queue("q", quota=9)
        for name, kind in (("a", "other"), ("b", "b"), ("c", "other")):
            scene.node(name, 2, labels={"kind": kind})
        scene.runs("fixed", "b", "c", preemptible=False)
        on_b = PodNeeds(node_selector=(("kind", "b"),))
        elsewhere = PodNeeds(node_selector=(("kind", "other"),))
        scene.group("g", root=PodSet("", 2)).pod("g", "a", needs=elsewhere).pod("g", needs=on_b)
        plan = scene.waits("new", gpus=2).plan()
        assert (started(plan), evicted(plan)) == ({}, ["g-0"])
        assert nominated(plan) == {"new-0": "a", "g-0": "c", "g-1": "b"}


class TestRequiredTopology:
    def test_the_pods_are_in_one_domain(self) -> None:
        plan = _gang(_racks(("a1", 1), ("b1", 1), ("b2", 1)), 2, required="rack")
        assert started(plan) == {"gang-0": "b1", "gang-1": "b2"}

    def test_without_a_domain_with_room_the_gang_waits(self) -> None:
        plan = _gang(_racks(("a1", 1), ("b1", 1)), 2, required="rack")
        assert started(plan) == {}
        assert plan.waiting["gang"] == (NoDomain("rack", 0),)

    @staticmethod
    def _uneven(*gpus: tuple[str, int]) -> Plan:
        """For a pod with one GPU and one with three, in one rack."""
        topology = TopologyConstraint("t", required="rack")
        scene = _racks(*gpus).group("gang", root=PodSet("", 2, topology))
        return scene.pod("gang").pod("gang", gpus=3).plan()

    def test_domains_that_were_tried_are_counted(self) -> None:
        plan = self._uneven(("a1", 2), ("a2", 2), ("b1", 2))
        assert plan.waiting["gang"] == (NoDomain("rack", 2),)

    def test_of_a_single_domain_its_own_reason_is_told(self) -> None:
        plan = self._uneven(("a1", 2), ("a2", 2), ("b1", 1))
        assert plan.waiting["gang"] == (NoRoom("t/gang-1", 2, (("devices", 2),)),)

    def test_a_domain_that_turns_out_too_small_leaves_nothing_behind(self) -> None:
        plan = self._uneven(("a1", 2), ("a2", 2), ("b1", 4))
        assert set(started(plan).values()) == {"b1"}

    def test_a_preferred_level_alone_is_named_in_the_reason(self) -> None:
        plan = _gang(_racks(("a1", 1), ("b1", 1)), 3, preferred="rack")
        assert plan.waiting["gang"] == (NoRoom("t/gang-2", 2, (("devices", 2),)),)

    def test_a_level_that_no_node_has_is_none(self) -> None:
        plan = _gang(_racks(("a1", 2)), 2, required="row")
        assert plan.waiting["gang"] == (NoDomain("row", 0),)

    def test_the_domain_with_the_least_that_is_free_comes_first(self) -> None:
        plan = _gang(_racks(("a1", 8), ("b1", 2), ("b2", 1)), 2, required="rack")
        assert set(started(plan).values()) <= {"b1", "b2"}

    def test_pods_that_follow_go_to_the_domain_of_those_that_are_there(self) -> None:
        scene = _racks(("a1", 2), ("b1", 2))
        topology = TopologyConstraint("t", required="rack")
        scene.group("gang", root=PodSet("", 1, topology)).pod("gang", "b1").pod("gang")
        assert started(scene.plan()) == {"gang-1": "b1"}

    def test_pods_that_follow_wait_where_their_domain_is_full(self) -> None:
        scene = _racks(("a1", 2), ("b1", 1))
        topology = TopologyConstraint("t", required="rack")
        scene.group("gang", root=PodSet("", 1, topology)).pod("gang", "b1").pod("gang")
        assert started(scene.plan()) == {}


class TestPreferredTopology:
    def test_a_narrow_domain_comes_first(self) -> None:
        scene = _racks(("a1", 1), ("b1", 1), ("b2", 1))
        plan = _gang(scene, 2, required="zone", preferred="rack")
        assert started(plan) == {"gang-0": "b1", "gang-1": "b2"}

    def test_a_wider_domain_does_if_no_narrow_one_has_room(self) -> None:
        plan = _gang(_racks(("a1", 1), ("b1", 1)), 2, required="zone", preferred="rack")
        assert set(started(plan).values()) == {"a1", "b1"}

    def test_without_a_required_level_any_nodes_do(self) -> None:
        scene = _racks(("a1", 1)).node("elsewhere", 1)
        assert set(started(_gang(scene, 2, preferred="rack")).values()) == {"a1", "elsewhere"}

    def test_pods_in_two_narrow_domains_keep_the_wide_one(self) -> None:
        scene = _racks(("a1", 1), ("b1", 2)).node("y", 1, labels={"zone": "y", "rack": "y"})
        topology = TopologyConstraint("t", "zone", "rack")
        scene.group("gang", root=PodSet("", 2, topology))
        scene.pod("gang", "a1").pod("gang", "b1").pod("gang")
        assert started(scene.plan()) == {"gang-2": "b1"}


class TestSubGroups:
    def test_each_part_is_in_a_domain_of_its_own(self) -> None:
        topology = TopologyConstraint("t", required="rack")
        parts = (PodSet("x", 2, topology), PodSet("y", 2, topology))
        scene = _racks(("a1", 2), ("b1", 2)).group("gang", root=SubGroups("", parts, 2))
        for part in ("x", "x", "y", "y"):
            scene.pod("gang", pod_set=part)
        places = started(scene.plan())
        assert places["gang-0"] == places["gang-1"] != places["gang-2"] == places["gang-3"]

    def test_no_part_starts_if_another_has_no_room(self) -> None:
        topology = TopologyConstraint("t", required="rack")
        parts = (PodSet("x", 2, topology), PodSet("y", 2, topology))
        scene = _racks(("a1", 2), ("b1", 1)).group("gang", root=SubGroups("", parts, 2))
        for part in ("x", "x", "y", "y"):
            scene.pod("gang", pod_set=part)
        assert started(scene.plan()) == {}

    def test_the_parts_are_within_the_domain_of_the_whole(self) -> None:
        rack = TopologyConstraint("t", required="rack")
        zone = TopologyConstraint("t", required="zone")
        parts = (PodSet("x", 1, rack), PodSet("y", 1, rack))
        scene = _racks(("a1", 1)).node("w", 1, labels={"zone": "w", "rack": "w"})
        scene.node("v1", 1, labels={"zone": "v", "rack": "v1"})
        scene.node("v2", 1, labels={"zone": "v", "rack": "v2"})
        scene.group("gang", root=SubGroups("", parts, 2, zone))
        scene.pod("gang", pod_set="x").pod("gang", pod_set="y")
        assert set(started(scene.plan()).values()) == {"v1", "v2"}


class TestSharedClaims:
    def test_pods_that_share_a_claim_go_where_its_devices_are(self) -> None:
        scene = Scene(**only()).node("n1", 1).node("n2", 1).queue("q").claim("shared")
        scene.group("g", root=PodSet("", 2))
        scene.pod("g", claims=("shared",)).pod("g", claims=("shared",))
        places = started(scene.plan())
        assert len(places) == 2
        assert len(set(places.values())) == 1

    def test_the_first_goes_where_the_others_have_room_too(self) -> None:
        scene = Scene(**only()).node("n1", 1, pods=1).node("n2", 1, pods=2).queue("q")
        scene.claim("shared").group("g", root=PodSet("", 2))
        scene.pod("g", claims=("shared",)).pod("g", claims=("shared",))
        assert set(started(scene.plan()).values()) == {"n2"}

    def test_pods_with_claims_of_their_own_need_not_be_together(self) -> None:
        scene = Scene(**only()).node("n1", 1).node("n2", 1).queue("q").waits("g", 2, gpus=1)
        assert set(started(scene.plan()).values()) == {"n1", "n2"}
