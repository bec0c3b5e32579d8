"""Device nodes that are missing, and what is done about it."""

import errno
import os
import stat
from pathlib import Path

import pytest

from kubelet_plugin.host import HostPaths
from kubelet_plugin.prepare.device_nodes import (
    DeviceNodeError,
    ensure_control_nodes,
    ensure_gpu_nodes,
)
from tests.samples.gpus import gpu

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
MAJORS = "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n259 blkext\n"


class Kernel:
    """Stands for mknod and stat of device nodes, so that no right to make them is needed."""

    def __init__(self, host: HostPaths) -> None:
        self.host = host
        self.fails: OSError | None = None

    def make(self, path: Path, mode: int, device: int) -> None:
        if self.fails:
            raise self.fails
        assert stat.S_ISCHR(mode)
        path.write_text(f"{os.major(device)}:{os.minor(device)}")

    def numbers(self, absolute: str) -> tuple[int, int] | None:
        try:
            major, _, minor = self.host.path(absolute).read_text().partition(":")
        except OSError:
            return None
        return (int(major), int(minor)) if minor else None


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(MAJORS)
    return HostPaths(tmp_path)


@pytest.fixture
def kernel(host: HostPaths, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(host)
    monkeypatch.setattr(os, "mknod", kernel.make)
    monkeypatch.setattr(HostPaths, "device_numbers", lambda _, path: kernel.numbers(path))
    return kernel


def test_missing_nodes_are_made_with_the_kernels_numbers(host: HostPaths, kernel: Kernel) -> None:
    assert ensure_control_nodes(host) == CONTROL_NODES
    assert ensure_gpu_nodes(host, gpu(3)) == ("/dev/nvidia3",)
    numbers = {path: host.device_numbers(path) for path in (*CONTROL_NODES, "/dev/nvidia3")}
    assert numbers == {
        "/dev/nvidiactl": (195, 255),
        "/dev/nvidia-uvm": (510, 0),
        "/dev/nvidia-uvm-tools": (510, 1),
        "/dev/nvidia3": (195, 3),
    }


def test_everybody_may_use_a_node_that_was_made(host: HostPaths, kernel: Kernel) -> None:
    before = os.umask(0o077)
    try:
        ensure_gpu_nodes(host, gpu(0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(host.path("/dev/nvidia0").stat().st_mode) == 0o666
    assert [entry.name for entry in host.path("/dev").iterdir()] == ["nvidia0"]


def test_a_node_that_is_there_is_left_alone(host: HostPaths, kernel: Kernel) -> None:
    host.path("/dev/nvidia0").write_text("1:3")
    assert ensure_gpu_nodes(host, gpu(0)) == ("/dev/nvidia0",)
    assert host.device_numbers("/dev/nvidia0") == (1, 3)


def test_an_older_driver_has_another_name_for_its_major(host: HostPaths, kernel: Kernel) -> None:
    host.path("/proc/devices").write_text(MAJORS.replace("195 nvidia\n", "195 nvidia-frontend\n"))
    ensure_gpu_nodes(host, gpu(1))
    assert host.device_numbers("/dev/nvidia1") == (195, 1)


def test_modeset_is_taken_where_it_is(host: HostPaths, kernel: Kernel) -> None:
    host.path("/dev/nvidia-modeset").write_text("195:254")
    assert ensure_control_nodes(host) == (*CONTROL_NODES, "/dev/nvidia-modeset")


def test_drm_nodes_are_those_of_the_gpu(host: HostPaths, kernel: Kernel) -> None:
    for name in ("card1", "renderD128", "controlD65", "card7"):
        host.path(f"/sys/bus/pci/devices/{gpu(0).pci_bus_id}/drm/{name}").mkdir(parents=True)
    host.path("/dev/dri").mkdir()
    for name in ("card1", "renderD128", "controlD65", "card0"):
        host.path(f"/dev/dri/{name}").write_text("226:1")
    assert ensure_gpu_nodes(host, gpu(0)) == (
        "/dev/nvidia0",
        "/dev/dri/card1",
        "/dev/dri/renderD128",
    )


def test_without_the_kernel_module_the_error_says_to_load_it(
    host: HostPaths, kernel: Kernel
) -> None:
    host.path("/proc/devices").write_text(MAJORS.replace("510 nvidia-uvm\n", ""))
    with pytest.raises(DeviceNodeError, match=r"/dev/nvidia-uvm is missing.*nvidia-modprobe -u"):
        ensure_control_nodes(host)


def test_without_the_right_to_the_error_says_what_to_run(host: HostPaths, kernel: Kernel) -> None:
    kernel.fails = PermissionError(errno.EPERM, "Operation not permitted")
    with pytest.raises(DeviceNodeError, match=r"mknod -m 666 \S*/dev/nvidia2 c 195 2"):
        ensure_gpu_nodes(host, gpu(2))


def test_something_else_in_its_place_is_not_a_node(host: HostPaths) -> None:
    host.path("/dev/nvidia0").touch()
    with pytest.raises(DeviceNodeError, match="is not a character device; remove it"):
        ensure_gpu_nodes(host, gpu(0))
