"""What kube-scheduler is expected to choose for a pod that an earlier leader has sent to it."""

from dataclasses import replace
from typing import Any

from controller.engine.decide.nodes.expected import expected_devices
from controller.engine.model.pod import Pending, Placed, PodNeeds, PodState
from tests.unit.controller.engine.scene import Scene, gpus_of

NAME = "nvidia.com/gpu"


def _expected(scene: Scene, state: PodState | None = None) -> dict[str, list[str]]:
    """The devices of the planned claims of a pod that asks for two GPUs, and is sent to a node."""
    scene.group("job").claim("planned", 2)
    needs = PodNeeds(mapped=((NAME, 2),))
    planned: dict[str, Any] = {"claims": ("planned",), "planned": ((NAME, "t/planned"),)}
    scene.pod("job", needs=needs, state=state or Placed("n"), **planned)
    made = scene.state()
    found = expected_devices(made.occupancy, made.occupancy.pods["t/job-0"])
    return {
        claim: [result.device for result in allocation.devices.results]
        for claim, allocation in found.items()
    }


def _scene(**node: Any) -> Scene:
    return Scene().queue("q").node("n", 4, **node)


def test_first_devices_that_are_free_are() -> None:
    scene = _scene().runs("other", "n")
    assert _expected(scene) == {"t/planned": ["gpu-1", "gpu-2"]}


def test_nothing_is_of_a_node_with_too_few_free_devices() -> None:
    assert not _expected(_scene().runs("other", "n", gpus=3))


def test_nothing_is_of_a_node_that_is_gone() -> None:
    assert not _expected(_scene(), Placed("gone"))


def test_nothing_is_where_a_device_plugin_serves_the_pod() -> None:
    assert not _expected(_scene(extended={NAME: 4}))


def test_nothing_is_for_a_pod_without_a_node() -> None:
    assert not _expected(_scene(), Pending())


def test_nothing_is_for_a_claim_that_has_devices() -> None:
    scene = _scene().claim("planned", 2)
    status = replace(scene.claims["planned"].status, allocation=gpus_of("n", 2, 3))
    scene.claims["planned"] = replace(scene.claims["planned"], status=status)
    state = scene.group("job").pod("job", claims=("planned",), state=Placed("n")).state()
    pod = replace(state.occupancy.pods["t/job-0"], planned=((NAME, "t/planned"),))
    assert not expected_devices(state.occupancy, pod)
