"""A defect that one object meets in the mirror reaches no other object, and ends nothing."""

from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from controller.observe import group_registry
from controller.observe.grouping import group_of
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice


@pytest.fixture
def mirror() -> Mirror:
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    mirror.put_queue("q", declared_queue())
    mirror.put_node(Scene().node("n1").nodes["n1"])
    mirror.put_devices(gpu_slice("n1", 2))
    return mirror


def _fails_for(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, key: str) -> None:
    original = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        if any(getattr(each, "key", each) == key for each in arguments):
            raise RuntimeError("a defect")
        return original(*arguments)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("method", "key", "resource"),
    [
        ("put_pod", "t/bad", "pods"),
        ("put_claim", "t/bad", "resourceclaims.resource.k8s.io"),
        ("put_group", "t/pod/bad", "groups"),
    ],
)
def test_an_object_that_the_state_cannot_take_is_set_aside_until_it_changes(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, method: str, key: str, resource: str
) -> None:
    with monkeypatch.context() as patched:
        _fails_for(patched, State, method, key)
        for name in ("bad", "good"):
            mirror.put_claim(decode(ResourceClaim, claim_body(name)))
            mirror.put_pod(read_pod(pod_body(name, claims=[name])))
        mirror.refresh(NOW)
    assert mirror.set_aside.counts() == {resource: 1}
    assert "t/pod/good" in mirror.state.occupancy.groups
    assert "t/good" in mirror.state.occupancy.pods

    mirror.put_claim(decode(ResourceClaim, claim_body("bad", version=2)))
    mirror.put_pod(read_pod(pod_body("bad", version=2, claims=["bad"], priority=7)))
    mirror.refresh(NOW)

    assert mirror.set_aside.counts() == {}
    assert mirror.state.occupancy.groups.keys() == {"t/pod/good", "t/pod/bad"}
    assert mirror.state.occupancy.pods.keys() == {"t/good", "t/bad"}


def test_a_group_that_cannot_be_made_is_refused_and_others_are_not(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = group_of

    def failing(group: Any, *arguments: Any) -> Any:
        if group.key == "t/pod/bad":
            raise RuntimeError("a defect")
        return original(group, *arguments)

    monkeypatch.setattr(group_registry, "group_of", failing)
    for name in ("bad", "good"):
        mirror.put_pod(read_pod(pod_body(name)))
    mirror.refresh(NOW)
    assert mirror.set_aside.counts() == {"groups": 1}
    assert "defect" in mirror.refusals()["t/pod/bad"]
    assert "t/pod/good" in mirror.state.occupancy.groups
    assert "t/pod/good" not in mirror.refusals()
