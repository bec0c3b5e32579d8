"""The devices that a node's GPUs make."""

import pytest

from kubelet_plugin.devices.whole import WholeGpu, devices
from kubelet_plugin.inventory.gpu import (
    DriverMissing,
    DriverReady,
    DriverUnusable,
    Inventory,
    NvmlFailure,
    UnknownGpu,
)
from kubelet_plugin.inventory.health import Healthy, Lost, Unreadable
from tests.samples.gpus import (
    LOST,
    MIG_OFF,
    MIG_ON,
    UNREADABLE,
    gpu,
    lost,
    unreadable,
)


def test_a_gpu_is_one_device_named_after_its_minor_number() -> None:
    (device,) = devices(DriverReady((gpu(3),)))

    assert device == WholeGpu(gpu(3), Healthy())
    assert device.name == "gpu-3"


def test_gpus_that_do_not_answer_keep_their_devices_in_their_places() -> None:
    inventory = DriverReady((gpu(0), gpu(3)), lost=(lost(1),), unreadable=(unreadable(2),))

    assert [(device.name, device.health) for device in devices(inventory)] == [
        ("gpu-0", Healthy()),
        ("gpu-1", Lost(LOST)),
        ("gpu-2", Unreadable(UNREADABLE)),
        ("gpu-3", Healthy()),
    ]


def test_a_gpu_in_mig_mode_is_no_whole_gpu() -> None:
    inventory = DriverReady((gpu(0, mig=MIG_ON), gpu(1, mig=MIG_OFF)))

    assert [device.name for device in devices(inventory)] == ["gpu-1"]


@pytest.mark.parametrize(
    "inventory",
    [
        DriverReady(()),
        DriverReady((), unknown=(UnknownGpu(0, UNREADABLE),)),
        DriverMissing("not installed"),
        DriverUnusable(NvmlFailure("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")),
    ],
    ids=lambda inventory: type(inventory).__name__,
)
def test_a_node_where_no_gpu_is_known_has_no_devices(inventory: Inventory) -> None:
    assert devices(inventory) == ()
