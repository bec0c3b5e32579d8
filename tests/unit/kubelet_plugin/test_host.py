"""What the kernel reports about GPUs, read from a tree of files."""

import os
from pathlib import Path

import pytest

from kubelet_plugin.host import DeviceFileParameters, HostPaths, Permissions
from simulation.nvml import DeviceNodes, SimulatedNode

ADDRESS = "0000:1b:00.0"


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    return HostPaths(tmp_path)


def write(host: HostPaths, absolute: str, text: str) -> None:
    path = host.path(absolute)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_whatever_is_absent_is_none(host: HostPaths) -> None:
    assert host.numa_node(ADDRESS) is None
    assert host.pcie_root(ADDRESS) is None
    assert host.gpu_addresses() is None
    assert host.device_majors() == {}
    assert host.device_file_parameters() == DeviceFileParameters()
    assert host.drm_devices(ADDRESS) == {}
    assert host.boot_id() is None
    assert host.character_device("/dev/nvidia0") is None


@pytest.mark.parametrize(
    ("text", "node"), [("0\n", 0), ("3\n", 3), ("-1\n", None), ("", None), ("what\n", None)]
)
def test_a_numa_node_is_never_negative(host: HostPaths, text: str, node: int | None) -> None:
    write(host, f"/sys/bus/pci/devices/{ADDRESS}/numa_node", text)
    assert host.numa_node(ADDRESS) == node


@pytest.mark.parametrize(
    ("link", "root"),
    [
        ("../../../devices/pci0000:15/0000:15:01.0/0000:1b:00.0", "pci0000:15"),
        ("../../../devices/pci0000:00/0000:00:04.0", "pci0000:00"),
        ("/sys/devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0", "pci10000:e0"),
        ("../../../devices/pnp0/00:01", None),
        ("../../../devices/LNXSYSTM:00/pci0000:00/0000:00:04.0", None),
    ],
)
def test_a_pcie_root_is_the_first_component_below_sys_devices(
    host: HostPaths, link: str, root: str | None
) -> None:
    path = host.path(f"/sys/bus/pci/devices/{ADDRESS}")
    path.parent.mkdir(parents=True)
    path.symlink_to(link)
    assert host.pcie_root(ADDRESS) == root


def test_majors_are_those_of_character_devices(host: HostPaths) -> None:
    write(
        host,
        "/proc/devices",
        "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n259 blkext\n",
    )
    assert host.device_majors() == {"mem": 1, "nvidia": 195, "nvidia-uvm": 510}


def test_only_a_character_device_has_numbers(host: HostPaths) -> None:
    null = HostPaths().character_device("/dev/null")
    assert null is not None
    assert (null.major, null.minor, null.permissions.mode) == (1, 3, 0o666)
    write(host, "/dev/nvidia0", "")
    assert host.character_device("/dev/nvidia0") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a terminal: needs root")
def test_a_character_device_has_an_owner_and_a_group() -> None:
    controller, terminal = os.openpty()
    try:
        os.chown(os.ttyname(terminal), 1, 2)
        device = HostPaths().character_device(os.ttyname(terminal))
    finally:
        os.close(terminal)
        os.close(controller)
    assert device is not None
    assert (device.permissions.uid, device.permissions.gid) == (1, 2)


@pytest.mark.parametrize("content", [b"\n", b"\xff\n"], ids=["empty", "not UTF-8"])
def test_a_malformed_value_is_none(host: HostPaths, content: bytes) -> None:
    write(host, "/proc/sys/kernel/random/boot_id", "")
    host.path("/proc/sys/kernel/random/boot_id").write_bytes(content)
    assert host.boot_id() is None


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", DeviceFileParameters()),
        (
            'ModifyDeviceFiles: 1\nDeviceFileGID: 44\nDeviceFileMode: 432\nRegistryDwords: ""\n',
            DeviceFileParameters(Permissions(0o660, 0, 44)),
        ),
        ("ModifyDeviceFiles: 0\n", DeviceFileParameters(modifiable=False)),
        ("DeviceFileMode: what\n", DeviceFileParameters()),
        ("DeviceFileMode: 2550\n", DeviceFileParameters(Permissions(0o766))),  # 0o4766
    ],
)
def test_parameters_of_device_files_are_the_modules(
    host: HostPaths, text: str, parameters: DeviceFileParameters
) -> None:
    write(host, "/proc/driver/nvidia/params", text)
    assert host.device_file_parameters() == parameters


def test_drm_devices_have_the_numbers_that_sysfs_reports(host: HostPaths) -> None:
    folder = f"/sys/bus/pci/devices/{ADDRESS}/drm"
    write(host, f"{folder}/card1/dev", "226:1\n")
    write(host, f"{folder}/renderD128/dev", "226:128\n")
    write(host, f"{folder}/ttm/name", "")
    assert host.drm_devices(ADDRESS) == {"card1": (226, 1), "renderD128": (226, 128)}


def test_drm_devices_are_sorted_by_name(host: HostPaths) -> None:
    for number in (3, 1, 4, 0, 5, 2):
        write(host, f"/sys/bus/pci/devices/{ADDRESS}/drm/card{number}/dev", f"226:{number}\n")
    assert list(host.drm_devices(ADDRESS)) == [f"card{number}" for number in range(6)]


def test_a_simulated_node_shows_what_a_real_one_shows(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path, "mixed", device_nodes=DeviceNodes.REGULAR)
    host = HostPaths(node.root)
    slots = node.hardware.gpus
    assert host.gpu_addresses() == frozenset(slot.pci for slot in slots)
    assert [host.numa_node(slot.pci) for slot in slots] == [0, 0, 1, None]
    assert [host.pcie_root(slot.pci) for slot in slots] == [
        "pci0000:00",
        "pci0000:20",
        "pci0000:80",
        "pci10000:00",
    ]
    assert host.device_majors()["nvidia"] == 195
    assert host.device_file_parameters() == DeviceFileParameters()
    assert host.boot_id() == node.state.boot_id


@pytest.mark.parametrize(
    ("vendor", "device_class", "found"),
    [
        ("0x10de", "0x030000", True),
        ("0x10de", "0x030200", True),
        ("0x10de", "0x068000", False),  # an NVSwitch
        ("0x10de", "0x040300", False),  # the sound of a graphics card
        ("0x1002", "0x030000", False),
    ],
)
def test_a_display_controller_of_nvidia_is_a_gpu(
    host: HostPaths, vendor: str, device_class: str, found: bool
) -> None:
    write(host, f"/sys/bus/pci/devices/{ADDRESS}/vendor", f"{vendor}\n")
    write(host, f"/sys/bus/pci/devices/{ADDRESS}/class", f"{device_class}\n")
    assert host.has_gpu() == found


def test_a_node_without_pci_functions_has_no_gpu(host: HostPaths) -> None:
    host.path("/sys/bus/pci/devices").mkdir(parents=True)
    assert not host.has_gpu()


def test_a_node_has_a_gpu_if_its_bus_cannot_be_read(host: HostPaths) -> None:
    assert host.has_gpu()


def test_a_node_has_a_gpu_if_the_driver_is_loaded(host: HostPaths) -> None:
    host.path("/sys/bus/pci/devices").mkdir(parents=True)
    host.path("/proc/driver/nvidia").mkdir(parents=True)
    assert host.has_gpu()
