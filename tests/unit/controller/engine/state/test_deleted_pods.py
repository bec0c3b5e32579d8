"""A pod that its user has deleted is charged until it is gone, and others wait for what it has."""

from dataclasses import replace

import pytest

from controller.engine.model.pod import Ended, Evicting, Pod
from controller.engine.model.reason import OverLimit
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import GPU, Scene, evicted, gpus_of, nominated

DELETED = Evicting("n", charged=True)


def _scene(*, limit: int | None = None) -> Scene:
    scene = Scene().node("n", 4).queue("q", quota=2, limit=limit).queue("other", quota=2)
    return scene.runs("old", "n", gpus=2)


def _delete(scene: Scene, name: str) -> Pod:
    scene.pods[name] = deleted = replace(scene.pods[name], state=DELETED)
    return deleted


def _sums(state: State) -> tuple[int, ...]:
    accounts = state.occupancy.accounts
    of_all = (accounts.allocated, accounts.firm, accounts.requested)
    return tuple(sums["q"][state.occupancy.tree.index[GPU]] for sums in of_all)


@pytest.mark.parametrize("preemptible", [True, False])
def test_its_queue_is_charged_as_before_until_it_is_gone(*, preemptible: bool) -> None:
    scene = Scene().node("n", 4).queue("q", quota=4)
    state = scene.runs("old", "n", gpus=2, preemptible=preemptible).state()
    before = _sums(state)
    deleted = _delete(scene, "old-0")
    state.put_pod(deleted)
    assert _sums(state) == before == (2, 0 if preemptible else 2, 2)
    assert _sums(scene.state()) == before
    state.put_pod(replace(deleted, state=Ended(succeeded=False)))
    assert _sums(state) == (0, 0, 0)


def test_a_queue_cannot_exceed_its_limit_by_deleting_pods() -> None:
    scene = _scene(limit=2)
    _delete(scene, "old-0")
    plan = scene.waits("new", gpus=2).plan()
    assert not plan.starts
    assert not plan.nominations
    assert OverLimit("q", GPU, 2, 2, 2) in plan.waiting["new"]


def test_another_queue_waits_for_its_devices_rather_than_evict_somebody() -> None:
    scene = _scene().runs("stays", "n", gpus=2)
    _delete(scene, "old-0")
    plan = scene.waits("theirs", gpus=2, queue="other").plan()
    assert (nominated(plan), evicted(plan)) == ({"theirs-0": "n"}, [])


def test_a_claim_of_it_that_another_pod_of_the_queue_uses_is_charged_once() -> None:
    scene = Scene().node("n", 4).queue("q", quota=4).claim("shared", 2, "n", users=["a", "b"])
    scene.group("g").pod("g", "n", name="a", claims=("shared",))
    scene.pod("g", "n", name="b", claims=("shared",))
    state = scene.state()
    for name in ("a", "b"):
        state.put_pod(_delete(scene, name))
        assert _sums(state) == (2, 0, 2)
    state.remove_pod("t/a")
    assert _sums(state) == (2, 0, 2)
    state.remove_pod("t/b")
    assert _sums(state) == (0, 0, 0)


def test_a_claim_that_gets_other_devices_is_charged_with_these() -> None:
    """A new pod takes over a claim whose only user is being deleted."""
    scene = Scene().node("n", 2).node("m", 2).queue("q", quota=8)
    scene.claim("c", 2, "n", users=["old"]).group("g").pod("g", name="old", claims=("c",))
    _delete(scene, "old")
    state = scene.group("h").pod("h", name="new", claims=("c",)).state()
    mark, before = state.occupancy.mark(), _sums(state)
    state.occupancy.place("t/new", "m", [("t/c", gpus_of("m", 0))])
    assert (before, _sums(state)) == ((2, 0, 2), (1, 0, 2))
    state.occupancy.rollback(mark)
    assert _sums(state) == before
