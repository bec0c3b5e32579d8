"""The changes that operators see when the node's GPUs change."""

from dataclasses import replace

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.change import (
    DriverArrived,
    DriverGone,
    DriverRefuses,
    DriverWasReplaced,
    GpuAppeared,
    GpuIsUnknown,
    GpuRecovered,
    GpuVanished,
    InventoryChange,
    MigModeChanged,
    ProblemAppeared,
    changes,
)
from kubelet_plugin.inventory.gpu import MigMode
from kubelet_plugin.inventory.health import (
    GpuLost,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)
from tests.samples.gpus import (
    LOST,
    MIG,
    NOTICED,
    UNREADABLE,
    gpu,
    observed,
)

TWO = DriverReady((observed(0), observed(1)))
MISSING = DriverMissing("not installed")
FAILURE = NvmlFailure("nvmlInit", "NVML_ERROR_NO_PERMISSION")
REFUSING = DriverUnusable(FAILURE)
OTHER_CARD = observed(1, uuid="GPU-11111111-0000-0000-0000-000000000001")
UNKNOWN = UnknownGpu(2, FAILURE)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, TWO, [], id="the first look"),
        pytest.param(None, MISSING, [DriverGone("not installed")], id="no driver at first"),
        pytest.param(None, REFUSING, [DriverRefuses(FAILURE)], id="refused at first"),
        pytest.param(
            None, replace(TWO, unknown=(UNKNOWN,)), [GpuIsUnknown(UNKNOWN)], id="unknown at first"
        ),
        pytest.param(TWO, TWO, [], id="nothing"),
        pytest.param(MISSING, MISSING, [], id="no driver still"),
        pytest.param(MISSING, TWO, [DriverArrived(2)], id="the driver comes late"),
        pytest.param(
            TWO, DriverReplaced("new.so"), [DriverWasReplaced("new.so")], id="another driver"
        ),
        pytest.param(DriverReplaced("new.so"), TWO, [DriverArrived(2)], id="the old one again"),
        pytest.param(TWO, MISSING, [DriverGone("not installed")], id="the driver goes"),
        pytest.param(DriverReady((observed(0),)), TWO, [GpuAppeared(gpu(1))], id="plugged in"),
        pytest.param(TWO, DriverReady((observed(0),)), [GpuVanished(gpu(1))], id="unplugged"),
        pytest.param(
            TWO,
            DriverReady((observed(0), OTHER_CARD)),
            [GpuVanished(gpu(1)), GpuAppeared(OTHER_CARD.gpu)],
            id="exchanged",
        ),
        pytest.param(
            TWO,
            DriverReady((observed(0), observed(1, LOST))),
            [ProblemAppeared(gpu(1), LOST)],
            id="lost",
        ),
        pytest.param(
            DriverReady((observed(1, LOST),)),
            DriverReady((observed(1, GpuLost(FAILURE, NOTICED)),)),
            [],
            id="lost all the same",
        ),
        pytest.param(
            DriverReady((observed(0), observed(1, LOST))),
            DriverReady((observed(0),)),
            [GpuVanished(gpu(1))],
            id="lost, then gone",
        ),
        pytest.param(
            DriverReady((observed(0), observed(1, LOST))),
            TWO,
            [GpuRecovered(gpu(1))],
            id="back again",
        ),
        pytest.param(
            TWO,
            DriverReady((observed(0), observed(1, UNREADABLE))),
            [ProblemAppeared(gpu(1), UNREADABLE)],
            id="unreadable",
        ),
        pytest.param(
            DriverReady((observed(1, UNREADABLE),)),
            DriverReady((observed(1, LOST, UNREADABLE),)),
            [ProblemAppeared(gpu(1), LOST)],
            id="a second problem",
        ),
        pytest.param(
            DriverReady((observed(1, LOST, UNREADABLE),)),
            DriverReady((observed(1, LOST),)),
            [],
            id="one of two problems passes",
        ),
        pytest.param(
            replace(TWO, unknown=(UNKNOWN,)),
            replace(TWO, unknown=(UNKNOWN,), gpus=(observed(0),)),
            [GpuVanished(gpu(1))],
            id="unknown as before",
        ),
        pytest.param(
            DriverReady((observed(0, mig=MIG),)),
            DriverReady((observed(0, mig=MIG, mig_mode=MigMode.ON),)),
            [MigModeChanged(gpu(0, mig=MIG), MigMode.ON)],
            id="MIG mode",
        ),
        pytest.param(
            DriverReady((observed(0),)),
            DriverReady((observed(0, numa_node=1),)),
            [],
            id="an attribute",
        ),
    ],
)
def test_changes(
    before: Inventory | None, after: Inventory, expected: list[InventoryChange]
) -> None:
    assert list(changes(before, after)) == expected
