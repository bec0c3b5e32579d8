"""The state of a cluster: what events change, and that a trial changes nothing."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.allocator.usage import DeviceId
from controller.engine.decide.cycle import Engine
from controller.engine.model.group import PodSet
from controller.engine.model.plan import CarriedOver
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, PodNeeds
from controller.engine.model.resource import Cpu
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.queue_tree import LOST, ROOT
from controller.engine.state.state import State
from tests.calls import calls_of
from tests.unit.controller.engine.scene import Scene, gpus_of


def _picture(state: State) -> object:
    """What decisions depend on, as values."""
    return (
        dict(state.occupancy.accounts.allocated),
        dict(state.occupancy.accounts.firm),
        dict(state.occupancy.accounts.requested),
        dict(state.occupancy.holds),
        {queue: dict(of) for queue, of in state.occupancy.holders.items() if of},
        {node: set(pods) for node, pods in state.occupancy.on_node.items() if pods},
        {node: set(pods) for node, pods in state.occupancy.leaving.items()},
        {node: set(pods) for node, pods in state.occupancy.nominated.items()},
        {claim: set(pods) for claim, pods in state.occupancy.users.items()},
        {name: (room.cpu, room.memory, room.pods) for name, room in state.occupancy.rooms.items()},
        {key: state.occupancy.cluster.allocation(key) for key in state.occupancy.claims},
        {key: state.occupancy.allocation(key) for key in state.occupancy.claims},
        dict(state.occupancy.budgets),
        state.waiting,
    )


def _scene() -> Scene:
    scene = Scene().node("n", 4).node("m", 4).queue("q", quota=2)
    scene.budgets = {"b": 2}
    scene.runs("old", "n", "m", budgets=("b",)).runs("firm", "n", preemptible=False)
    return scene.waits("new", 2)


class TestTrial:
    def test_a_rollback_leaves_everything_as_it_was(self) -> None:
        state = _scene().state()
        before, mark = _picture(state), state.occupancy.mark()
        state.occupancy.place("t/new-0", "n", [("t/new-0", gpus_of("n", 3))])
        state.occupancy.nominate("t/new-0")
        state.occupancy.disrupt(state.occupancy.pods["t/old-0"])
        state.occupancy.evict("t/old-0", here=True)
        state.occupancy.evict("t/new-0", here=False)
        state.occupancy.evict("t/old-1", here=True)
        state.occupancy.put_back("t/old-1", "m")
        state.occupancy.undisrupt(state.occupancy.pods["t/old-0"])
        assert _picture(state) != before
        state.occupancy.rollback(mark)
        assert _picture(state) == before

    def test_a_place_is_charged_and_takes_devices_and_room(self) -> None:
        state = _scene().state()
        state.occupancy.place("t/new-0", "n", [("t/new-0", gpus_of("n", 3))])
        assert state.occupancy.accounts.allocated["q"] == (4,)
        assert state.occupancy.cluster.allocation("t/new-0") == gpus_of("n", 3)
        assert state.occupancy.rooms["n"].pods == 110 - 3
        assert not state.occupancy.is_pending("t/new-0")

    def test_who_is_evicted_has_no_place_but_holds_what_it_has(self) -> None:
        state = _scene().state()
        state.occupancy.evict("t/old-0", here=True)
        assert state.occupancy.accounts.allocated["q"] == (2,)
        assert set(state.occupancy.leaving["n"]) == {"t/old-0"}
        assert state.occupancy.allocation("t/old-0") is None
        assert state.occupancy.device_count_before(state.occupancy.pods["t/old-0"]) == 1
        assert state.occupancy.device_count(state.occupancy.pods["t/old-0"]) == 0

    def test_who_was_placed_in_the_trial_leaves_nothing_behind(self) -> None:
        state = _scene().state()
        before = _picture(state)
        state.occupancy.place("t/new-0", "n", [("t/new-0", gpus_of("n", 3))])
        state.occupancy.nominate("t/new-0")
        state.occupancy.evict("t/new-0", here=False)
        assert _picture(state) == before

    def test_putting_back_is_the_inverse_of_evicting(self) -> None:
        state = _scene().state()
        before = _picture(state)
        state.occupancy.evict("t/old-0", here=True)
        state.occupancy.put_back("t/old-0", "n")
        assert _picture(state) == before

    @pytest.mark.parametrize(("left", "allowed"), [(2, True), (1, True), (0, False)])
    def test_a_disruption_spends_the_budget_if_there_is_some(
        self, left: int, allowed: bool
    ) -> None:
        scene = _scene()
        scene.budgets = {"b": left}
        state = scene.state()
        assert state.occupancy.disrupt(state.occupancy.pods["t/old-0"]) is allowed
        assert state.occupancy.budgets == {"b": left - allowed}

    def test_of_several_budgets_all_or_none_are_spent(self) -> None:
        scene = Scene().node("n", 1).queue("q")
        scene.budgets = {"a": 1, "b": 0}
        state = scene.runs("old", "n", budgets=("a", "b")).state()
        assert not state.occupancy.disrupt(state.occupancy.pods["t/old-0"])
        assert state.occupancy.budgets == {"a": 1, "b": 0}

    def test_devices_can_be_hidden_and_shown(self) -> None:
        state = _scene().state()
        mark = state.occupancy.mark()
        state.occupancy.hide("t/old-0")
        assert state.occupancy.cluster.allocation("t/old-0") is None
        state.occupancy.show("t/old-0")
        assert state.occupancy.cluster.allocation("t/old-0") == gpus_of("n", 0)
        state.occupancy.rollback(mark)
        assert state.occupancy.cluster.allocation("t/old-0") == gpus_of("n", 0)


class TestSharedClaims:
    def _scene(self) -> Scene:
        scene = Scene().node("n", 2).queue("q").claim("c", 2, "n").group("g", root=PodSet("", 1))
        return scene.pod("g", "n", claims=("c",)).pod("g", "n", claims=("c",))

    def test_the_claim_is_charged_once(self) -> None:
        assert self._scene().state().occupancy.accounts.allocated["q"] == (2,)

    def test_its_devices_are_free_when_the_last_pod_is_gone(self) -> None:
        state = self._scene().state()
        state.occupancy.evict("t/g-0", here=True)
        assert state.occupancy.allocation("t/c") is not None
        assert state.occupancy.accounts.allocated["q"] == (2,)
        state.occupancy.evict("t/g-1", here=True)
        assert state.occupancy.allocation("t/c") is None
        assert state.occupancy.accounts.allocated["q"] == (0,)

    def test_pods_that_refer_to_a_claim_are_counted(self) -> None:
        state = self._scene().waits("other").state()
        assert [state.occupancy.referrers(key) for key in ("t/c", "t/other-0", "t/gone")] == [
            2,
            1,
            0,
        ]

    def test_a_pod_that_does_not_end_asks_for_it_when_the_others_are_gone(self) -> None:
        scene = self._scene()
        state = scene.state()
        state.put_pod(replace(scene.pods["g-1"], state=Evicting("n", stuck=True)))
        state.remove_pod("t/g-0")
        assert state.occupancy.accounts.requested["q"] == (2,)

    def test_it_is_asked_for_once_also_when_the_first_pod_goes(self) -> None:
        scene = Scene().queue("q").claim("c", 2).group("g", root=PodSet("", 1))
        state = scene.pod("g", claims=("c",)).pod("g", claims=("c",)).state()
        assert state.occupancy.accounts.requested["q"] == (2,)
        state.remove_pod("t/g-0")
        assert state.occupancy.accounts.requested["q"] == (2,)
        state.remove_pod("t/g-1")
        assert state.occupancy.accounts.requested["q"] == (0,)


class TestWhoIsCharged:
    def test_pods_of_no_group_are_charged_to_nobody(self) -> None:
        state = Scene().node("n", 2).queue("q").pod(None, "n", name="theirs").state()
        assert (
            state.occupancy.accounts.allocated["q"],
            state.occupancy.accounts.allocated[ROOT],
        ) == ((0,), (1,))

    def test_pods_of_a_queue_that_is_gone_have_an_account_of_their_own(self) -> None:
        state = Scene().node("n", 2).queue("q").runs("g", "n", queue="gone").state()
        assert state.occupancy.accounts.allocated == {"q": (0,), ROOT: (0,), LOST: (1,)}

    def test_what_a_pod_holds_that_does_not_end_is_charged_to_its_queue(self) -> None:
        scene = Scene().node("n", 2).queue("q").claim("c", 1, "n").group("g")
        scene.pod("g", name="p", claims=("c",), state=Evicting("n", stuck=True))
        state = scene.state()
        assert state.occupancy.accounts.allocated == {"q": (1,), ROOT: (0,), LOST: (0,)}
        state.remove_pod("t/p")
        assert state.occupancy.accounts.allocated == {"q": (0,), ROOT: (0,), LOST: (0,)}

    def test_pods_that_do_not_end_are_nobody_whom_others_could_evict(self) -> None:
        scene = Scene().node("n", 2).queue("q").claim("c", 1, "n").group("g")
        scene.pod("g", name="p", claims=("c",), state=Evicting("n", stuck=True))
        assert scene.state().occupancy.holders.get("q", {}) == {}

    def test_pods_that_leave_are_not_charged(self) -> None:
        scene = Scene().node("n", 2).queue("q").claim("c", 1, "n").group("g")
        scene.pod("g", name="p", claims=("c",), state=Evicting("n"))
        assert scene.state().occupancy.accounts.allocated == {"q": (0,), ROOT: (0,), LOST: (0,)}


class TestRequests:
    @pytest.mark.parametrize(
        ("state", "cpu"),
        [
            (Pending(), 5),
            (Placed("n"), 5),
            (Gated(), 0),
            (Evicting("n"), 0),
            (Evicting("n", stuck=True), 5),
            (Ended(succeeded=True), 0),
        ],
    )
    def test_pods_that_wait_or_have_a_place_ask(
        self, state: Pending | Placed | Gated | Evicting | Ended, cpu: int
    ) -> None:
        scene = Scene().node("n").queue("q", resource=Cpu()).group("g")
        scene.pod("g", gpus=0, state=state, needs=PodNeeds(cpu=5))
        assert scene.state().occupancy.accounts.requested["q"] == (cpu,)


class TestEvents:
    """A state that has seen the events is the same as one that began with their result."""

    def _same(self, state: State, scene: Scene) -> None:
        assert _picture(state) == _picture(scene.state())

    def test_pods_that_start_leave_and_end(self) -> None:
        scene = _scene()
        state = scene.state()
        for name, now in (
            ("old-0", Evicting("n", charged=True)),
            ("old-0", Evicting("n")),
            ("old-1", Ended(succeeded=False)),
            ("new-0", Gated()),
        ):
            scene.pods[name] = replace(scene.pods[name], state=now)
            state.put_pod(scene.pods[name])
        self._same(state, scene)

    def test_pods_that_do_not_end(self) -> None:
        scene = _scene()
        state = scene.state()
        for stuck in (False, True):
            left = replace(scene.pods["old-0"], state=Evicting("n", stuck=stuck))
            scene.pods["old-0"] = left
            state.put_pod(left)
        self._same(state, scene)

    def test_pods_that_are_gone(self) -> None:
        scene = _scene()
        state = scene.state()
        for name in ("old-0", "new-1"):
            del scene.pods[name]
            state.remove_pod(f"t/{name}")
        self._same(state, scene)

    def test_claims_that_get_devices_and_lose_them(self) -> None:
        scene = _scene()
        state = scene.state()
        for name, source in (("new-0", "old-0"), ("old-0", "new-0")):
            changed = replace(scene.claims[name], status=_scene().claims[source].status)
            scene.claims[name] = changed
        state.put_claim(scene.claims["old-0"])
        state.put_claim(scene.claims["new-0"])
        self._same(state, scene)

    def test_claims_that_are_gone(self) -> None:
        scene = _scene()
        state = scene.state()
        del scene.claims["old-0"]
        state.remove_claim("t/old-0")
        self._same(state, scene)

    def test_queues_and_groups_that_change(self) -> None:
        scene = _scene()
        state = scene.state()
        scene.queue("q", "top").queue("top").queue("other")
        state.put_queues(scene.queues.values())
        scene.group("old", "other", PodSet("", 2), preemptible=False)
        state.put_group(scene.groups["old"])
        del scene.groups["firm"]
        state.remove_group("firm")
        self._same(state, scene)

    def test_nodes_that_come_back_with_less(self) -> None:
        scene = _scene()
        state = scene.state()
        state.remove_node("n")
        scene.node("n", 4, cpu=10)
        state.put_node(scene.nodes["n"])
        self._same(state, scene)

    def test_devices_that_are_gone(self) -> None:
        scene = _scene()
        state = scene.state()
        state.remove_devices(scene.slices["m"])
        assert state.occupancy.cluster.published(DeviceId("gpu.carina.dev", "m", "gpu-0")) is None
        assert state.occupancy.devices.most_free("m") == 0


def test_a_state_is_written_as_the_snapshot_that_it_was_made_of() -> None:
    snapshot = _scene().snapshot()
    assert _sorted(State(snapshot).snapshot()) == _sorted(snapshot)


def _sorted(snapshot: Snapshot) -> Snapshot:
    """A snapshot with its objects by name, since their order does not matter."""
    objects: dict[str, Any] = {
        name: tuple(sorted(getattr(snapshot, name), key=repr))
        for name in ("nodes", "slices", "classes", "rules", "claims", "queues", "groups", "pods")
    }
    return replace(snapshot, **objects)


def test_pods_that_share_a_claim_are_evicted_without_a_look_at_each_other() -> None:
    few, many = (_calls_to_evict(pods) for pods in (100, 800))
    assert many < 1.1 * 8 * few


def _calls_to_evict(pods: int) -> int:
    scene = Scene().node("n", 1, pods=pods).queue("q").claim("c", 1, "n")
    for at in range(pods):
        scene.group(f"g{at}").pod(f"g{at}", "n", gpus=0, claims=("c",))
    state = scene.state()
    state.refresh()

    def evict_all() -> None:
        for at in range(pods):
            state.occupancy.evict(f"t/g{at}-0", here=True)

    return calls_of(evict_all)


def test_groups_that_go_one_after_the_other_cost_no_look_at_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene().node("n").queue("q")
    for number in range(100):
        scene.waits(f"w{number}")
    state = scene.state()
    state.memory = Engine(state).decide().memory
    calls = []

    def counted(memory: CarriedOver, **changes: object) -> CarriedOver:
        calls.append(memory)
        return replace(memory, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr("controller.engine.state.state.replace", counted)
    for number in range(50):
        state.remove_pod(f"t/w{number}-0")
        state.remove_claim(f"t/w{number}-0")
        state.remove_group(f"w{number}")
    assert len(calls) <= 2
    assert set(state.memory.outdated) == {f"w{number}" for number in range(50, 100)}
