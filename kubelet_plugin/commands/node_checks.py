"""What `carina doctor node` looks at on a node, or in the plugin's pod on it.

NVML is asked by another process, `carina inventory`: a call of the driver that hangs can neither be
cancelled nor killed, and this process has to end.
"""

import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from carina_dra.cli.diagnosis import Check, Diagnosis, bad, ok, warn
from carina_dra.nvidia.driver_location import locations
from carina_dra.nvidia.driver_search import DriverSearch
from kubelet_plugin.claims.checkpoint import CheckpointError, CheckpointFormError
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.commands.inventory import GPUS_FOUND
from kubelet_plugin.commands.runtime_configuration import (
    DEFAULT_FOLDERS,
    RuntimeConfiguration,
    UnreadableConfigurationError,
    configurations,
)
from kubelet_plugin.host import HostPaths
from kubelet_plugin.kubelet.presence import CannotTell, Listening, NotListening, kubelet_socket
from kubelet_plugin.settings import PluginSettings

_HANGS: Final = "reset the GPU or reboot the node; the kernel log says which GPU it is"
_DYING: Final = 1.0
"""Seconds in which a killed process ends, unless the kernel driver keeps it."""
_DEVICE_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_SAME_FOLDERS: Final = ({"/run/cdi", "/var/run/cdi"},)
"""/var/run is a link to /run."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """A node, as this process sees it."""

    host: HostPaths
    """Its /proc, /sys and /dev."""
    filesystem: HostPaths
    """Its other files."""
    kubelet_root: Path
    driver: str
    cdi_directory: Path
    inventory: Sequence[str]
    """The command line of `carina inventory`."""
    patience: float
    """Seconds for NVML."""

    @property
    def settings(self) -> PluginSettings:
        """The plugin's settings, for the paths that follow from them."""
        chosen = {"kubelet_root": self.kubelet_root, "driver_name": self.driver}
        return PluginSettings.model_validate({"node_name": "node", **chosen})


def checks(arguments: Namespace) -> Sequence[Check]:
    """Returns the checks of this node."""
    host_root, filesystem = arguments.host_root, arguments.host_filesystem
    return checks_of(
        NodeFiles(
            host=HostPaths(Path(host_root)),
            filesystem=HostPaths(Path(filesystem)),
            kubelet_root=Path(arguments.kubelet_root),
            driver=arguments.driver_name,
            cdi_directory=Path(arguments.cdi_directory),
            inventory=(
                *(sys.executable, "-m", "carina_dra", "inventory", "--output=json"),
                *(f"--host-root={host_root}", f"--host-filesystem={filesystem}"),
                *(f"--kubelet-root={arguments.kubelet_root}",),
                *(f"--driver-name={arguments.driver_name}",),
            ),
            patience=arguments.timeout * 2 / 3,
        )
    )


def checks_of(node: NodeFiles) -> Sequence[Check]:
    """Returns the checks of a node with these files."""
    looks = {
        "driver": _driver,
        "NVML": _nvml,
        "device nodes": _device_nodes,
        "kubelet": _kubelet,
        "plugin": _plugin,
        "container runtime": _runtime,
        "checkpoint": _checkpoint,
        "folders": _folders,
    }
    return [Check(name, partial(look, node)) for name, look in looks.items()]


def _driver(node: NodeFiles) -> Iterator[Diagnosis]:
    search = DriverSearch(locations(node.filesystem.root))
    found = search.location()
    if found is None:
        remedy = "install the NVIDIA driver, or name its root folder with host_driver_root"
        yield bad(f"none is installed below {search.roots}", remedy)
        return
    try:
        words = node.host.path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        text = f"installed in {found.host_path}, and its kernel module is not loaded"
        yield bad(text, "modprobe nvidia; see the kernel log if that fails")
        return
    number = next((word for word in words if word[:1].isdigit()), "unknown")
    yield ok(f"{number}, installed in {found.host_path}")


def _nvml(node: NodeFiles) -> Iterator[Diagnosis]:
    process = subprocess.Popen(  # noqa: S603 - this program
        node.inventory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=node.patience)
    except subprocess.TimeoutExpired:
        _abandon(process)
        yield bad(f"a call of NVML has not returned for {node.patience:g} s", _HANGS)
        return
    lines = [line.removeprefix("carina inventory: ") for line in errors.splitlines()]
    if process.returncode != GPUS_FOUND:
        said = lines[-1] if lines else f"it ended with {process.returncode}"
        yield bad(said, "see what nvidia-smi says on the node, and the kernel log")
        return
    yield ok(f"it finds {len(json.loads(output)['gpus'])} GPUs")
    for line in lines:
        yield warn(line, "see docs/troubleshooting.md")


def _abandon(process: "subprocess.Popen[str]") -> None:
    """Kills a process, and waits a moment only: one that hangs in the driver does not end."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DYING)


def _device_nodes(node: NodeFiles) -> Iterator[Diagnosis]:
    majors = node.host.device_majors()
    good, wrong = [], []
    for path, drivers, minor in _wanted_nodes(node.host):
        major = next((majors[driver] for driver in drivers if driver in majors), None)
        found = node.host.character_device(path)
        if found is not None and (found.major, found.minor) == (major, minor):
            good.append(path)
        else:
            wrong.append(path)
    if wrong:
        remedy = "nvidia-modprobe -u -c 0; with ModifyDeviceFiles: 1 the plugin makes them"
        yield warn(f"missing or with wrong numbers: {', '.join(wrong)}", remedy)
    if good:
        yield ok(", ".join(good))


def _wanted_nodes(host: HostPaths) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """The path of each node, the names that its driver may have, and its minor number."""
    yield "/dev/nvidiactl", ("nvidia-frontend", "nvidia"), 255
    yield "/dev/nvidia-uvm", ("nvidia-uvm",), 0
    for file in host.path("/proc/driver/nvidia/gpus").glob("*/information"):
        with suppress(OSError):  # the GPU has been unplugged
            minor = _DEVICE_MINOR.search(file.read_text())
            if minor is not None:
                yield f"/dev/nvidia{minor[1]}", ("nvidia-frontend", "nvidia"), int(minor[1])


def _kubelet(node: NodeFiles) -> Iterator[Diagnosis]:
    match kubelet_socket(node.kubelet_root)():
        case Listening():
            yield ok(f"it runs, with the root {node.kubelet_root}")
        case NotListening():
            yield bad("it does not run", "systemctl status kubelet")
        case CannotTell():
            remedy = "name the kubelet's --root-dir with --kubelet-root, and run it as root"
            yield warn(f"its socket below {node.kubelet_root} cannot be reached", remedy)


def _plugin(node: NodeFiles) -> Iterator[Diagnosis]:
    # The kubectl plugin has no gRPC; it knows this scope, and its machine is seldom a node.
    from kubelet_plugin.kubelet.probe import socket_probe  # noqa: PLC0415

    sockets = [
        path
        for folder, pattern in node.settings.socket_patterns
        for path in sorted(folder.glob(pattern))
    ]
    if not sockets:
        remedy = "see its pod on this node: kubectl get pods -n carina-system -o wide"
        yield bad(f"it does not listen below {node.kubelet_root}", remedy)
    answering = []
    for path in sockets:
        problem = socket_probe(path)()
        if problem is not None:
            yield warn(problem, "restart the plugin's pod, which removes abandoned sockets")
        else:
            answering.append(path)
            yield ok(f"it answers on {path}")
    registered = [path.name for path in answering if path.name.endswith("reg.sock")]
    if len(registered) > 1:
        remedy = "unless a rollout is on, remove the other driver, or set another driver_name"
        text = f"{len(registered)} plugins are registered as {node.driver}: {', '.join(registered)}"
        yield warn(text, remedy)


def _runtime(node: NodeFiles) -> Iterator[Diagnosis]:
    try:
        found = list(configurations(node.filesystem))
    except UnreadableConfigurationError as error:
        yield warn(str(error), "correct the file, or run it as root")
        return
    for configuration in found:
        yield _reads(configuration, str(node.cdi_directory))
    if not found:
        folders = ", ".join(DEFAULT_FOLDERS)
        text = "no configuration of containerd or CRI-O was found"
        yield warn(text, f"see that the runtime has CDI on and reads one of {folders}")


def _reads(found: RuntimeConfiguration, directory: str) -> Diagnosis:
    """Returns whether a runtime reads the CDI specs that the plugin writes."""
    alike = next((same for same in _SAME_FOLDERS if directory in same), {directory})
    name = f"{found.runtime} ({found.file})"
    if found.enabled is False:
        return bad(f"{name} has CDI off", "set enable_cdi = true and restart it")
    if alike.isdisjoint(found.folders):
        text = f"{name} reads CDI specs of {', '.join(found.folders)}, and not of {directory}"
        return bad(text, "add the folder to cdi_spec_dirs, or set cdi_directory of the plugin")
    if found.enabled is None:
        remedy = "set enable_cdi = true, unless it is containerd 2.0 or later"
        return warn(f"{name} does not say whether CDI is on", remedy)
    return ok(f"{name} reads CDI specs of {directory}")


def _checkpoint(node: NodeFiles) -> Iterator[Diagnosis]:
    path = node.settings.checkpoint
    try:
        loaded = CheckpointFile(path).load()
    except CheckpointFormError as error:
        yield bad(str(error), "run the version that wrote it")
    except CheckpointError as error:
        yield warn(f"{path} {error}", "the plugin restores it from CDI specs and the API server")
    except OSError as error:
        yield bad(f"{path} cannot be read: {error}", "check its disk, and run it as root")
    else:
        yield ok(
            f"there is no {path} yet"
            if loaded is None
            else f"{path} records {len(loaded.claims)} claims"
        )


def _folders(node: NodeFiles) -> Iterator[Diagnosis]:
    registry = node.settings.registration_socket.parent
    for folder in (node.settings.plugin_directory, registry, node.cdi_directory):
        present = next(path for path in (folder, *folder.parents) if path.exists())
        if os.access(present, os.W_OK | os.X_OK):
            yield ok(f"{folder} can be written")
        else:
            yield bad(f"{folder} cannot be written", "run it as root; check its mount and disk")
