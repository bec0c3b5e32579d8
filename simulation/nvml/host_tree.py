"""The files by which a node shows its GPUs, below a directory that stands for "/".

/dev, sysfs and procfs as the kernel and the NVIDIA module write them, and what a driver package
installs. What depends on state is written again when the state changes; everything is derived, so
writing twice gives the same tree.
"""

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from simulation.nvml import mps_control
from simulation.nvml.hardware import Hardware, Slot
from simulation.nvml.state import NodeState

__all__ = [
    "CAPABILITY_MODE",
    "STAND_IN",
    "DeviceNodes",
    "binding",
    "device_numbers",
    "is_capability",
    "root",
    "wipe_run",
    "write",
    "write_capabilities",
]

_BINDINGS = "bus/pci/drivers/nvidia"
_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_SONAMES = {
    "libcuda": "1",
    "libcudadebugger": "1",
    "libnvcuvid": "1",
    "libnvidia-allocator": "1",
    "libnvidia-cfg": "1",
    "libnvidia-encode": "1",
    "libnvidia-ml": "1",
    "libnvidia-nvvm": "4",
    "libnvidia-opencl": "1",
    "libnvidia-opticalflow": "1",
    "libnvidia-ptxjitcompiler": "1",
}
_MPS_CONTROL = "nvidia-cuda-mps-control"
_BINARIES = (
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
)
_MAJORS = {
    "nvidia": 195,
    "nvidia-modeset": 195,
    "nvidiactl": 195,
    "nvidia-caps": 508,
    "nvidia-uvm": 510,
}
_CONTROL_NODES = {
    "nvidiactl": (195, 255),
    "nvidia-modeset": (195, 254),
    "nvidia-uvm": (510, 0),
    "nvidia-uvm-tools": (510, 1),
}
_PARAMETERS = {
    "ModifyDeviceFiles": 1,
    "DeviceFileUID": 0,
    "DeviceFileGID": 0,
    "DeviceFileMode": 0o666,
}


CAPABILITY_MODE = 0o444
_CAPABILITY = "nvidia-cap"
TIME_SLICES, SMI_FAULT = "run/time-slices", "run/nvidia-smi.fault"
"""Where nvidia-smi keeps the numbers of intervals by UUID, and finds with which words to fail."""
_COMPUTE_POLICY = f"""\
if [ "$1" = compute-policy ]; then
  top=$(cd "$(dirname "$0")/../.." && pwd)
  if [ -e "$top/{SMI_FAULT}" ]; then cat "$top/{SMI_FAULT}"; exit 1; fi
  mkdir -p "$top/{TIME_SLICES}"
  echo "$5" > "$top/{TIME_SLICES}/$3"
  exit
fi"""
STAND_IN = Path("/dev/null")
"""What a node that this process may not make is a link to."""


class DeviceNodes(Enum):
    """What the files in /dev are."""

    NVIDIA = "nvidia"
    """Character devices with the numbers of the NVIDIA module; there is no driver to open them.

    Without the right to make device nodes they are links to /dev/null, for which
    `simulation.nvml.device_files` answers.
    """
    REGULAR = "regular"
    """Plain empty files."""


def root(directory: Path) -> Path:
    """What stands for "/"."""
    return directory / "root"


def write(directory: Path, hardware: Hardware, state: NodeState, nodes: DeviceNodes) -> None:
    """Writes the whole tree, and removes what no longer belongs to it."""
    _write_driver_files(root(directory), hardware, state)
    if state.driver != "loaded":
        shutil.rmtree(root(directory) / TIME_SLICES, ignore_errors=True)
    _write_devices(root(directory) / "dev", hardware, state, nodes)
    _write_sysfs(root(directory) / "sys", hardware, state)
    _write_procfs(root(directory) / "proc", hardware, state)
    write_capabilities(directory, hardware, state)
    (root(directory) / "run").mkdir(exist_ok=True)
    _link(root(directory) / "var/run", "../run")


def is_capability(name: str) -> bool:
    """Whether a node with that name is a capability, in /dev/nvidia-caps."""
    return name.startswith(_CAPABILITY)


def device_numbers(name: str) -> tuple[int, int]:
    """Major and minor number of the node with that name: a control node, a capability or a GPU."""
    if is_capability(name):
        return _MAJORS["nvidia-caps"], int(name.removeprefix(_CAPABILITY))
    return _CONTROL_NODES.get(name) or (_MAJORS["nvidia"], int(name.removeprefix("nvidia")))


def wipe_run(directory: Path) -> None:
    """Empties what is in memory on a real node and gone after a reboot."""
    for entry in (root(directory) / "run").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def write_capabilities(directory: Path, hardware: Hardware, state: NodeState) -> None:
    """/proc/driver/nvidia/capabilities: a file for each MIG instance that there is."""
    if state.driver != "loaded":
        return
    folder = root(directory) / "proc/driver/nvidia/capabilities"
    wanted = {"mig/config": 1, "mig/monitor": 2}
    for slot in _visible(hardware, state):
        for instance in state.gpus[slot.minor].instances:
            path = f"gpu{slot.minor}/mig/gi{instance.id}"
            wanted[f"{path}/access"] = _capability(slot.minor, instance.id)
            for compute in instance.compute_instances:
                number = _capability(slot.minor, instance.id, compute.id)
                wanted[f"{path}/ci{compute.id}/access"] = number
    contents = {
        name: f"DeviceFileMinor: {number}\nDeviceFileMode: {CAPABILITY_MODE}\nDeviceFileModify: 1\n"
        for name, number in wanted.items()
    }
    _replace_files(folder, contents)
    caps = root(directory) / "dev/nvidia-caps"
    if (caps / f"{_CAPABILITY}1").is_symlink():  # no program makes nodes here either
        for number in wanted.values():
            _make_stand_in(caps / f"{_CAPABILITY}{number}")


def _make_stand_in(path: Path) -> None:
    if not path.is_symlink():
        path.symlink_to(STAND_IN)


def _capability(minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """The minor number of /dev/nvidia-caps/nvidia-cap<N>: 15 GPU instances of 8 a GPU."""
    first = 3 + minor * 135 + gpu_instance * 9
    return first if compute_instance is None else first + 1 + compute_instance


def _visible(hardware: Hardware, state: NodeState) -> list[Slot]:
    """The slots whose GPU the kernel still lists; one that fell off the bus stays listed."""
    return [slot for slot in hardware.gpus if state.gpus[slot.minor].presence != "unplugged"]


def _write_devices(dev: Path, hardware: Hardware, state: NodeState, nodes: DeviceNodes) -> None:
    wanted: dict[str, tuple[int, int]] = {}
    if state.driver == "loaded":
        names = (*_CONTROL_NODES, *(f"nvidia{slot.minor}" for slot in _visible(hardware, state)))
        wanted |= {name: device_numbers(name) for name in names}
        wanted |= {f"nvidia-caps/{_CAPABILITY}{number}": (508, number) for number in (1, 2)}
    dev.mkdir(parents=True, exist_ok=True)
    (dev / "nvidia-caps").mkdir(exist_ok=True)
    for entry in [*dev.glob("nvidia*"), *dev.glob("nvidia-caps/*")]:
        if str(entry.relative_to(dev)) not in wanted and not entry.is_dir():
            entry.unlink()
    for name, numbers in wanted.items():
        _make_node(dev / name, numbers, nodes)


def _make_node(path: Path, numbers: tuple[int, int], nodes: DeviceNodes) -> None:
    if path.exists():
        return
    if nodes is DeviceNodes.REGULAR:
        path.touch()
        return
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
    except PermissionError:  # not root, or in a user namespace
        _make_stand_in(path)
    else:
        path.chmod(0o666)


def binding(directory: Path, slot: Slot) -> Path:
    """The link that the kernel makes when it binds the driver to a GPU."""
    return root(directory) / "sys" / _BINDINGS / slot.pci


def _write_sysfs(sys: Path, hardware: Hardware, state: NodeState) -> None:
    links = sys / "bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    visible = {slot.pci for slot in _visible(hardware, state)}
    for slot in hardware.gpus:
        device = sys / "devices" / slot.path / slot.pci
        if slot.pci not in visible:
            (links / slot.pci).unlink(missing_ok=True)
            (sys / _BINDINGS / slot.pci).unlink(missing_ok=True)
            shutil.rmtree(device, ignore_errors=True)
            continue
        model = hardware.models[slot.model]
        device.mkdir(parents=True, exist_ok=True)
        (device / "numa_node").write_text(f"{slot.numa_node}\n")
        (device / "vendor").write_text("0x10de\n")
        (device / "device").write_text(f"0x{model.pci_device_id >> 16:04x}\n")
        (device / "class").write_text("0x030200\n")
        _link(links / slot.pci, f"../../../devices/{slot.path}/{slot.pci}")
        _link(sys / _BINDINGS / slot.pci, f"../../../../devices/{slot.path}/{slot.pci}")


def _write_procfs(proc: Path, hardware: Hardware, state: NodeState) -> None:
    boot_id = proc / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text(f"{state.boot_id}\n")
    loaded = state.driver == "loaded"
    majors = {"mem": 1, **(_MAJORS if loaded else {})}
    lines = [f"{number:3d} {name}" for name, number in majors.items()]
    (proc / "devices").write_text(
        "\n".join(["Character devices:", *lines, "", "Block devices:", "259 blkext", ""])
    )
    driver = proc / "driver/nvidia"
    if not loaded:
        shutil.rmtree(driver, ignore_errors=True)
        return
    driver.mkdir(parents=True, exist_ok=True)
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
        f"{state.driver_version}  Release Build\n"
    )
    (driver / "params").write_text(
        "".join(f"{name}: {value}\n" for name, value in _PARAMETERS.items())
    )
    _replace_files(
        driver / "gpus",
        {
            f"{slot.pci}/information": _information(hardware, state, slot)
            for slot in _visible(hardware, state)
        },
    )


def _information(hardware: Hardware, state: NodeState, slot: Slot) -> str:
    return (
        f"Model: \t\t {hardware.models[slot.model].name}\n"
        f"GPU UUID: \t {state.gpus[slot.minor].uuid}\n"
        f"Bus Type: \t PCIe\n"
        f"Bus Location: \t {slot.pci}\n"
        f"Device Minor: \t {slot.minor}\n"
        f"GPU Excluded:\t No\n"
    )


def _write_driver_files(top: Path, hardware: Hardware, state: NodeState) -> None:
    """Small files with the names that a driver package installs; none if there is no driver."""
    libraries, binaries = top / _LIBRARIES, top / "usr/bin"
    libraries.mkdir(parents=True, exist_ok=True)
    binaries.mkdir(parents=True, exist_ok=True)
    firmware = top / "lib/firmware/nvidia"
    shutil.rmtree(firmware, ignore_errors=True)
    for stale in [*libraries.glob("lib*"), *binaries.glob("nvidia-*")]:
        stale.unlink()
    if state.driver == "not installed":
        return
    version = state.driver_version
    for name, soname in _SONAMES.items():
        (libraries / f"{name}.so.{version}").write_text(f"simulated {name} {version}\n")
        _link(libraries / f"{name}.so.{soname}", f"{name}.so.{version}")
        _link(libraries / f"{name}.so", f"{name}.so.{soname}")
    for name in _BINARIES:
        _write_script(binaries / name, f'echo "simulated {name}"')
    _write_script(binaries / "nvidia-smi", _nvidia_smi(hardware, state))
    _write_program(binaries / _MPS_CONTROL, f"#!{sys.executable} -IS\n{_mps_control()}")
    (firmware / version).mkdir(parents=True)
    for chip in ("ga10x", "tu10x"):
        (firmware / version / f"gsp_{chip}.bin").write_bytes(b"")


def _nvidia_smi(hardware: Hardware, state: NodeState) -> str:
    """Lists the GPUs whose device node is there: in a container, those it was given.

    `nvidia-smi compute-policy -i UUID --set-timeslice N` sets the length of time slices.
    """
    cases = "\n".join(
        f'    {slot.minor}) echo "GPU {slot.minor}: {hardware.models[slot.model].name}'
        f' (UUID: {state.gpus[slot.minor].uuid})" ;;'
        for slot in hardware.gpus
    )
    return (
        f"{_COMPUTE_POLICY}\n"
        "for node in /dev/nvidia[0-9]*; do\n"
        '  case "${node#/dev/nvidia}" in\n'
        f"{cases}\n"
        "  esac\n"
        "done"
    )


def _mps_control() -> str:
    return Path(mps_control.__file__).read_text()


def _write_script(path: Path, body: str) -> None:
    _write_program(path, f"#!/bin/sh\n{body}\n")


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)


def _replace_files(folder: Path, contents: Mapping[str, str]) -> None:
    """Makes a folder hold these files and no others; empty folders go, too."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif str(path.relative_to(folder)) not in contents:
            path.unlink()
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
