"""The time slices that claims demand of GPUs, on a simulated node."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.config.device import GpuConfig, GpuSharing, ShareConfig, TimeSlicingConfig
from carina_dra.config.time_slice import TimeSliceInterval
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    ClaimError,
    DeviceHeld,
    NodeResourceFailed,
    TimeSlicingMissing,
)
from kubelet_plugin.prepare import compute_policy
from kubelet_plugin.prepare.compute_policy import ComputePolicy
from kubelet_plugin.prepare.resource import ResourceError, TimeSlice
from kubelet_plugin.prepare.wanted import wanted
from tests.fakes.mig_node import MigNode
from tests.samples.driver import installed_at
from tests.samples.gpus import share, whole

SHORT, MEDIUM, LONG = 1, 2, 3


def gpu_config(interval: str) -> dict[str, Any]:
    slicing = {"interval": interval}
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": slicing}
    return {"kind": "GpuConfig", "sharing": sharing}


def share_config(interval: str) -> dict[str, Any]:
    return {"kind": "ShareConfig", "timeSlicing": {"interval": interval}}


def slices(node: MigNode) -> dict[int, int]:
    """The numbers of the intervals that are set, by minor number; without the default, 0."""
    by_uuid = node.simulated.time_slices()
    minors = {gpu.uuid: minor for minor, gpu in node.simulated.state.gpus.items()}
    return {minors[uuid]: number for uuid, number in by_uuid.items() if number}


def test_the_interval_of_a_whole_gpu_is_set_and_reset(node: MigNode) -> None:
    node.configs["train"] = gpu_config("Short")
    node.prepare("train", "gpu-2")
    assert slices(node) == {2: SHORT}

    node.unprepare("train")
    assert slices(node) == {}


@pytest.mark.parametrize("config", [None, gpu_config("Default")], ids=["none", "Default"])
def test_without_another_interval_nothing_is_set(
    node: MigNode, config: dict[str, Any] | None
) -> None:
    if config is not None:
        node.configs["train"] = config
    node.prepare("train", "gpu-2")
    assert node.simulated.time_slices() == {}


def test_an_interval_that_another_version_did_not_record_is_set_and_reset(node: MigNode) -> None:
    node.prepare("train", "gpu-0-share")
    node.of_class["train"] = share_config("Short")
    node.prepare("train")
    assert slices(node) == {0: SHORT}

    del node.of_class["train"]
    node.prepare("train")
    assert slices(node) == {}


def test_a_reload_of_the_driver_forgets_it_and_the_repair_sets_it_again(node: MigNode) -> None:
    node.configs["train"] = gpu_config("Medium")
    node.prepare("train", "gpu-2")
    node.simulated.driver(available=False)
    node.simulated.driver(available=True)
    assert slices(node) == {}

    node.repair()
    assert slices(node) == {2: MEDIUM}


def test_a_repair_sets_the_interval_of_many_shares_of_a_gpu_once(node: MigNode) -> None:
    program = node.simulated.root / "usr/bin/nvidia-smi"
    for claim in ("one", "two", "three"):
        node.of_class[claim] = share_config("Short")
        node.prepare(claim, "gpu-0-share")
    program.write_text(program.read_text().replace("\n", "\necho >>$0.runs\n", 1))

    node.repair()

    assert (program.parent / "nvidia-smi.runs").read_text() == "\n"


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_shares_whose_classes_differ_have_the_shortest_interval_and_none_is_refused(
    node: MigNode, order: tuple[str, str]
) -> None:
    node.of_class |= {"one": share_config("Short"), "two": share_config("Medium")}
    for claim in order:
        node.prepare(claim, "gpu-0-share")
    assert slices(node) == {0: SHORT}

    node.unprepare("one")
    node.repair()
    assert slices(node) == {0: MEDIUM}

    node.unprepare("two")
    assert slices(node) == {}


def test_a_claim_does_not_choose_the_time_slices_of_others(node: MigNode) -> None:
    node.configs["one"] = share_config("Long")

    with pytest.raises(ClaimError, match="setting share_time_slice_by_claim") as refused:
        node.prepare("one", "gpu-0-share")

    assert isinstance(refused.value.failure, AllocationRefused)
    node.prepare("two", "gpu-0-share")
    assert slices(node) == {}


def test_default_demands_nothing_of_a_share(node: MigNode) -> None:
    node.configs["one"] = share_config("Default")
    node.of_class["two"] = share_config("Short")
    for claim in ("one", "two"):
        node.prepare(claim, "gpu-0-share")
    assert slices(node) == {0: SHORT}


def test_what_an_earlier_version_prepared_stays_as_it_was(node: MigNode) -> None:
    node.of_class["one"] = share_config("Short")
    node.prepare("one", "gpu-0-share")
    node.configs["one"] = node.of_class.pop("one")  # which this version refuses

    node.prepare("one")
    assert slices(node) == {0: SHORT}

    node.unprepare("one")
    assert slices(node) == {}


def test_the_setting_of_the_node_is_for_shares_of_which_no_class_demands_an_interval(
    node: MigNode,
) -> None:
    node.share_interval = "Medium"
    node.of_class["two"] = share_config("Long")
    node.prepare("one", "gpu-0-share")
    node.prepare("whole", "gpu-2")
    assert slices(node) == {0: MEDIUM}

    node.prepare("two", "gpu-0-share")
    assert slices(node) == {0: LONG}

    node.unprepare("two")
    node.repair()
    assert slices(node) == {0: MEDIUM}


def test_a_setting_of_the_node_that_changes_changes_what_is_shared(node: MigNode) -> None:
    node.prepare("one", "gpu-0-share")
    settings: list[tuple[TimeSliceInterval, dict[int, int]]] = [
        ("Short", {0: SHORT}),
        ("Long", {0: LONG}),
        ("Default", {}),
    ]
    for setting, expected in settings:
        node.share_interval = setting
        node.repair()
        assert slices(node) == expected


@pytest.mark.parametrize("held", ["gpu-0-share", "gpu-0"])
def test_a_gpu_that_is_held_is_not_said_to_differ_only_in_its_interval(
    node: MigNode, held: str
) -> None:
    configs = node.of_class if held.endswith("-share") else node.configs
    configs["one"] = share_config("Short") if held.endswith("-share") else gpu_config("Short")
    node.configs["two"] = gpu_config("Medium")
    node.prepare("one", held)

    with pytest.raises(ClaimError) as refused:
        node.prepare("two", "gpu-0")

    assert isinstance(refused.value.failure, DeviceHeld)


def test_a_share_that_demands_no_interval_takes_that_of_the_others(node: MigNode) -> None:
    node.of_class["one"] = share_config("Short")
    node.prepare("one", "gpu-0-share")
    node.prepare("two", "gpu-0-share")
    assert slices(node) == {0: SHORT}

    node.unprepare("one")
    assert slices(node) == {}
    node.unprepare("two")


def test_the_interval_stays_while_a_share_demands_it(node: MigNode) -> None:
    node.of_class |= {"one": share_config("Short"), "two": share_config("Short")}
    node.prepare("one", "gpu-0-share")
    node.prepare("two", "gpu-0-share")

    node.unprepare("one")
    assert slices(node) == {0: SHORT}
    node.unprepare("two")
    assert slices(node) == {}


def test_two_shares_of_a_claim_on_one_gpu_have_the_shortest_interval() -> None:
    intervals: tuple[TimeSliceInterval, ...] = ("Long", "Medium")
    devices = tuple(
        AllocatedDevice(
            interval,
            "n",
            "gpu-0-share",
            ShareConfig(timeSlicing=TimeSlicingConfig(interval=interval)),
            share_id=interval,
        )
        for interval in intervals
    )
    claim = NodeClaim("uid", "default", "train", devices)
    shared = share(0)

    resources = wanted([claim], [claim], {"gpu-0-share": shared}).values()

    assert [found for found in resources if isinstance(found, TimeSlice)] == [
        TimeSlice(shared.gpu, "Medium")
    ]


def test_the_setting_of_the_node_refuses_no_share_of_a_gpu_with_one_length() -> None:
    device = AllocatedDevice("gpu", "n", "gpu-0-share", ShareConfig(), share_id="a")
    claim = NodeClaim("uid", "default", "train", (device,))
    shared = share(0, cuda_compute_capability=(6, 1))

    resources = wanted([claim], [claim], {"gpu-0-share": shared}, share_interval="Long").values()

    assert not any(isinstance(found, TimeSlice) for found in resources)


def test_what_nvidia_smi_says_is_passed_on_and_nothing_is_left(node: MigNode) -> None:
    node.simulated.fail_nvidia_smi("Failed to set timeslice: Not Supported")
    node.configs["train"] = gpu_config("Short")

    with pytest.raises(
        ClaimError, match=r"Failed to set timeslice: Not Supported.*--set-timeslice"
    ):
        node.prepare("train", "gpu-2")

    assert node.recorded() == {}
    assert node.specs() == set()


def test_a_failure_that_may_pass_is_retried(node: MigNode) -> None:
    node.simulated.fail_nvidia_smi("Unable to communicate")
    node.configs["train"] = gpu_config("Short")

    with pytest.raises(ClaimError) as failed:
        node.prepare("train", "gpu-2")

    assert isinstance(failed.value.failure, NodeResourceFailed)
    assert failed.value.failure.retriable


def test_a_claim_whose_interval_cannot_be_set_does_not_hold_its_gpu(node: MigNode) -> None:
    node.simulated.fail_nvidia_smi("Insufficient Permissions")
    node.configs["train"] = gpu_config("Short")
    with pytest.raises(ClaimError, match="Insufficient Permissions"):
        node.prepare("train", "gpu-2")

    node.prepare("next", "gpu-2")

    assert node.specs() == {"next"}


def test_without_nvidia_smi_a_claim_with_an_interval_does_not_hold_its_gpu(node: MigNode) -> None:
    (node.simulated.root / "usr/bin/nvidia-smi").unlink()
    node.configs["train"] = gpu_config("Short")
    with pytest.raises(ClaimError, match="nvidia-smi not found"):
        node.prepare("train", "gpu-2")

    node.prepare("next", "gpu-2")

    assert node.specs() == {"next"}


def test_an_interval_that_was_set_is_reset_although_it_could_not_be_set_again(
    node: MigNode,
) -> None:
    node.configs["train"] = gpu_config("Short")
    node.prepare("train", "gpu-2")
    node.simulated.fail_nvidia_smi("Insufficient Permissions")
    node.repair()
    node.simulated.fail_nvidia_smi(None)

    node.unprepare("train")

    assert slices(node) == {}


@pytest.fixture
def hanging_nvidia_smi(node: MigNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[MigNode]:
    """A node whose nvidia-smi cannot be killed, as while the kernel driver waits for a GPU."""
    program = node.simulated.root / "usr/bin/nvidia-smi"
    program.write_text("#!/bin/sh\necho >>$0.started\nexec sleep 60\n")
    monkeypatch.setattr(compute_policy, "_PATIENCE", 0.2)
    monkeypatch.setattr(compute_policy, "_DYING", 0.2)
    started: list[subprocess.Popen[bytes]] = []
    kill = subprocess.Popen.kill

    def survive(process: subprocess.Popen[bytes]) -> None:
        started.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", survive)
    yield node
    for process in started:
        kill(process)
        process.wait()


def test_nvidia_smi_that_cannot_be_killed_is_not_waited_for_and_not_started_again(
    hanging_nvidia_smi: MigNode,
) -> None:
    root = hanging_nvidia_smi.simulated.root
    policy = ComputePolicy(installed_at(root))
    uuid = hanging_nvidia_smi.simulated.state.gpus[2].uuid
    with pytest.raises(ResourceError, match=r"timed out.*--set-timeslice"):
        policy.set_time_slice(uuid, "Short")

    with pytest.raises(ResourceError, match=r"process \d+ does not end; reset the GPU"):
        policy.set_time_slice(uuid, "Short")

    assert (root / "usr/bin/nvidia-smi.started").read_text() == "\n"


def test_claims_of_a_lost_gpu_can_be_unprepared(node: MigNode) -> None:
    node.configs["train"] = gpu_config("Short")
    node.prepare("train", "gpu-2")
    node.simulated.lose_gpu(2)
    node.simulated.fail_nvidia_smi("GPU is lost")

    node.unprepare("train")

    assert node.specs() == set()


def test_a_claim_ends_while_nvidia_smi_fails_and_the_length_is_reset_later(node: MigNode) -> None:
    node.configs["train"] = gpu_config("Short")
    node.prepare("train", "gpu-2")
    node.simulated.fail_nvidia_smi("out of memory")

    node.unprepare("train")
    node.repair()
    assert node.specs() == set()
    assert slices(node) != {}

    node.simulated.fail_nvidia_smi(None)
    node.repair()

    assert slices(node) == {}


def test_admin_access_changes_no_time_slices(node: MigNode) -> None:
    node.admins.add("watch")
    node.configs["watch"] = gpu_config("Short")

    with pytest.raises(ClaimError, match="admin access changes nothing on a GPU") as refused:
        node.prepare("watch", "gpu-2-monitor")

    assert isinstance(refused.value.failure, AllocationRefused)


def test_the_next_whole_claim_does_not_inherit_the_interval(node: MigNode) -> None:
    node.configs["train"] = gpu_config("Short")
    node.prepare("train", "gpu-2")
    node.folder.joinpath("checkpoint.jsonl").unlink()
    for file in (node.folder / "cdi").iterdir():
        file.unlink()

    node.prepare("next", "gpu-2")

    assert slices(node) == {}


def test_a_gpu_with_one_length_is_refused_at_the_earliest() -> None:
    slicing = TimeSlicingConfig(interval="Long")
    config = GpuConfig(sharing=GpuSharing(strategy="TimeSlicing", timeSlicingConfig=slicing))
    claim = NodeClaim("uid", "default", "train", (AllocatedDevice("gpu", "n", "gpu-0", config),))
    pascal = whole(0, cuda_compute_capability=(6, 1))

    with pytest.raises(ClaimError, match=r"compute capability below 7\.0") as refused:
        wanted([claim], [claim], {"gpu-0": pascal})

    assert isinstance(refused.value.failure, TimeSlicingMissing)
