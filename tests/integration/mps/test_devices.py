"""Whole GPUs and partitions whose configuration has the strategy MPS, in both APIs.

Each call is that of a new plugin process, on a node of two GPUs with MIG.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carina_dra.config import nvidia
from carina_dra.sharing.message import MpsDevice
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.prepare import mps_daemons
from simulation.nvml import uninstall
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.mps.supervised import DRIVER, Supervised

WHOLE, OTHER = "gpu-0", "gpu-1"
PARTITION, BESIDE = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-5"
PIPES = "CUDA_MPS_PIPE_DIRECTORY=/run/carina-mps/pipe"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    for patience in ("_PATIENCE", "_AWAY", "_ENDING"):
        monkeypatch.setattr(mps_daemons, patience, 0.05)
    yield Supervised.create(tmp_path, driver_version=DRIVER)
    uninstall()


def by_mps(kind: str = "GpuConfig", *, of_nvidia: bool = False, **limits: Any) -> dict[str, Any]:
    """A configuration for MPS with these limits."""
    api = {"apiVersion": nvidia.API_VERSION} if of_nvidia else {}
    return {**api, "kind": kind, "sharing": {"strategy": "MPS", "mpsConfig": limits}}


def wanted(node: Supervised, claim: str = "train") -> tuple[dict[str, int | None], int | None]:
    """The memory that a client of the claim's daemon can have of each device, and the threads."""
    record = node.daemon_record(claim)
    assert record is not None
    assert record.ready
    devices = {device.uuid: device.memory_mib for device in record.wanted.devices}
    return devices, record.wanted.thread_percentage


def uuid(node: Supervised, minor: int) -> str:
    return node.simulated.state.gpus[minor].uuid


@pytest.mark.parametrize("of_nvidia", [True, False], ids=["NVIDIA's", "Carina's"])
def test_a_whole_gpu_gets_a_daemon_with_the_limits_of_its_configuration(
    node: Supervised, of_nvidia: bool
) -> None:
    config = by_mps(
        of_nvidia=of_nvidia,
        defaultActiveThreadPercentage=50,
        defaultPinnedDeviceMemoryLimit="10Gi",
    )
    node.reserve("train", WHOLE, config=config)
    node.prepare("train")

    assert wanted(node) == ({uuid(node, 0): 10240}, 50)
    assert PIPES in node.edits("train")["env"]
    assert {"/run/carina-mps/pipe", "/dev/shm"} <= {
        mount["containerPath"] for mount in node.edits("train")["mounts"]
    }
    node.unprepare("train")
    assert node.daemons() == set()
    assert node.specs() == set()


def test_without_limits_a_client_can_have_all(node: Supervised) -> None:
    node.reserve("train", WHOLE, config=by_mps())
    node.prepare("train")
    assert wanted(node) == ({uuid(node, 0): None}, None)


def test_the_gpus_of_a_claim_have_one_daemon_and_limits_by_index(node: Supervised) -> None:
    per_device = {"1": "2Gi"}
    config = by_mps(
        defaultPinnedDeviceMemoryLimit="1Gi", defaultPerDevicePinnedMemoryLimit=per_device
    )
    node.reserve("train", OTHER, WHOLE, config=config)
    node.prepare("train")

    first, second = sorted((uuid(node, 0), uuid(node, 1)))
    assert wanted(node) == ({first: 1024, second: 2048}, None)
    record = node.daemon_record("train")
    assert record is not None
    assert record.wanted.devices == (
        MpsDevice(uuid=first, memory_mib=1024),
        MpsDevice(uuid=second, memory_mib=2048),
    )
    for device in node.spec("train")["devices"]:
        assert PIPES in device["containerEdits"]["env"]


def test_a_partition_gets_a_daemon_by_the_uuid_with_which_it_was_made(node: Supervised) -> None:
    config = by_mps("MigDeviceConfig", defaultPinnedDeviceMemoryLimit="2Gi")
    node.reserve("train", PARTITION, config=config)
    node.prepare("train")

    ((device, mib),) = wanted(node)[0].items()
    assert device.startswith("MIG-")
    assert f"={device}" in " ".join(node.edits("train")["env"])
    assert mib == 2048


def test_the_daemon_of_a_partition_has_ended_before_it_is_destroyed(node: Supervised) -> None:
    node.reserve("train", PARTITION, config=by_mps("MigDeviceConfig"))
    node.prepare("train")
    daemons: list[set[str]] = []

    def at(_number: int, symbol: str) -> None:
        if symbol == "nvmlGpuInstanceDestroy":
            daemons.append(node.daemons())

    with nvml_calls(node.simulated.directory, at):
        node.unprepare("train")
    assert daemons == [set()]


def test_a_repair_makes_a_partition_again_and_its_daemon_follows(node: Supervised) -> None:
    node.reserve("train", PARTITION, config=by_mps("MigDeviceConfig"))
    node.prepare("train")
    (before,) = wanted(node)[0]
    node.simulated.reboot()
    node.repair()

    (after,) = wanted(node)[0]
    assert f"={after}" in " ".join(node.edits("train")["env"])
    assert node.reporter.unrepaired == []
    assert before.startswith("MIG-")


def test_a_limit_of_no_device_is_refused_by_name(node: Supervised) -> None:
    config = by_mps(of_nvidia=True, defaultPerDevicePinnedMemoryLimit={"1": "1Gi"})
    node.reserve("train", WHOLE, config=config)
    with pytest.raises(ClaimError, match=r"ResourceClaim default/train: defaultPerDevice.* has 1,"):
        node.prepare("train")
    assert node.records().claims() == frozenset()
    assert node.specs() == set()


@pytest.mark.parametrize(
    ("sharing", "reason"),
    [("away", "carina-sharing does not run on this node"), ("runs none", "no driver")],
)
def test_a_node_without_mps_daemons_refuses_with_the_reason(
    node: Supervised, sharing: Any, reason: str
) -> None:
    node.sharing = sharing
    node.reserve("train", WHOLE, config=by_mps(of_nvidia=True))
    with pytest.raises(ClaimError, match=reason) as caught:
        node.prepare("train")
    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert node.specs() == set()
    assert node.records().claims() == frozenset()


def test_the_compute_mode_of_the_gpu_stays(node: Supervised) -> None:
    """NVIDIA's driver sets EXCLUSIVE_PROCESS, so that a process without MPS fails."""
    modes = {minor: gpu.compute_mode for minor, gpu in node.simulated.state.gpus.items()}
    node.reserve("train", WHOLE, config=by_mps(of_nvidia=True))
    node.prepare("train")
    assert {minor: gpu.compute_mode for minor, gpu in node.simulated.state.gpus.items()} == modes


def test_admin_access_needs_no_daemon(node: Supervised) -> None:
    node.admins.add("train")
    node.reserve("train", WHOLE, config=by_mps())
    node.prepare("train")
    assert node.records().claims() == frozenset()
    assert PIPES not in node.edits("train")["env"]
