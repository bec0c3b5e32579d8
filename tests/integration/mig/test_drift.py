"""What something else on the node changes of a prepared claim is restored, and named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from simulation.nvml import uninstall
from simulation.nvml.state import GpuState
from tests.fakes.claims import PATIENT
from tests.fakes.mig_node import MigNode
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.mig.agreement import TwoGpus

PART = "gpu-0-mig-1g10gb-19-6"
TRAIN = ClaimReference("train", "default", "train")


@pytest.fixture
def plugin(node: MigNode) -> ClaimLifecycle:
    """A plugin with a prepared claim for a partition, whose GPU and node are as they have to be."""
    node.device_metadata = True
    node.allocations["train"] = (PART,)
    claims = node.claims()
    claims.prepare(TRAIN, PATIENT)
    return claims


def _remove_spec(node: MigNode) -> None:
    _spec(node).unlink()


def _change_spec(node: MigNode) -> None:
    _spec(node).write_text("{}")


def _remove_metadata(node: MigNode) -> None:
    for file in (node.folder / "device-metadata").iterdir():
        file.unlink()


def _remove_node(node: MigNode) -> None:
    (node.simulated.root / "dev/nvidia0").unlink()


def _remove_instance(node: MigNode) -> None:
    _change(node, lambda gpu: replace(gpu, instances=()))


def _remove_compute_instance(node: MigNode) -> None:
    def without(gpu: GpuState) -> GpuState:
        return replace(
            gpu, instances=tuple(replace(i, compute_instances=()) for i in gpu.instances)
        )

    _change(node, without)


def _switch_mode_off(node: MigNode) -> None:
    _change(node, lambda gpu: replace(gpu, instances=(), mig_enabled=False, mig_pending=False))


def _change(node: MigNode, change: Callable[[GpuState], GpuState]) -> None:
    node.simulated._change_gpu(0, change)


def _spec(node: MigNode) -> Path:
    (file,) = (node.folder / "cdi").glob("*.json")
    return file


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        (_remove_spec, ["cdi-spec"]),
        (_change_spec, ["cdi-spec"]),
        (_remove_metadata, ["device-metadata"]),
        (_remove_node, ["device-node"]),
        (_remove_instance, ["mig-instance"]),
        (_remove_compute_instance, ["mig-instance"]),
        (_switch_mode_off, ["mig-mode", "mig-instance"]),
    ],
)
def test_a_change_is_restored_and_told_once(
    node: MigNode, plugin: ClaimLifecycle, changed: Callable[[MigNode], None], kinds: list[str]
) -> None:
    before = _spec(node).read_bytes()
    changed(node)

    plugin.repair()
    plugin.repair()

    assert [drift.kind for _, drift in node.reporter.repaired] == kinds
    assert _spec(node).read_bytes() == before
    (instance,) = node.instances(0)
    assert len(instance.compute_instances) == 1


def test_a_node_that_is_as_it_has_to_be_has_no_drift(node: MigNode, plugin: ClaimLifecycle) -> None:
    plugin.repair()

    assert node.reporter.repaired == []


def test_a_repair_asks_nvml_for_no_partition_that_procfs_shows_as_it_was(tmp_path: Path) -> None:
    node = TwoGpus.create(tmp_path)
    node.look()
    for start in range(7):
        node.prepare(f"train-{start}", f"gpu-0-mig-1g10gb-19-{start}")
    plugin = node.claims()
    plugin.repair()

    with nvml_calls(node.simulated.directory) as calls:
        plugin.repair()
        assert calls.symbols == []
        replaced = node.instances(0)[0]
        node.admin_destroys(0, replaced.id)
        plugin.repair()
    uninstall()

    assert calls.symbols.count("nvmlDeviceCreateGpuInstanceWithPlacement") == 1
    assert len(node.instances(0)) == 7
