"""Making and unmaking what a claim needs, on a simulated node's files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.claim import ClaimError, ClaimReference
from kubelet_plugin.claims.lifecycle import ClaimNeeds
from kubelet_plugin.devices.whole import Device, WholeGpu
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import Health, Healthy, Lost, Unreadable
from kubelet_plugin.prepare.needs import ContainerNeeds
from simulation.nvml import SimulatedNode
from tests.unit.kubelet_plugin.sample_claims import UID, claim, granted
from tests.unit.kubelet_plugin.sample_gpus import LOST, UNREADABLE, gpu

DRIVER = "gpu.carina.dev"


class Node:
    """A node, whose devices the test says."""

    def __init__(self, directory: Path) -> None:
        self.simulated = SimulatedNode.create(directory / "node", "t4")
        self.version = self.simulated.hardware.driver_version
        self.devices: dict[str, Device] = {}
        self.has("gpu-0", Healthy())
        self.folder = directory / "cdi"
        self.needs: ClaimNeeds = ContainerNeeds(
            driver=DRIVER,
            devices=lambda: self.devices,
            driver_root=DriverRoot(self.simulated.root, Path("/")),
            host=HostPaths(self.simulated.root),
            host_device_root=Path("/"),
            specs=CdiDirectory(self.folder, DRIVER),
        )

    def has(self, name: str, health: Health, **changes: Any) -> None:
        minor = int(name.removeprefix("gpu-"))
        changes = {"driver_version": self.version, **changes}
        self.devices[name] = WholeGpu(gpu(minor, **changes), health)

    @property
    def spec(self) -> Path:
        return self.folder / f"{DRIVER}-claim_{UID}.json"

    @property
    def driver_library(self) -> Path:
        return self.simulated.root / f"usr/lib/x86_64-linux-gnu/libcuda.so.{self.version}"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    if not (node.simulated.root / "dev/nvidia0").is_char_device():
        pytest.skip("no right to make device nodes")
    return node


def test_a_made_claim_has_a_spec_with_what_is_granted(node: Node) -> None:
    node.needs.make(claim())
    spec = json.loads(node.spec.read_bytes())
    [device] = spec["devices"]
    [grant] = node.needs.grants(claim())
    assert grant.cdi_ids == (f"{spec['kind']}={device['name']}",)
    assert [entry["hostPath"] for entry in device["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia0"
    ]
    assert any(value.endswith(gpu(0).uuid) for value in device["containerEdits"]["env"])


def test_making_again_changes_nothing(node: Node) -> None:
    node.needs.make(claim())
    before = node.spec.stat()
    node.needs.make(claim())
    assert node.spec.stat() == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_making_again_brings_back_what_was_lost(
    node: Node, damage: Callable[[Path], object]
) -> None:
    node.needs.make(claim())
    before = node.spec.read_bytes()
    damage(node.spec)
    node.needs.make(claim())
    assert node.spec.read_bytes() == before


def test_what_exists_is_found_with_its_claims_name(node: Node) -> None:
    node.needs.make(claim())
    assert node.needs.found() == {UID: ClaimReference(UID, "default", "train")}


@pytest.mark.parametrize(
    "content", ["{", '{"containerEdits": {"env": ["CARINA_CLAIM_1234=default/other"]}}']
)
def test_of_a_damaged_spec_the_uid_is_known_and_no_name(node: Node, content: str) -> None:
    node.needs.make(claim())
    node.spec.write_text(content)
    assert node.needs.found() == {UID: ClaimReference(UID, "", "")}


def test_unmaking_leaves_nothing_to_find(node: Node) -> None:
    node.needs.make(claim())
    node.needs.unmake(UID)
    node.needs.unmake(UID)
    assert node.needs.found() == {}


def test_missing_device_nodes_are_made(node: Node) -> None:
    path = node.simulated.root / "dev/nvidia-uvm-tools"
    path.unlink()
    node.needs.make(claim())
    assert path.is_char_device()


def refusal(node: Node, *names: str) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        node.needs.make(claim(*(granted(name) for name in names)))
    assert "default/train" in str(caught.value)
    assert not node.spec.exists()
    return caught.value


def test_a_device_that_is_not_there_may_come(node: Node) -> None:
    error = refusal(node, "gpu-0", "gpu-7")
    assert error.may_pass
    assert "device gpu-7" in str(error)
    assert "which has gpu-0" in str(error)


@pytest.mark.parametrize(
    ("health", "may_pass", "words"),
    [(Lost(LOST), False, "fell off the bus"), (Unreadable(UNREADABLE), True, "does not answer")],
)
def test_a_gpu_that_does_not_answer_is_given_to_nobody(
    node: Node, health: Health, may_pass: bool, words: str
) -> None:
    node.has("gpu-0", health)
    error = refusal(node, "gpu-0")
    assert error.may_pass is may_pass
    assert words in str(error)
    assert gpu(0).uuid in str(error)
    assert "reset the GPU" in str(error)


def test_without_the_drivers_libraries_a_claim_waits_for_them(node: Node) -> None:
    node.driver_library.unlink()
    error = refusal(node, "gpu-0")
    assert error.may_pass
    assert "libcuda.so" in str(error)


def test_without_the_drivers_version_its_libraries_are_not_guessed(node: Node) -> None:
    node.has("gpu-0", Healthy(), driver_version=None)
    assert "does not tell its version" in str(refusal(node, "gpu-0"))


def test_a_spec_that_cannot_be_written_fails_the_claim(node: Node) -> None:
    node.folder.write_text("a file in the folder's place")
    error = refusal(node, "gpu-0")
    assert error.may_pass
    assert str(node.folder) in str(error)


def test_a_name_that_cannot_be_in_a_spec_fails_the_claim_for_good(node: Node) -> None:
    with pytest.raises(ClaimError, match="small letters") as caught:
        node.needs.make(claim(granted("gpu-0", "Not_A_Label")))
    assert not caught.value.may_pass
