"""What operators are told when the node's GPUs change."""

from dataclasses import replace

import pytest

from kubelet_plugin.inventory.change import (
    DriverArrived,
    DriverGone,
    DriverRefuses,
    DriverWasReplaced,
    GpuAppeared,
    GpuIsLost,
    GpuIsUnknown,
    GpuIsUnreadable,
    GpuRecovered,
    GpuVanished,
    InventoryChange,
    MigModeChanged,
    changes,
)
from kubelet_plugin.inventory.gpu import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    LostGpu,
    NvmlFailure,
    UnknownGpu,
)
from tests.samples.gpus import (
    LOST,
    MIG_OFF,
    MIG_ON,
    UNREADABLE,
    gpu,
    lost,
    unreadable,
)

TWO = DriverReady((gpu(0), gpu(1)))
MISSING = DriverMissing("not installed")
FAILURE = NvmlFailure("nvmlInit", "NVML_ERROR_NO_PERMISSION")
REFUSING = DriverUnusable(FAILURE)
OTHER_CARD = gpu(1, uuid="GPU-11111111-0000-0000-0000-000000000001")
UNKNOWN = UnknownGpu(2, UNREADABLE)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(None, TWO, [], id="the first look"),
        pytest.param(None, MISSING, [DriverGone("not installed")], id="no driver at first"),
        pytest.param(None, REFUSING, [DriverRefuses(FAILURE)], id="refused at first"),
        pytest.param(
            None, replace(TWO, unknown=(UNKNOWN,)), [GpuIsUnknown(UNKNOWN)], id="unknown at first"
        ),
        pytest.param(TWO, TWO, [], id="nothing"),
        pytest.param(MISSING, TWO, [DriverArrived(2)], id="the driver comes late"),
        pytest.param(
            TWO, DriverReplaced("new.so"), [DriverWasReplaced("new.so")], id="another driver"
        ),
        pytest.param(DriverReplaced("new.so"), TWO, [DriverArrived(2)], id="the old one again"),
        pytest.param(TWO, MISSING, [DriverGone("not installed")], id="the driver goes"),
        pytest.param(DriverReady((gpu(0),)), TWO, [GpuAppeared(gpu(1))], id="plugged in"),
        pytest.param(TWO, DriverReady((gpu(0),)), [GpuVanished(gpu(1))], id="unplugged"),
        pytest.param(
            TWO,
            DriverReady((gpu(0), OTHER_CARD)),
            [GpuVanished(gpu(1)), GpuAppeared(OTHER_CARD)],
            id="exchanged",
        ),
        pytest.param(
            TWO, DriverReady((gpu(0),), lost=(lost(1),)), [GpuIsLost(gpu(1), LOST)], id="lost"
        ),
        pytest.param(
            DriverReady((), lost=(lost(1),)),
            DriverReady((), lost=(LostGpu(gpu(1), FAILURE),)),
            [],
            id="lost all the same",
        ),
        pytest.param(
            DriverReady((gpu(0),), lost=(lost(1),)),
            DriverReady((gpu(0),)),
            [GpuVanished(gpu(1))],
            id="lost, then gone",
        ),
        pytest.param(
            DriverReady((gpu(0),), lost=(lost(1),)), TWO, [GpuRecovered(gpu(1))], id="back again"
        ),
        pytest.param(
            TWO,
            DriverReady((gpu(0),), unreadable=(unreadable(1),)),
            [GpuIsUnreadable(gpu(1), UNREADABLE)],
            id="unreadable",
        ),
        pytest.param(
            replace(TWO, unknown=(UNKNOWN,)),
            replace(TWO, unknown=(UNKNOWN,), gpus=(gpu(0),)),
            [GpuVanished(gpu(1))],
            id="unknown as before",
        ),
        pytest.param(
            DriverReady((gpu(0, mig=MIG_OFF),)),
            DriverReady((gpu(0, mig=MIG_ON),)),
            [MigModeChanged(gpu(0, mig=MIG_ON))],
            id="MIG mode",
        ),
        pytest.param(
            DriverReady((gpu(0),)), DriverReady((gpu(0, numa_node=1),)), [], id="an attribute"
        ),
    ],
)
def test_changes(before: Inventory | None, after: Inventory, told: list[InventoryChange]) -> None:
    assert list(changes(before, after)) == told
