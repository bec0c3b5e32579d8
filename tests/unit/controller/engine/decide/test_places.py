"""The best place for one pod, and why there is none."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.allocator.preference import Order, Policy
from carina_dra.resource import ConsumerReference, ResourceClaimStatus
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import FoundPlace, Place, PlaceFinder
from controller.engine.model.label_selector import with_labels
from controller.engine.model.node import Taint
from controller.engine.model.pod import Evicting, PodAffinity, PodNeeds, PodSelection
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.reason import BadClaim, NoRoom
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene, gpu_claim, gpus_of

BINPACK = Policy()
SPREAD = Policy(Order.SPREAD, Order.SPREAD)
BALANCED = Policy(Order.BALANCED, Order.BALANCED)


def _find(scene: Scene, policy: Policy = BINPACK, **fields: Any) -> FoundPlace:
    trial = scene.trial()
    return trial.places.find(trial.state.occupancy.pods["t/new-0"], policy, **fields)


def _node(found: FoundPlace) -> tuple[str, bool] | None:
    """The node, and whether others have to leave it first."""
    return (found.node, found.waits) if isinstance(found, Place) else None


def _devices(found: FoundPlace) -> list[str]:
    assert isinstance(found, Place), found
    return [one.device for _, allocation in found.allocations for one in allocation.devices.results]


def _leaves(scene: Scene, node: str, gpus: int = 1, **fields: Any) -> Scene:
    """A pod that is being evicted, and holds GPUs."""
    number = len(scene.pods)
    name = f"leaver{number}"
    scene.claim(name, gpus, node)
    return scene.pod(None, gpus=gpus, name=name, claims=(name,), state=Evicting(node, **fields))


class TestNowAndLater:
    def test_a_node_where_the_pod_can_start_comes_before_one_that_others_leave(self) -> None:
        scene = _leaves(Scene().node("a", 1).node("b", 1), "a").queue("q").waits("new")
        assert _node(_find(scene)) == ("b", False)

    def test_what_others_leave_is_a_place_for_later(self) -> None:
        scene = _leaves(Scene().node("a", 1), "a").queue("q").waits("new")
        assert _node(_find(scene)) == ("a", True)

    def test_what_a_pod_has_that_does_not_end_is_no_place(self) -> None:
        scene = _leaves(Scene().node("a", 1), "a", stuck=True).queue("q").waits("new")
        assert _find(scene) is None

    def test_free_devices_of_a_node_that_others_leave_can_be_had_now(self) -> None:
        scene = _leaves(Scene().node("a", 2), "a").queue("q").waits("new")
        found = _find(scene)
        assert _node(found) == ("a", False)
        assert _devices(found) == ["gpu-1"]

    def test_devices_of_those_who_leave_are_not_given_now(self) -> None:
        scene = _leaves(Scene().node("a", 2), "a").queue("q").waits("new", gpus=2)
        assert _node(_find(scene)) == ("a", True)

    def test_a_node_with_free_devices_comes_before_a_better_one_to_wait_for(self) -> None:
        scene = _leaves(_leaves(Scene().node("a", 1).node("b", 4), "a"), "b")
        assert _node(_find(scene.queue("q").waits("new"))) == ("b", False)

    def test_what_is_promised_to_others_is_not_given_now(self) -> None:
        scene = _leaves(Scene().node("a", 2), "a").queue("q").waits("new").waits("first")
        trial = scene.trial()
        first = trial.state.occupancy.pods["t/first-0"]
        place = trial.places.find(first, BINPACK)
        assert isinstance(place, Place)
        trial.take(first, replace(place, waits=True))
        assert _node(trial.places.find(trial.state.occupancy.pods["t/new-0"], BINPACK)) == (
            "a",
            True,
        )

    @pytest.mark.parametrize(("cpu", "waits"), [(40, False), (41, True)])
    def test_a_pod_without_devices_waits_if_cpu_is_still_held(self, cpu: int, waits: bool) -> None:
        scene = Scene().node("a", cpu=100).queue("q")
        scene.pod(None, gpus=0, name="leaver", state=Evicting("a"), needs=PodNeeds(cpu=60))
        scene.waits("new", gpus=0, needs=PodNeeds(cpu=cpu))
        assert _node(_find(scene)) == ("a", waits)

    def test_a_pod_with_devices_waits_if_cpu_is_still_held(self) -> None:
        scene = Scene().node("a", 1, cpu=100).queue("q")
        scene.pod(None, gpus=0, name="leaver", state=Evicting("a"), needs=PodNeeds(cpu=60))
        scene.waits("new", needs=PodNeeds(cpu=50))
        assert _node(_find(scene)) == ("a", True)


class TestChoice:
    def _two(self) -> Scene:
        return Scene().node("a", 2).node("b", 2).queue("q").runs("old", "b").waits("new")

    def test_binpack_takes_the_node_that_is_used_most(self) -> None:
        assert _node(_find(self._two())) == ("b", False)

    def test_spread_takes_the_node_that_is_used_least(self) -> None:
        assert _node(_find(self._two(), SPREAD)) == ("a", False)

    def test_within_some_nodes(self) -> None:
        assert _node(_find(self._two(), within=frozenset("a"))) == ("a", False)

    def test_avoiding_others(self) -> None:
        assert _node(_find(self._two(), avoided={"b"})) == ("a", False)

    def test_no_nodes_have_no_place(self) -> None:
        assert _find(self._two(), within=frozenset()) is None

    @pytest.mark.parametrize(("policy", "node"), [(BINPACK, "b"), (SPREAD, "a")])
    def test_pods_without_devices_follow_the_policy_by_cpu(self, policy: Policy, node: str) -> None:
        scene = Scene().node("a").node("b").queue("q")
        scene.pod(None, "b", gpus=0, name="old", needs=PodNeeds(cpu=1_000))
        assert _node(_find(scene.waits("new", gpus=0), policy)) == (node, False)

    def test_then_by_memory(self) -> None:
        scene = Scene().node("a").node("b").queue("q")
        scene.pod(None, "b", gpus=0, name="old", needs=PodNeeds(memory=1_000))
        assert _node(_find(scene.waits("new", gpus=0))) == ("b", False)

    def test_pods_without_devices_prefer_nodes_without_any(self) -> None:
        scene = Scene().node("a", 2).node("b").queue("q")
        scene.pod(None, "a", gpus=0, name="old", needs=PodNeeds(cpu=1_000))
        assert _node(_find(scene.waits("new", gpus=0))) == ("b", False)

    def test_a_claim_with_devices_ties_its_pod_to_their_node(self) -> None:
        scene = Scene().node("a", 2).node("b", 2).queue("q").claim("mine", 1, "a").group("new")
        assert _node(_find(scene.pod("new", claims=("mine",)))) == ("a", False)


class TestBalanced:
    def test_a_gpu_whose_cpu_others_need_less_comes_first(self) -> None:
        scene = Scene().node("a", 4, cpu=64_000).node("b", 4, cpu=8_000).queue("q")
        scene.waits("new", needs=PodNeeds(cpu=1_000))
        assert _node(_find(scene, BALANCED)) == ("b", False)

    def test_a_pod_with_much_cpu_goes_where_there_is_much_beside_each_gpu(self) -> None:
        scene = Scene().node("a", 4, cpu=40_000).node("b", 4, cpu=128_000).queue("q")
        scene.waits("new", needs=PodNeeds(cpu=32_000))
        assert _node(_find(scene, BALANCED)) == ("b", False)

    def test_of_equal_nodes_the_fuller_one_comes_first(self) -> None:
        scene = Scene().node("a", 4).node("b", 4).queue("q").runs("old", "b").waits("new")
        assert _node(_find(scene, BALANCED)) == ("b", False)

    def test_pods_without_devices_leave_nodes_with_free_gpus_alone(self) -> None:
        scene = Scene().node("a", 2, cpu=24_000).node("b", 2, cpu=24_000).queue("q")
        scene.runs("old", "b", "b").waits("new", gpus=0, needs=PodNeeds(cpu=16_000))
        assert _node(_find(scene, BALANCED)) == ("b", False)

    def test_pods_without_devices_prefer_nodes_without_any(self) -> None:
        scene = Scene().node("a", 2).node("b").queue("q")
        assert _node(_find(scene.waits("new", gpus=0), BALANCED)) == ("b", False)

    def test_a_change_of_free_cpu_is_noticed(self) -> None:
        scene = Scene().node("a", 4).node("b", 4).queue("q").waits("new").waits("lean", gpus=0)
        trial = scene.trial()
        pods, places = trial.state.occupancy.pods, trial.places
        assert _node(places.find(pods["t/new-0"], BALANCED)) == ("a", False)
        trial.state.occupancy.keep_room("b", PodNeeds(cpu=63_000))
        assert _node(places.find(pods["t/new-0"], BALANCED)) == ("b", False)
        trial.state.occupancy.rollback(0)
        assert _node(places.find(pods["t/new-0"], BALANCED)) == ("a", False)

    def test_the_node_is_the_same_whatever_was_asked_before(self) -> None:
        scene = Scene().queue("q").waits("new", needs=PodNeeds(cpu=9_000))
        for number in range(6):
            scene.node(f"n{number}", 4, cpu=16_000 * (1 + number % 3))
            scene.runs(f"old{number}", f"n{number}", gpus=1 + number % 2)
        trial = scene.trial()
        fresh = trial.places.find(trial.state.occupancy.pods["t/new-0"], BALANCED)
        mark = trial.state.occupancy.mark()
        for number in range(6):
            trial.state.occupancy.evict(f"t/old{number}-0", here=True)
            trial.places.find(trial.state.occupancy.pods["t/new-0"], BALANCED)
        trial.state.occupancy.rollback(mark)
        assert trial.places.find(trial.state.occupancy.pods["t/new-0"], BALANCED) == fresh


class TestBadClaims:
    def _with(self, **fields: Any) -> Scene:
        scene = Scene().node("n", 2).queue("q").waits("new")
        scene.claims["new-0"] = replace(scene.claims["new-0"], **fields)
        return scene

    def test_a_claim_that_does_not_exist(self) -> None:
        scene = Scene().node("n", 2).queue("q").group("new").pod("new", claims=("gone",))
        assert _find(scene) == BadClaim("t/new-0", "claim t/gone does not exist")

    @pytest.mark.parametrize(("users", "is_bad"), [(255, False), (256, True)])
    def test_a_claim_with_as_many_users_as_there_can_be(self, users: int, is_bad: bool) -> None:
        user = ConsumerReference(resource="pods", name="p", uid="p")
        status = ResourceClaimStatus(None, (user,) * users)
        assert isinstance(_find(self._with(status=status)), BadClaim) is is_bad

    @pytest.mark.parametrize(("queue", "is_bad"), [("q", False), ("other", True)])
    def test_a_claim_for_another_queue(self, queue: str, is_bad: bool) -> None:
        metadata = replace(gpu_claim("new-0").metadata, labels={QUEUE_LABEL: queue})
        assert isinstance(_find(self._with(metadata=metadata)), BadClaim) is is_bad

    def test_a_class_that_does_not_exist(self) -> None:
        scene = Scene().node("n", 2).queue("q").waits("new")
        snapshot = replace(scene.snapshot(), classes=())
        state = State(snapshot)
        found = PlaceFinder(state).find(state.occupancy.pods["t/new-0"], BINPACK)
        assert isinstance(found, BadClaim)
        assert found.pod == "t/new-0"


class TestWhyNot:
    def _why(self, scene: Scene, **fields: Any) -> NoRoom:
        trial = scene.trial()
        return trial.places.why_not(trial.state.occupancy.pods["t/new-0"], **fields)

    def test_the_first_constraint_of_each_node_is_counted_the_most_frequent_first(self) -> None:
        scene = Scene().queue("q").node("full", 1).node("bare").node("bare2")
        scene.node("tainted", 1, taints=(Taint("k"),)).node("small", 1, cpu=10)
        scene.runs("old", "full").waits("new", needs=PodNeeds(cpu=20))
        assert self._why(scene) == NoRoom(
            "t/new-0", 5, (("devices", 3), ("cpu", 1), ("taint k", 1))
        )

    def test_within_some_nodes(self) -> None:
        scene = Scene().queue("q").node("a").node("b").waits("new")
        assert self._why(scene, within=frozenset("a")) == NoRoom("t/new-0", 1, (("devices", 1),))

    def test_devices_of_a_claim_elsewhere(self) -> None:
        scene = Scene().queue("q").node("a", 1).node("b", 1, cpu=10).claim("mine", 1, "b")
        scene.group("new").pod("new", claims=("mine",), needs=PodNeeds(cpu=20))
        fell = (("cpu", 1), ("its claim's devices", 1))
        assert self._why(scene) == NoRoom("t/new-0", 2, fell)


class TestBounds:
    """What says early that there is no room has to be true."""

    def _may(self, pods: int, *, gpus: int = 1, cpu: int = 0, nodes: str = "ab") -> bool:
        scene = Scene().node("a", 2, cpu=100).node("b", 3, cpu=100).queue("q")
        scene.waits("new", pods, gpus=gpus, needs=PodNeeds(cpu=cpu))
        trial = scene.trial()
        waiting = [trial.state.occupancy.pods[f"t/new-{number}"] for number in range(pods)]
        return trial.places.may_have_room(trial.places.least_of(waiting), frozenset(nodes))

    @pytest.mark.parametrize(
        ("pods", "gpus", "cpu", "expected"),
        [(5, 1, 0, True), (6, 1, 0, False), (2, 2, 0, True), (3, 2, 0, False), (3, 1, 51, False)],
    )
    def test_may_have_room(self, pods: int, gpus: int, cpu: int, expected: bool) -> None:
        assert self._may(pods, gpus=gpus, cpu=cpu) is expected

    def test_only_the_nodes_that_are_asked_about_count(self) -> None:
        assert not self._may(3, nodes="a")

    @pytest.mark.parametrize(("gpus", "expected"), [(1, True), (2, False)])
    def test_whether_a_device_is_free(self, gpus: int, expected: bool) -> None:
        trial = Scene().node("n", 2).queue("q").runs("old", "n", gpus=gpus).trial()
        assert trial.places.has_free_devices() is expected

    def test_least_devices_of_a_pod(self) -> None:
        scene = Scene().node("n").queue("q").waits("new", gpus=3).waits("bare", gpus=0)
        scene.claim("shared", 4).group("s")
        scene.pod("s", claims=("shared",)).pod("s", claims=("shared",))
        trial = scene.trial()
        pods = trial.state.occupancy.pods
        least = {key: trial.places.least_devices(pods[f"t/{key}"]) for key in ("new-0", "bare-0")}
        assert least == {"new-0": 3, "bare-0": 0}
        assert trial.places.least_devices(pods["t/s-0"]) == 0  # it may be the other that gets them


def test_kinds_are_equal_for_pods_of_one_template() -> None:
    scene = Scene().node("n", 2).queue("q").waits("a", 2).waits("b", gpus=2)
    scene.waits("c", needs=PodNeeds(cpu=1))
    trial = scene.trial()
    kinds = {key: trial.places.kind(pod) for key, pod in trial.state.occupancy.pods.items()}
    assert kinds["t/a-0"] == kinds["t/a-1"]
    assert len({kinds["t/a-0"], kinds["t/b-0"], kinds["t/c-0"]}) == 3


def test_a_place_is_free_now_if_nobody_holds_its_devices() -> None:
    scene = _leaves(Scene().node("a", 2).node("b", 2), "a").queue("q").waits("new")
    trial: Trial = scene.trial()
    pod = trial.state.occupancy.pods["t/new-0"]

    def is_free(node: str, index: int) -> bool:
        return trial.places.is_free_now(
            pod, Place(node, (("t/new-0", gpus_of(node, index)),), waits=False)
        )

    assert [is_free("a", 0), is_free("a", 1), is_free("b", 0)] == [False, True, True]


def test_places_that_were_looked_for_are_counted() -> None:
    trial = Scene().node("n", 2).queue("q").waits("new").trial()
    trial.places.find(trial.state.occupancy.pods["t/new-0"], BINPACK)
    assert trial.places.steps == 1


def test_what_is_remembered_of_nodes_changes_with_them() -> None:
    scene = Scene().node("a", 1).node("b", 1).queue("q").waits("new")
    trial = scene.trial()
    pod, both = trial.state.occupancy.pods["t/new-0"], frozenset("ab")
    assert _node(trial.places.find(pod, BINPACK, both)) == ("a", False)
    trial.state.put_node(replace(scene.nodes["a"], unschedulable=True))
    assert _node(trial.places.find(pod, BINPACK, both)) == ("b", False)


def test_who_waits_for_a_place_does_not_take_room_from_who_can_start_now() -> None:
    scene = Scene().node("a", cpu=100).queue("q")
    scene.pod(None, gpus=0, name="leaver", state=Evicting("a"), needs=PodNeeds(cpu=60))
    scene.waits("first", gpus=0, needs=PodNeeds(cpu=50))
    trial = scene.waits("new", gpus=0, needs=PodNeeds(cpu=40)).trial()
    pods = trial.state.occupancy.pods
    trial.take(pods["t/first-0"], Place("a", (), waits=True))
    assert _node(trial.places.find(pods["t/new-0"], BINPACK)) == ("a", False)


def test_pods_that_share_a_claim_are_of_a_kind_of_their_own() -> None:
    scene = Scene().node("n", 2).queue("q").claim("x").claim("y").group("g")
    for claim in ("x", "x", "y", "y"):
        scene.pod("g", claims=(claim,))
    trial = scene.trial()
    kinds = {key: trial.places.kind(pod) for key, pod in trial.state.occupancy.pods.items()}
    assert kinds["t/g-0"] == kinds["t/g-1"]
    assert kinds["t/g-0"] != kinds["t/g-2"]


def test_labels_make_a_kind_only_where_affinity_looks_at_them() -> None:
    selection = PodSelection(with_labels({"app": "a"}), ("t",))
    affine = PodNeeds(pod_affinity=(PodAffinity("zone", selection, anti=False),))
    scene = Scene().node("n").queue("q").group("g")
    for needs in (PodNeeds(), affine):
        for label in ("a", "b"):
            scene.pod("g", gpus=0, needs=needs, labels={"app": label})
    trial = scene.trial()
    plain_a, plain_b, affine_a, affine_b = map(
        trial.places.kind, trial.state.occupancy.pods.values()
    )
    assert plain_a == plain_b
    assert affine_a != affine_b
