"""Claims whose shares demand MPS have a daemon with their limits before they have a CDI spec.

Each call is that of a new plugin process. Claims have a GiB and 10 % of the cores for each share.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from carina_dra.sharing.message import MpsDevice
from kubelet_plugin.claims.failure import ClaimError, MpsOfSeveralGpus, NodeResourceFailed
from kubelet_plugin.claims.resource_failure import (
    MpsDaemonNotReady,
    ResourceFailure,
    SharingMissing,
)
from kubelet_plugin.prepare import mps_daemons
from kubelet_plugin.sharing.supervision import Supervision
from simulation.nvml import uninstall
from tests.integration.mps.supervised import (
    DEMANDS_MPS,
    DRIVER,
    GIB,
    OTHER_SHARE,
    SHARE,
    Behaviour,
    Supervised,
)

PLAIN = {"kind": "ShareConfig"}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    for patience in ("_PATIENCE", "_AWAY", "_ENDING"):
        monkeypatch.setattr(mps_daemons, patience, 0.05)
    made = Supervised.create(tmp_path, driver_version=DRIVER)
    made.reserve("train")
    yield made
    uninstall()


def refusal(node: Supervised, claim: str = "train") -> ResourceFailure:
    """Why the claim is not prepared."""
    with pytest.raises(ClaimError) as caught:
        node.prepare(claim)
    failure = caught.value.failure
    assert isinstance(failure, NodeResourceFailed)
    assert failure.retriable
    return failure.cause


def test_a_claim_gets_a_daemon_with_the_limits_of_its_share(node: Supervised) -> None:
    node.prepare("train")
    record = node.daemon_record("train")
    assert record is not None
    assert record.ready
    gpu = node.simulated.state.gpus[0].uuid
    assert record.wanted.devices == (MpsDevice(uuid=gpu, memory_mib=GIB),)
    assert record.wanted.thread_percentage == 10
    assert record.wanted.claim.uid == "train"


def test_its_containers_get_the_folders_of_the_daemon(node: Supervised) -> None:
    node.prepare("train")
    folder = node.folder / "mps/train"
    mounts = {
        mount["containerPath"]: (mount["hostPath"], "rw" in mount["options"])
        for mount in node.edits("train")["mounts"]
    }
    assert mounts == {
        "/run/carina-mps/pipe": (str(folder / "ipc"), True),
        "/dev/shm": (str(folder / "shm"), True),
    }
    variables = node.variables("train")
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == "/run/carina-mps/pipe"
    assert variables["MEMORY_ENFORCEMENT"] == "mps"
    assert variables["CORE_ENFORCEMENT"] == "mps"


def test_several_shares_of_a_gpu_have_a_daemon_with_their_sums(node: Supervised) -> None:
    node.reserve("train", SHARE, SHARE, SHARE)
    node.prepare("train")
    record = node.daemon_record("train")
    assert record is not None
    assert [device.memory_mib for device in record.wanted.devices] == [3 * GIB]
    assert record.wanted.thread_percentage == 30


def test_a_claim_that_does_not_demand_mps_has_no_daemon(node: Supervised) -> None:
    node.reserve("train", config=PLAIN)
    node.prepare("train")
    assert node.records().claims() == frozenset()
    assert "mounts" not in node.edits("train")
    assert node.variables("train")["MEMORY_ENFORCEMENT"] == "none"


def test_shares_of_several_gpus_are_refused_by_name(node: Supervised) -> None:
    node.reserve("train", SHARE, OTHER_SHARE)
    with pytest.raises(ClaimError, match="default/train has shares of gpu-0 and gpu-1") as caught:
        node.prepare("train")
    assert isinstance(caught.value.failure, MpsOfSeveralGpus)
    assert node.records().claims() == frozenset()
    assert node.specs() == set()


def test_shares_of_several_gpus_that_do_not_demand_mps_are_not_refused(node: Supervised) -> None:
    node.reserve("train", SHARE, OTHER_SHARE, config=PLAIN)
    node.prepare("train")
    assert node.specs() == {"train"}


def test_the_last_unprepare_ends_the_daemon(node: Supervised) -> None:
    node.prepare("train")
    assert node.daemons() == {"train"}
    node.unprepare("train")
    assert node.daemons() == set()
    assert node.records().claims() == frozenset()


@pytest.mark.parametrize(
    ("sharing", "failure", "text"),
    [
        ("away", SharingMissing, "carina-sharing does not run on this node"),
        ("fails", MpsDaemonNotReady, "it has the wrong limit"),
        ("slow", MpsDaemonNotReady, "it has not started within"),
        ("silent", MpsDaemonNotReady, "carina-sharing does not answer"),
        ("runs none", MpsDaemonNotReady, "no driver"),
    ],
)
def test_no_container_starts_without_a_daemon_that_is_ready(
    node: Supervised, sharing: Behaviour, failure: type[ResourceFailure], text: str
) -> None:
    node.sharing = sharing
    cause = refusal(node)
    assert isinstance(cause, failure)
    assert text in str(cause)
    assert node.specs() == set()
    assert node.records().claims() == frozenset()

    node.sharing = "runs"
    node.prepare("train")
    assert node.specs() == {"train"}


def test_an_unprepare_does_not_wait_for_a_daemon_that_does_not_end(node: Supervised) -> None:
    node.prepare("train")
    node.sharing = "ends slowly"
    node.unprepare("train")
    assert node.claims_recorded() == {}
    assert node.daemons() == {"train"}

    node.repair()
    (leftover, _) = node.reporter.stuck[0]
    assert leftover == "MPS daemon train"
    node.sharing = "runs"
    node.repair()
    assert node.daemons() == set()


@pytest.mark.parametrize("sharing", ["away", "slow", "silent"])
def test_a_repair_does_not_fail_because_carina_sharing_is_away_for_a_moment(
    node: Supervised, sharing: Behaviour
) -> None:
    node.prepare("train")
    node.sharing = sharing
    node.repair()
    assert node.reporter.unrepaired == []
    assert node.specs() == {"train"}


@pytest.mark.parametrize("sharing", ["away", "slow", "silent"])
def test_another_call_of_the_kubelet_waits_for_the_daemon_again(
    node: Supervised, sharing: Behaviour
) -> None:
    """A second pod of the claim may be about to start."""
    node.prepare("train")
    node.sharing = sharing
    refusal(node)
    assert node.claims_recorded().keys() == {"train"}
    node.sharing = "runs"
    node.prepare("train")


def test_a_repair_fails_if_the_daemon_does(node: Supervised) -> None:
    node.prepare("train")
    node.sharing = "fails"
    node.repair()
    assert "it has the wrong limit" in str(node.reporter.unrepaired[0][1])


def test_after_a_reboot_the_daemon_has_to_be_ready_again(node: Supervised) -> None:
    node.prepare("train")
    node.simulated.reboot()
    node.sharing = "slow"
    cause = refusal(node)
    assert "it has not started within" in str(cause)


def test_a_claim_with_another_demand_has_no_daemon_any_more(node: Supervised) -> None:
    node.prepare("train")
    node.configs["train"] = PLAIN
    node.prepare("train")
    assert node.daemons() == set()
    assert node.variables("train")["MEMORY_ENFORCEMENT"] == "none"


def test_claims_that_an_earlier_version_prepared_stay_as_they_are(node: Supervised) -> None:
    node.reserve("train", config=PLAIN)
    node.prepare("train")
    before = node.spec("train")
    node.repair()
    assert node.spec("train") == before
    assert node.reporter.repaired == []
    assert not (node.folder / "mps-daemons").exists()


def test_a_damaged_record_is_written_again(node: Supervised) -> None:
    node.prepare("train")
    (node.folder / "mps-daemons/train.json").write_text("{")
    node.repair()
    assert node.daemon_record("train") is not None
    assert node.reporter.unrepaired == []


def test_a_record_that_no_claim_has_is_removed(node: Supervised) -> None:
    node.prepare("train")
    (node.folder / "checkpoint.jsonl").unlink()
    node.allocations.clear()
    for spec in (node.folder / "cdi").iterdir():
        spec.unlink()
    node.repair()
    assert node.records().claims() == frozenset()
    assert node.daemons() == set()


def test_a_leftover_is_told_to_end_and_not_waited_for(
    node: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To tell carina-sharing needs the node's lock, with which leftovers are removed."""
    node.prepare("train")
    (node.folder / "checkpoint.jsonl").unlink()
    node.allocations.clear()
    for spec in (node.folder / "cdi").iterdir():
        spec.unlink()
    node.sharing = "ends slowly"
    monkeypatch.setattr(Supervision, "wait", None)
    node.repair()
    assert node.records().claims() == frozenset()
    assert node.reporter.stuck == []
    node.repair()
    assert [leftover for leftover, _ in node.reporter.stuck] == ["MPS daemon train"]


def test_a_demand_of_cores_gives_the_daemon_too(node: Supervised) -> None:
    node.reserve("train", config={"kind": "ShareConfig", "enforcement": {"cores": "mps"}})
    node.prepare("train")
    assert node.daemons() == {"train"}


def test_admin_access_has_no_daemon(node: Supervised) -> None:
    node.reserve("train", "gpu-0-monitor", config={"kind": "GpuConfig"})
    node.admins.add("train")
    node.prepare("train")
    assert node.daemons() == set()


def test_each_claim_has_a_daemon_of_its_own(node: Supervised) -> None:
    node.reserve("serve")
    node.prepare("train")
    node.prepare("serve")
    assert node.daemons() == {"train", "serve"}
    node.unprepare("train")
    assert node.daemons() == {"serve"}
    assert node.configs["serve"] == DEMANDS_MPS
