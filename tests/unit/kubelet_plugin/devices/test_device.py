"""The devices that a node's GPUs make."""

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import GpuState, MigMode
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)
from kubelet_plugin.inventory.mig import MigSupported
from tests.samples.gpus import LAYOUT, LOST, MIG, UNREADABLE, gpu, monitor, observed, share, whole


def test_devices_of_a_gpu_are_named_after_its_minor_number() -> None:
    found = devices(DriverReady((observed(3),)))

    assert found == (
        WholeGpu(gpu(3), GpuState()),
        Share(gpu(3), GpuState()),
        Monitor(gpu(3), GpuState()),
    )
    assert [device.name for device in found] == ["gpu-3", "gpu-3-share", "gpu-3-monitor"]


def test_the_scheduler_takes_the_first_device_that_fits_so_whole_gpus_come_first() -> None:
    found = devices(DriverReady((observed(0), observed(1))))

    assert [device.kind for device in found] == [
        *("gpu", "gpu"),
        *("share", "share"),
        *("monitor", "monitor"),
    ]


def test_gpus_that_do_not_answer_keep_their_devices_in_their_places() -> None:
    seen = (observed(0), observed(1, LOST), observed(2, UNREADABLE), observed(3))

    assert devices(DriverReady(seen)) == (
        whole(0),
        whole(1, LOST),
        whole(2, UNREADABLE),
        whole(3),
        share(0),
        share(1, LOST),
        share(2, UNREADABLE),
        share(3),
        monitor(0),
        monitor(1, LOST),
        monitor(2, UNREADABLE),
        monitor(3),
    )


def test_a_gpu_in_mig_mode_can_be_monitored_but_neither_used_whole_nor_shared() -> None:
    seen = (observed(0, mig=MIG, mig_mode=MigMode.ON), observed(1, mig=MIG))

    names = [device.name for device in devices(DriverReady(seen)) if device.kind != "mig"]
    assert names == ["gpu-1", "gpu-1-share", "gpu-0-monitor", "gpu-1-monitor"]


@pytest.mark.parametrize("memory", [None, 0, 2**20], ids=["shared with the CPU", "none", "1 MiB"])
def test_a_gpu_without_memory_of_its_own_has_no_shares(memory: int | None) -> None:
    names = [device.name for device in devices(DriverReady((observed(0, memory_bytes=memory),)))]
    assert names == ["gpu-0", "gpu-0-monitor"]


def test_a_gpu_that_toggles_without_reset_has_partitions_in_every_mode() -> None:
    for mode in MigMode:
        names = [
            device.name for device in devices(DriverReady((observed(2, mig=MIG, mig_mode=mode),)))
        ]
        assert "gpu-2-mig-7g80gb-0-0" in names


def test_a_gpu_that_needs_a_reset_has_partitions_only_in_mig_mode() -> None:
    ampere = MigSupported(LAYOUT, toggles_without_reset=False)
    off, on = (
        [device.kind for device in devices(DriverReady((observed(2, mig=ampere, mig_mode=mode),)))]
        for mode in (MigMode.OFF, MigMode.ON)
    )
    assert off == ["gpu", "share", "monitor"]
    assert on == ["mig", "monitor"]


@pytest.mark.parametrize(
    "inventory",
    [
        None,
        DriverReady(()),
        DriverReady((), unknown=(UnknownGpu(0, LOST.failure),)),
        DriverMissing("not installed"),
        DriverUnusable(NvmlFailure("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")),
    ],
    ids=lambda inventory: type(inventory).__name__,
)
def test_a_node_where_no_gpu_is_known_has_no_devices(inventory: Inventory | None) -> None:
    assert devices(inventory) == ()
