"""The life cycle of MIG instances, as NVML has it. On the simulation: no real GPU is changed."""

import ctypes
from typing import Any

import pynvml
import pytest

from kubelet_plugin.inventory.gpu import MigMode
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import MigSupported
from simulation.nvml import SimulatedNode
from tests.contract.nvml.conftest import NodeMaker, reader_below

ONE_G, THREE_G, FOUR_G, SEVEN_G = 19, 9, 5, 0
WHOLE_1, WHOLE_3 = (
    pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
    pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
)


@pytest.fixture
def node(make_node: NodeMaker) -> SimulatedNode:
    return make_node("dgx-h100")


@pytest.fixture
def gpu(node: SimulatedNode) -> Any:
    """A GPU in MIG mode."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetMigMode(handle, pynvml.NVML_DEVICE_MIG_ENABLE)
    return handle


def placed(start: int, size: int) -> Any:
    return ctypes.byref(pynvml.c_nvmlGpuInstancePlacement_t(start, size))


def instances(gpu: Any, profile_id: int) -> list[Any]:
    array = (pynvml.c_nvmlGpuInstance_t * 7)()
    count = ctypes.c_uint()
    pynvml.nvmlDeviceGetGpuInstances(gpu, profile_id, array, ctypes.byref(count))
    return list(array[: count.value])


# --- mode ---


def test_hopper_changes_its_mode_at_once(node: SimulatedNode) -> None:
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceSetMigMode(gpu, 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [1, 1]


def test_ampere_changes_its_mode_at_the_next_reset(make_node: NodeMaker) -> None:
    node = make_node("dgx-a100", name="node-2")
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceSetMigMode(gpu, 1) == pynvml.NVML_ERROR_RESET_REQUIRED
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    node.reset_gpu(0)
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [1, 1]


def test_the_mode_of_a_gpu_in_use_does_not_change(node: SimulatedNode) -> None:
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    node.run_process(0, 4711)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceSetMigMode(gpu, 1)
    node.end_process(0, 4711)
    pynvml.nvmlDeviceSetMigMode(gpu, 1)
    pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceSetMigMode(gpu, 0)


def test_a_gpu_without_mig_says_so(make_node: NodeMaker) -> None:
    make_node("l40s", name="node-2")
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(gpu)
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0


def test_instances_need_the_mode(node: SimulatedNode) -> None:
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)


def test_an_inventory_has_the_mode_and_the_same_layout_in_both(
    node: SimulatedNode, gpu: Any
) -> None:
    inventory = reader_below(node.root).read()
    assert isinstance(inventory, DriverReady)
    on, off = inventory.gpus[:2]
    assert (on.state.mig_mode, off.state.mig_mode) == (MigMode.ON, MigMode.OFF)
    assert on.gpu.mig == off.gpu.mig
    assert isinstance(on.gpu.mig, MigSupported)
    assert on.gpu.mig.toggles_without_reset


# --- GPU instances ---


def test_an_instance_is_where_it_was_asked_to_be(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, THREE_G, placed(4, 4))
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.profileId, info.placement.start, info.placement.size) == (THREE_G, 4, 4)
    again = pynvml.nvmlDeviceGetGpuInstanceById(gpu, info.id)
    assert pynvml.nvmlGpuInstanceGetInfo(again).placement.start == 4
    assert pynvml.nvmlDeviceGetUUID(info.device) == pynvml.nvmlDeviceGetUUID(gpu)


def test_an_instance_cannot_be_where_the_profile_does_not_go(gpu: Any) -> None:
    for start, size in ((1, 4), (0, 2)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, THREE_G, placed(start, size))


def test_an_instance_cannot_overlap_another(gpu: Any) -> None:
    pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, ONE_G, placed(2, 1))
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, FOUR_G, placed(0, 4))


def test_capacity_goes_down_with_every_instance_and_up_when_it_goes(gpu: Any) -> None:
    capacity = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity
    assert [capacity(gpu, profile) for profile in (ONE_G, THREE_G, SEVEN_G)] == [7, 2, 1]
    instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, THREE_G, placed(0, 4))
    assert [capacity(gpu, profile) for profile in (ONE_G, THREE_G, SEVEN_G)] == [3, 1, 0]
    pynvml.nvmlGpuInstanceDestroy(instance)
    assert [capacity(gpu, profile) for profile in (ONE_G, THREE_G, SEVEN_G)] == [7, 2, 1]


def test_seven_instances_fill_a_gpu(gpu: Any) -> None:
    for _ in range(7):
        pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    infos = [pynvml.nvmlGpuInstanceGetInfo(instance) for instance in instances(gpu, ONE_G)]
    assert sorted(info.placement.start for info in infos) == list(range(7))
    assert instances(gpu, THREE_G) == []


def test_a_destroyed_instance_is_not_found(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    identifier = pynvml.nvmlGpuInstanceGetInfo(instance).id
    pynvml.nvmlGpuInstanceDestroy(instance)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlGpuInstanceGetInfo(instance)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetGpuInstanceById(gpu, identifier)


def test_an_instance_with_compute_instances_cannot_be_destroyed(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
    assert instances(gpu, ONE_G) == []


# --- compute instances ---


def test_a_gpu_instance_is_shared_out_by_its_compute_slices(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, THREE_G)
    capacity = pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity
    assert [capacity(instance, profile) for profile in (WHOLE_1, WHOLE_3)] == [3, 1]
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
    assert [capacity(instance, profile) for profile in (WHOLE_1, WHOLE_3)] == [2, 0]
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_3)
    info = pynvml.nvmlComputeInstanceGetInfo(compute)
    assert (info.id, info.profileId, info.placement.start) == (0, WHOLE_1, 0)
    found = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    assert pynvml.nvmlComputeInstanceGetInfo(found).id == 0


def test_a_compute_profile_is_part_of_its_gpu_instance(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, THREE_G)
    profile_info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    whole = profile_info(instance, WHOLE_3, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
    assert (whole.name, whole.multiprocessorCount, whole.sharedDecoderCount) == (
        "MIG 3g.40gb",
        60,
        3,
    )
    part = profile_info(instance, WHOLE_1, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
    assert (part.name, part.instanceCount) == ("MIG 1c.3g.40gb", 3)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        profile_info(instance, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE, 0)


# --- MIG devices ---


def test_a_mig_device_is_reached_by_index_and_by_uuid(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    uuid = pynvml.nvmlDeviceGetUUID(device)
    assert uuid.startswith("MIG-")
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(gpu)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(gpu).value == 0
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)


def test_a_mig_device_has_what_its_instances_have(gpu: Any) -> None:
    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, THREE_G)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    attributes = pynvml.nvmlDeviceGetAttributes(device)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 1)
    assert attributes.memorySizeMB == 40448
    assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 40448 * 2**20
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert pynvml.nvmlDeviceGetGpuInstanceId(device) == info.id
    assert pynvml.nvmlDeviceGetComputeInstanceId(device) == 0


def test_the_same_instances_have_the_same_uuid_again(gpu: Any) -> None:
    uuids = []
    for _ in range(2):
        instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, ONE_G, placed(3, 1))
        compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
        device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        uuids.append(pynvml.nvmlDeviceGetUUID(device))
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)
    assert uuids[0] == uuids[1]


# --- what the kernel shows of it ---


def test_an_instance_has_its_capability_file(node: SimulatedNode, gpu: Any) -> None:
    capabilities = node.root / "proc/driver/nvidia/capabilities/gpu0/mig"
    instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, ONE_G, placed(0, 1))
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, WHOLE_1)
    assert (capabilities / "gi7/access").read_text().startswith("DeviceFileMinor: 66\n")
    assert (capabilities / "gi7/ci0/access").read_text().startswith("DeviceFileMinor: 67\n")
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
    assert not capabilities.exists()


def test_a_reboot_ends_all_instances(node: SimulatedNode, gpu: Any) -> None:
    pynvml.nvmlDeviceCreateGpuInstance(gpu, ONE_G)
    node.reboot()
    pynvml.nvmlDeviceSetMigMode(gpu, 1)
    assert instances(gpu, ONE_G) == []
