"""Partitions that claims have, from NVML to the CDI spec, on a simulated node."""

import ctypes
import json
from pathlib import Path
from time import monotonic
from typing import Any

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.claims.resource_failure import GpuResetRequired
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import MigMode
from kubelet_plugin.prepare.held_modes import HeldModes
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.resource import MigModeOn, ResourceError
from tests.fakes.mig_node import MigNode
from tests.integration.mig.conftest import NodeMaker

ONE_G, OTHER_ONE_G = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-5"
THREE_G, FOUR_G = "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-4g40gb-5-0"


def spec(node: MigNode, claim: str) -> Any:
    (file,) = (node.folder / "cdi").glob(f"*{claim}.json")
    return json.loads(file.read_text())


def admin_makes(node: MigNode, minor: int, profile: int, start: int, size: int) -> Any:
    """An administrator makes a GPU instance, without a compute instance."""
    gpu = node.handle(minor)
    if not node.is_mig_on(minor):
        pynvml.nvmlDeviceSetMigMode(gpu, pynvml.NVML_DEVICE_MIG_ENABLE)
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, ctypes.byref(placement))


def test_the_instance_is_made_at_its_placement_and_undone(node: MigNode) -> None:
    (prepared,) = node.prepare("train", ONE_G)

    (instance,) = node.instances(0)
    assert (instance.start, instance.size, len(instance.compute_instances)) == (6, 1, 1)
    assert prepared.device == ONE_G
    assert node.is_mig_on(0)

    node.unprepare("train")
    assert node.instances(0) == ()
    assert node.specs() == set()


def test_a_claim_whose_configuration_another_version_recorded_keeps_its_instance(
    node: MigNode,
) -> None:
    node.prepare("train", ONE_G)
    node.configs["train"] = {"kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing"}}
    node.simulated.fail("nvmlGpuInstanceDestroy", pynvml.NVML_ERROR_IN_USE)

    node.prepare("train")

    assert len(node.instances(0)) == 1


def test_the_metadata_of_a_partition_has_the_uuid_of_its_instance(node: MigNode) -> None:
    node.device_metadata = True
    node.prepare("train", ONE_G)

    (device,) = spec(node, "train")["devices"]
    (mount,) = device["containerEdits"]["mounts"]
    values = [variable.partition("=")[2] for variable in device["containerEdits"]["env"]]
    document, _ = json.JSONDecoder().raw_decode(Path(mount["hostPath"]).read_text())
    (described,) = document["requests"][0]["devices"]
    assert described["name"] == ONE_G
    uuid = described["attributes"]["uuid"]["string"]
    assert uuid.startswith("MIG-")
    assert uuid in values


def test_the_container_gets_the_nodes_of_the_instance_and_its_uuid(node: MigNode) -> None:
    node.prepare("train", ONE_G)

    (device,) = spec(node, "train")["devices"]
    edits = device["containerEdits"]
    (gpu, of_instance, of_compute) = [each["path"] for each in edits["deviceNodes"]]
    assert gpu == "/dev/nvidia0"
    assert of_instance.startswith("/dev/nvidia-caps/nvidia-cap")
    assert of_compute.startswith("/dev/nvidia-caps/nvidia-cap")
    assert of_compute != of_instance
    (variable,) = edits["env"]
    assert variable.startswith("CARINA_CLAIM_train_REQUEST_gpu_DEVICE_gpu_0_mig_1g10gb_19_6=MIG-")


def test_mig_mode_is_switched_off_by_the_repair_after_the_last_partition(node: MigNode) -> None:
    node.prepare("one", ONE_G)
    node.prepare("two", OTHER_ONE_G)
    node.unprepare("one")
    node.repair()
    assert node.is_mig_on(0)

    node.unprepare("two")
    assert node.is_mig_on(0)
    node.repair()
    assert not node.is_mig_on(0)
    assert node.recorded() == {}


def test_a_claim_for_the_whole_gpu_switches_mig_mode_off_at_once(node: MigNode) -> None:
    node.prepare("part", ONE_G)
    node.unprepare("part")

    node.prepare("whole", "gpu-0")

    assert not node.is_mig_on(0)


def test_monitors_see_all_mig_instances(node: MigNode) -> None:
    node.prepare("part", ONE_G)
    node.admins.add("watch")
    node.prepare("watch", "gpu-0-monitor")

    (device,) = spec(node, "watch")["devices"]
    nodes = [each["path"] for each in device["containerEdits"]["deviceNodes"]]
    assert nodes == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2"]


def test_what_carina_makes_does_not_change_what_is_published(node: MigNode) -> None:
    before = node.devices()
    node.prepare("one", ONE_G)

    mode = node.inventory().gpus[0].state.mig_mode
    assert mode is MigMode.ON_FOR_CLAIMS
    assert [device.published(PublishSettings("d")) for device in node.devices().values()] == [
        device.published(PublishSettings("d")) for device in before.values()
    ]


def test_overlapping_partition_is_refused_and_leaves_nothing(node: MigNode) -> None:
    node.prepare("one", THREE_G)

    with pytest.raises(ClaimError, match=r"gpu-0-mig-1g10gb-19-6 cannot be made .*lgi"):
        node.prepare("two", ONE_G)
    assert len(node.instances(0)) == 1
    assert node.specs() == {"one"}

    node.unprepare("one")
    node.prepare("two")
    assert [one.start for one in node.instances(0)] == [6]


def test_an_administrators_instance_is_published_as_it_is_and_never_destroyed(
    node: MigNode,
) -> None:
    instance = admin_makes(node, 0, 19, 6, 1)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)

    published = node.devices()
    assert "uuid" in published[ONE_G].published(PublishSettings("d")).attributes
    assert "gpu-0" not in published
    assert THREE_G not in published
    assert FOUR_G in published

    node.prepare("train", ONE_G)
    assert node.recorded() == {}
    node.unprepare("train")
    node.repair()
    assert len(node.instances(0)) == 1
    assert node.is_mig_on(0)


def test_a_divided_instance_of_an_administrator_is_not_offered(node: MigNode) -> None:
    admin_makes(node, 0, 9, 4, 4)

    names = node.devices().keys()
    assert THREE_G not in names
    assert ONE_G not in names
    assert FOUR_G in names


def test_a_mode_that_an_administrator_switched_on_stays_on(node: MigNode) -> None:
    pynvml.nvmlDeviceSetMigMode(node.handle(0), pynvml.NVML_DEVICE_MIG_ENABLE)
    assert "gpu-0" not in node.devices()

    node.prepare("train", ONE_G)
    node.unprepare("train")
    node.repair()

    assert node.is_mig_on(0)


def test_after_a_reboot_the_instances_of_live_claims_are_made_again(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    node.simulated.reboot()
    assert node.instances(0) == ()

    node.repair()

    assert [one.start for one in node.instances(0)] == [6]


def test_an_instance_that_nothing_records_after_a_reboot_is_an_administrators(
    node: MigNode,
) -> None:
    node.prepare("train", ONE_G)
    node.simulated.reboot()
    node.folder.joinpath("checkpoint.jsonl").unlink()
    for file in (node.folder / "cdi").iterdir():
        file.unlink()
    instance = admin_makes(node, 0, 19, 6, 1)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)

    node.repair()

    assert len(node.instances(0)) == 1


def test_instances_without_a_claim_are_removed(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    node.folder.joinpath("checkpoint.jsonl").write_text(
        json.dumps({"version": 1, "bootID": node.simulated.state.boot_id, "claims": []}) + "\n"
    )

    node.repair()
    assert node.instances(0) == ()
    node.repair()
    assert not node.is_mig_on(0)


def test_with_the_record_of_instances_lost_they_are_left(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    for file in (node.folder / "mig").iterdir():
        file.unlink()

    node.unprepare("train")
    node.repair()

    assert len(node.instances(0)) == 1
    assert "uuid" in node.devices()[ONE_G].published(PublishSettings("d")).attributes


def test_a_damaged_record_of_instances_is_kept_and_names_nothing(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    (file,) = (node.folder / "mig").iterdir()
    file.write_text("{")

    node.unprepare("train")
    assert len(node.instances(0)) == 1

    node.prepare("other", OTHER_ONE_G)
    kept = [each.read_text() for each in (node.folder / "mig").glob("*unreadable*")]
    assert kept == ["{"]


def test_a_folder_among_the_records_does_not_affect_claims(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    (node.folder / "mig/old.json").mkdir()

    node.prepare("other", "gpu-3")
    node.unprepare("train")

    assert node.instances(0) == ()


def test_an_instance_in_use_is_not_destroyed_until_the_process_has_ended(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    node.simulated.run_process(0, 4711)

    with pytest.raises(ClaimError, match="a process on the node uses the GPU"):
        node.unprepare("train")
    node.simulated.end_process(0, 4711)
    node.unprepare("train")

    assert node.instances(0) == ()


def test_claims_of_a_lost_gpu_can_be_unprepared(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    node.simulated.lose_gpu(0)

    node.unprepare("train")

    assert node.specs() == set()


def test_the_instance_of_a_lost_gpu_is_known_until_the_gpu_answers(node: MigNode) -> None:
    """The driver may have erred, and the instance be there: nobody else would remove it."""
    uuid = node.simulated.state.gpus[0].uuid
    node.prepare("train", ONE_G)
    node.simulated.lose_gpu(0)
    node.unprepare("train")
    node.repair()
    assert node.recorded()[uuid] == {ONE_G}

    node.simulated.reset_gpu(0)
    node.repair()

    assert node.recorded().get(uuid, set()) == set()


def test_ampere_has_partitions_only_in_mig_mode_and_then_no_whole_gpu(
    make_node: NodeMaker,
) -> None:
    node = make_node("dgx-a100")
    assert {device.kind for device in node.devices().values()} == {"gpu", "share", "monitor"}

    pynvml.nvmlDeviceSetMigMode(node.handle(0), pynvml.NVML_DEVICE_MIG_ENABLE)
    node.simulated.reset_gpu(0)

    of_first = [device for device in node.devices().values() if device.gpu.minor == 0]
    assert {device.kind for device in of_first} == {"mig", "monitor"}
    name = next(device.name for device in of_first if device.kind == "mig")
    node.prepare("train", name)
    assert len(node.instances(0)) == 1
    node.unprepare("train")
    assert node.instances(0) == ()
    assert node.is_mig_on(0)


def test_a_mode_that_needs_a_reset_is_refused_and_does_not_stay_pending(
    make_node: NodeMaker,
) -> None:
    node = make_node("dgx-a100")
    gpu = node.inventory().gpus[0].gpu
    host = HostPaths(node.simulated.root)
    modes = MigModes(
        NvmlLibrary(host.gpu_addresses),
        host,
        MigIntentFiles(node.folder / "mig", "boot-1"),
        HeldModes(clock=monotonic),
    )

    with pytest.raises(ResourceError, match="changes MIG mode only with a reset") as refused:
        modes.make(MigModeOn(gpu))

    assert isinstance(refused.value.failure, GpuResetRequired)
    assert not node.simulated.state.gpus[0].mig_pending


def test_gpus_without_mig_have_no_partitions(make_node: NodeMaker) -> None:
    kinds = {device.kind for device in make_node("t4").devices().values()}

    assert kinds == {"gpu", "share", "monitor"}


def test_a_profile_that_nvml_lists_and_refuses_is_named_with_the_remedy(node: MigNode) -> None:
    node.simulated.fail("nvmlDeviceCreateGpuInstanceWithPlacement", pynvml.NVML_ERROR_NOT_SUPPORTED)

    with pytest.raises(ClaimError, match="select another profile") as refused:
        node.prepare("train", ONE_G)

    assert not refused.value.failure.retriable
    assert node.recorded().get(node.simulated.state.gpus[0].uuid, set()) == set()
    node.repair()
    assert not node.is_mig_on(0)
