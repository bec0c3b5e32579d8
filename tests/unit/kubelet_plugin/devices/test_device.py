"""The devices that a node's GPUs make."""

import pytest

from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import GpuState, MigMode
from kubelet_plugin.inventory.health import NvmlFailure
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)
from tests.samples.gpus import LOST, MIG, UNREADABLE, gpu, observed, whole


def test_a_gpu_is_one_device_named_after_its_minor_number() -> None:
    (device,) = devices(DriverReady((observed(3),)))

    assert device == WholeGpu(gpu(3), GpuState())
    assert device.name == "gpu-3"


def test_gpus_that_do_not_answer_keep_their_devices_in_their_places() -> None:
    seen = (observed(0), observed(1, LOST), observed(2, UNREADABLE), observed(3))

    assert devices(DriverReady(seen)) == (
        whole(0),
        whole(1, LOST),
        whole(2, UNREADABLE),
        whole(3),
    )


def test_a_gpu_in_mig_mode_is_no_whole_gpu() -> None:
    seen = (observed(0, mig=MIG, mig_mode=MigMode.ON), observed(1, mig=MIG))

    assert [device.name for device in devices(DriverReady(seen))] == ["gpu-1"]


@pytest.mark.parametrize(
    "inventory",
    [
        None,
        DriverReady(()),
        DriverReady((), unknown=(UnknownGpu(0, UNREADABLE.failure),)),
        DriverMissing("not installed"),
        DriverUnusable(NvmlFailure("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")),
    ],
    ids=lambda inventory: type(inventory).__name__,
)
def test_a_node_where_no_gpu_is_known_has_no_devices(inventory: Inventory | None) -> None:
    assert devices(inventory) == ()
