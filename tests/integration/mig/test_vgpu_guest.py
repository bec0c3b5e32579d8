"""A vGPU in the guest of a hypervisor: the hypervisor decides on its partitions."""

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from kubelet_plugin.devices.kind import DeviceKind
from simulation.nvml import uninstall
from tests.integration.mig.agreement import TwoGpus


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    yield TwoGpus.create(tmp_path)
    uninstall()


def kinds(node: TwoGpus, minor: int) -> set[DeviceKind]:
    return {device.kind for device in node.devices().values() if device.gpu.minor == minor}


def test_a_vgpu_has_no_partitions_to_be_made_and_the_others_have(node: TwoGpus) -> None:
    node.simulated.make_vgpu(0)

    assert kinds(node, 0) == {DeviceKind.GPU, DeviceKind.SHARE, DeviceKind.MONITOR}
    assert DeviceKind.MIG in kinds(node, 1)


def test_a_partition_that_a_vgpu_has_is_offered_and_no_other(node: TwoGpus) -> None:
    node.admin_switches(0, on=True)
    node.admin_makes(0, 9, 0, 4)
    node.simulated.make_vgpu(0)

    names = {name for name, device in node.devices().items() if device.gpu.minor == 0}

    assert names == {"gpu-0-mig-3g40gb-9-0", "gpu-0-monitor"}


def test_a_driver_that_does_not_say_whether_it_is_a_vgpu_has_a_gpu(node: TwoGpus) -> None:
    node.simulated.fail("nvmlDeviceGetVirtualizationMode", pynvml.NVML_ERROR_NOT_SUPPORTED)

    assert DeviceKind.MIG in kinds(node, 0)
