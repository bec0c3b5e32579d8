"""What counts while a read of the GPUs does not return."""

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.hang import during_hang
from kubelet_plugin.inventory.health import (
    GpuUnreadable,
    NvmlHang,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
)
from tests.samples.gpus import LOST, NOTICED, observed

HANG = NvmlHang(30.0)


def test_every_gpu_is_unreadable_and_one_with_a_problem_keeps_that() -> None:
    problem = GpuUnreadable(HANG, NOTICED)

    seen = during_hang(DriverReady((observed(0), observed(1, LOST))), HANG, NOTICED)

    assert seen == DriverReady((observed(0, problem), observed(1, LOST)))
    assert str(problem) == (
        "does not respond reliably (a call to the NVIDIA driver has not returned for 30 s)"
    )


@pytest.mark.parametrize(
    "inventory",
    [
        DriverMissing("not installed"),
        DriverUnusable(NvmlFailure("nvmlInit", "NVML_ERROR_UNKNOWN")),
        DriverReplaced("/usr/lib/libnvidia-ml.so.1"),
    ],
    ids=lambda inventory: type(inventory).__name__,
)
def test_without_a_driver_there_is_nothing_to_be_unreadable(inventory: Inventory) -> None:
    assert during_hang(inventory, HANG, NOTICED) == inventory
