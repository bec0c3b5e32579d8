"""What a queue asks for with a claim that several pods share, in whatever order they are seen."""

from dataclasses import replace
from itertools import permutations

import pytest

from carina_dra.resource import (
    All,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    Exactly,
    ResourceClaimSpec,
)
from controller.engine.model.pod import Evicting, Pending, Placed, PodState
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene

LEAVES, WAITS, RUNS = Evicting("n1"), Pending(), Placed("n1")


def sharing(pods: dict[str, PodState]) -> Snapshot:
    """A claim for all devices of a node, which counts one device as asked, and two as given."""
    scene = Scene()
    scene.node("n1", 4)
    scene.queue("q", quota=4)
    scene.group("job")
    users = [name for name, state in pods.items() if not isinstance(state, Pending)]
    scene.claim("c", 2, "n1", users=users)
    request = DeviceRequest("gpus", Exactly(ExactDeviceRequest("gpu", mode=All())))
    spec = ResourceClaimSpec(DeviceClaim((request,)))
    scene.claims["c"] = replace(scene.claims["c"], spec=spec)
    for name, state in pods.items():
        scene.pod("job", name=name, claims=("c",), state=state, gpus=0)
    return scene.snapshot()


def requested(state: State) -> int:
    state.refresh()
    return int(state.occupancy.accounts.requested["q"][0])


@pytest.mark.parametrize(
    ("pods", "devices"),
    [
        ({"l": LEAVES, "p": WAITS}, 1),
        ({"l": LEAVES, "a": WAITS, "b": RUNS}, 2),
        ({"a": WAITS, "b": RUNS}, 2),
        ({"a": RUNS, "b": WAITS}, 2),
    ],
)
def test_it_does_not_depend_on_the_order(pods: dict[str, PodState], devices: int) -> None:
    snapshot = sharing(pods)
    found = {
        requested(State(replace(snapshot, pods=order))) for order in permutations(snapshot.pods)
    }
    assert found == {devices}


def test_it_changes_with_who_uses_the_claim() -> None:
    state = State(sharing({"l": LEAVES, "p": WAITS, "a": RUNS}))
    assert requested(state) == 2
    state.put_pod(replace(state.occupancy.pods["t/a"], state=LEAVES))
    assert requested(state) == 1
    state.put_pod(replace(state.occupancy.pods["t/a"], state=RUNS))
    assert requested(state) == 2
    state.remove_pod("t/a")
    assert requested(state) == 1
