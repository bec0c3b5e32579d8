"""A simulated node, as tests and the demo create and change it."""

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from simulation.nvml import host_tree, mps_control
from simulation.nvml.hardware import HARDWARE, Hardware, load_profile
from simulation.nvml.host_tree import DeviceNodes
from simulation.nvml.library import in_use_file
from simulation.nvml.state import (
    WHOLE_GPU,
    DriverState,
    Fault,
    GpuProcess,
    GpuState,
    NodeState,
    StateFile,
)

__all__ = ["DeviceNodes", "SimulatedNode"]

_NAMESPACE = uuid.UUID("5d1f0b6e-6f0a-5a52-9a6e-0c7f6d1c2a11")
_FALLEN_OFF_THE_BUS = 79


class SimulatedNode:
    """A node with GPUs in a directory, shared by all processes that open it.

    These processes see every change at their next call of NVML.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file = StateFile(directory)
        self._hardware = HARDWARE.validate_json((directory / "hardware.json").read_bytes())
        self._nodes = DeviceNodes((directory / "device-nodes").read_text())

    @classmethod
    def create(
        cls,
        directory: Path,
        profile: str,
        *,
        name: str = "node-1",
        device_nodes: DeviceNodes = DeviceNodes.NVIDIA,
        unplugged: Iterable[int] = (),
        driver_version: str | None = None,
    ) -> "SimulatedNode":
        """Creates a node. The same name and profile always give the same GPUs.

        `unplugged` are minor numbers of slots that are empty at first. `driver_version` is that of
        the profile unless given; from 565 on, the driver has recovery actions.
        Raises KeyError for an unknown profile, FileExistsError if the directory has a node.
        """
        hardware = load_profile(profile)
        if (directory / "state.json").exists():
            raise FileExistsError(f"{directory} holds a simulated node already")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hardware.json").write_bytes(HARDWARE.dump_json(hardware))
        (directory / "device-nodes").write_text(device_nodes.value)
        empty = set(unplugged)
        gpus = {
            slot.minor: GpuState(
                uuid=gpu_uuid(name, slot.minor),
                serial=f"16{int(uuid.uuid5(_NAMESPACE, f'{name}/{slot.minor}')) % 10**11:011d}",
                presence="unplugged" if slot.minor in empty else "attached",
            )
            for slot in hardware.gpus
        }
        boot_id = str(uuid.uuid5(_NAMESPACE, f"{name}/boot/0"))
        StateFile(directory).create(
            NodeState(name, boot_id, gpus, driver_version=driver_version or hardware.driver_version)
        )
        node = cls(directory)
        node._write_tree(node.state)
        return node

    @property
    def root(self) -> Path:
        """The directory that stands for the node's "/"."""
        return host_tree.root(self.directory)

    def sharing_command(self, settings: Mapping[str, str | Path]) -> list[str]:
        """The command that runs the real carina-sharing on this node, with simulated libnvidia-ml.

        `settings` are its flags without dashes; those for the roots of host and driver are added.
        """
        return self._command("sharing", settings)

    def plugin_command(self, settings: Mapping[str, str | Path]) -> list[str]:
        """The command that runs the real kubelet plugin on this node, with simulated libnvidia-ml.

        `settings` are its flags without dashes; those for the roots of host and driver are added.
        """
        return self._command("kubelet_plugin", settings)

    def _command(self, module: str, settings: Mapping[str, str | Path]) -> list[str]:
        roots = dict.fromkeys(("host-root", "driver-root", "host-driver-root"), self.root)
        flags = (
            part for name, value in {**roots, **settings}.items() for part in (f"--{name}", value)
        )
        simulated = ("-m", "simulation.nvml", "--node", self.directory)
        return list(map(str, (sys.executable, *simulated, "-m", module, *flags)))

    @property
    def hardware(self) -> Hardware:
        """The node's hardware."""
        return self._hardware

    @property
    def state(self) -> NodeState:
        """The node's current state."""
        return self._file.read()

    def processes_with_nvml(self) -> set[int]:
        """The IDs of the processes that have NVML open, so that the module cannot be unloaded."""
        return {
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdecimal() and self._is_open_in(process)
        }

    def _is_open_in(self, process: Path) -> bool:
        wanted = in_use_file(self.directory)
        try:
            return any(file.readlink() == wanted for file in (process / "fd").iterdir())
        except OSError:  # it has ended
            return False

    # --- GPUs come and go ---

    def lose_gpu(self, minor: int) -> None:
        """Makes the GPU fall off the bus: XID 79, and calls about it return GPU_IS_LOST."""
        self._check(minor)

        def fall(node: NodeState) -> NodeState:
            lost = node.with_gpu(minor, replace(node.gpus[minor], presence="lost"))
            xid = pynvml.nvmlEventTypeXidCriticalError
            return lost.with_event(minor, xid, _FALLEN_OFF_THE_BUS)

        self._file.update(fall, self._write_tree)

    def reset_gpu(self, minor: int) -> None:
        """Resets a GPU: a pending MIG mode becomes current.

        A lost one works again, and the driver is bound to it anew: it had to come back to the bus.
        """
        was_lost = self.state.gpus[minor].presence == "lost"

        def reset(gpu: GpuState) -> GpuState:
            presence = "attached" if gpu.presence == "lost" else gpu.presence
            health = replace(gpu.health, recovery_action=0, rows_pending=False)
            gpu = replace(gpu, presence=presence, processes=(), instances=(), health=health)
            return replace(gpu, mig_enabled=gpu.mig_pending)

        if was_lost:
            self.rebind(minor)
        self._change_gpu(minor, reset)

    def unplug(self, minor: int) -> None:
        """Removes the GPU; its instances and processes are gone."""
        self._change_gpu(minor, lambda gpu: GpuState(gpu.uuid, gpu.serial, presence="unplugged"))

    def plug(self, minor: int, *, replacement: str | None = None) -> None:
        """Inserts the slot's GPU, or another of the same product whose UUID follows from a name."""

        def plug(gpu: GpuState) -> GpuState:
            unique = gpu.uuid if replacement is None else gpu_uuid(replacement, minor)
            return GpuState(unique, gpu.serial)

        self._change_gpu(minor, plug)

    def set_health(self, minor: int, **health: Any) -> None:
        """Changes what NVML says of a GPU's health: members of `state.Health`."""
        self._change_gpu(minor, lambda gpu: replace(gpu, health=replace(gpu.health, **health)))

    def recovery_action(self, minor: int, action: int) -> None:
        """Has the driver ask for an action, with an event."""
        self.set_health(minor, recovery_action=action)
        self._event(minor, pynvml.nvmlEventTypeGpuRecoveryAction, action, WHOLE_GPU, WHOLE_GPU)

    def rebind(self, minor: int) -> None:
        """Binds the driver to a GPU again, as after a removal and rescan of its PCIe bus."""
        link = host_tree.binding(self.directory, self._hardware.slot(minor))
        fresh = link.with_suffix(".new")
        fresh.symlink_to(link.readlink())
        fresh.rename(link)

    def run_process(self, minor: int, pid: int, **what: Any) -> None:
        """Adds a process that uses the GPU, or changes it: members of `state.GpuProcess`."""
        process = GpuProcess(pid, **what)
        self._change_gpu(minor, lambda gpu: replace(gpu, processes=(*_others(gpu, pid), process)))

    def end_process(self, minor: int, pid: int) -> None:
        """Removes a process that uses the GPU."""
        self._change_gpu(minor, lambda gpu: replace(gpu, processes=_others(gpu, pid)))

    # --- events ---

    def xid(
        self,
        minor: int,
        number: int,
        *,
        gpu_instance: int = WHOLE_GPU,
        compute_instance: int = WHOLE_GPU,
    ) -> None:
        """Reports an XID error."""
        event_type = pynvml.nvmlEventTypeXidCriticalError
        self._event(minor, event_type, number, gpu_instance, compute_instance)

    def ecc_error(self, minor: int, *, double_bit: bool = True) -> None:
        """Reports an ECC error; double-bit errors are uncorrectable."""
        single, double = (
            pynvml.nvmlEventTypeSingleBitEccError,
            pynvml.nvmlEventTypeDoubleBitEccError,
        )
        self._event(minor, double if double_bit else single, 0, WHOLE_GPU, WHOLE_GPU)

    def _event(self, minor: int, event_type: int, data: int, instance: int, compute: int) -> None:
        self._check(minor)
        self._file.update(lambda node: node.with_event(minor, event_type, data, instance, compute))

    # --- the driver ---

    def driver(self, *, available: bool) -> None:
        """Loads or unloads the kernel module; the library stays installed."""
        self._set_driver("loaded" if available else "unloaded")

    def uninstall_driver(self) -> None:
        """Removes the driver with its library; `driver(available=True)` installs it again."""
        self._set_driver("not installed")

    def replace_driver(self, version: str) -> None:
        """Installs and loads another driver; libraries that are loaded no longer match it."""
        self._write_tree(
            self._file.update(lambda node: replace(node, driver_version=version, driver="loaded"))
        )

    def _set_driver(self, driver: DriverState) -> None:
        self._file.update(lambda node: replace(node, driver=driver), self._write_tree)

    def reboot(self) -> None:
        """Reboots: MIG instances and files in /run are lost, and lost GPUs work again."""

        def boot(gpu: GpuState, *, keeps_mode: bool) -> GpuState:
            return GpuState(
                gpu.uuid,
                gpu.serial,
                presence="attached" if gpu.presence == "lost" else gpu.presence,
                mig_enabled=gpu.mig_pending and keeps_mode,
                mig_pending=gpu.mig_pending and keeps_mode,
                health=replace(gpu.health, recovery_action=0, rows_pending=False),
            )

        def change(node: NodeState) -> NodeState:
            # Only Ampere keeps its MIG mode (MIG User Guide, "Enable MIG Mode").
            gpus = {
                minor: boot(
                    gpu, keeps_mode=not self._hardware.model(minor).changes_mig_mode_at_once
                )
                for minor, gpu in node.gpus.items()
            }
            boot_id = str(uuid.uuid5(_NAMESPACE, f"after {node.boot_id}"))
            return replace(node, gpus=gpus, boot_id=boot_id, events=())

        host_tree.wipe_run(self.directory)
        self._file.update(change, self._write_tree)

    def time_slices(self) -> dict[str, int]:
        """The numbers of the intervals that nvidia-smi was told to set, by the GPU's UUID."""
        folder = self.root / host_tree.TIME_SLICES
        files = folder.iterdir() if folder.is_dir() else ()
        return {file.name: int(file.read_text()) for file in files}

    def memory_limits(self, minor: int) -> dict[str, int]:
        """The hard limits of cgroups on a GPU in bytes, by path; without cgroups that are gone."""
        limits = self.state.gpus[minor].memory_limits
        return {limit.cgroup: limit.hard for limit in limits if _inode(limit.cgroup) == limit.inode}

    def mps_commands(self) -> list[dict[str, Any]]:
        """What MPS daemons were told, in this order."""
        file = self.root / mps_control.COMMANDS
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def limit_memory(self, *, by_cgroup: bool) -> None:
        """Has the driver, if it is of r615 or later, limit the memory of cgroups or not."""
        self._file.update(lambda node: replace(node, memory_limits_by_cgroup=by_cgroup))

    def hold_limits_at(self, limit: int | None) -> None:
        """Has NVML say this hard limit for each cgroup, whatever is set; None: what is set."""
        self._file.update(lambda node: replace(node, held_limit=limit))

    # --- faults ---

    def fail_nvidia_smi(self, words: str | None) -> None:
        """Makes `nvidia-smi compute-policy` fail with these words; with None, succeed again."""
        file = self.root / host_tree.SMI_FAULT
        if words is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"{words}\n")

    def fail_mps(self, claim: str = "*", **faults: Any) -> None:
        """Makes the MPS daemon of a claim by its UID, or all others, fail, or succeed again.

        The faults are those of `simulation.nvml.mps_control`.
        """
        file = self.root / mps_control.FAULTS
        known = json.loads(file.read_bytes()) if file.exists() else {}
        new = file.with_suffix(".new")
        new.write_text(json.dumps({**known, claim: faults}))
        new.replace(file)

    def fail(
        self, symbol: str, code: int, *, times: int | None = None, minor: int | None = None
    ) -> None:
        """Makes an NVML function return a code, `times` times or always, on one GPU or all."""
        fault = Fault(symbol, code, minor, times)
        self._file.update(lambda node: replace(node, faults=(*node.faults, fault)))

    def heal(self) -> None:
        """Removes all faults, hangs and removed symbols."""
        self._file.update(
            lambda node: replace(node, faults=(), hanging=frozenset(), missing=frozenset())
        )

    def hang(self, symbol: str) -> None:
        """Makes calls of an NVML function hang until it is released."""
        self._file.update(lambda node: replace(node, hanging=node.hanging | {symbol}))

    def release(self, symbol: str) -> None:
        """Lets hanging calls return."""
        self._file.update(lambda node: replace(node, hanging=node.hanging - {symbol}))

    def remove_symbol(self, symbol: str) -> None:
        """Removes a function from the library, as if the driver were too old to have it."""
        self._file.update(lambda node: replace(node, missing=node.missing | {symbol}))

    def make_vgpu(self, minor: int) -> None:
        """Makes the GPU a vGPU, as a guest of a hypervisor sees it."""
        vgpu = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
        self._change_gpu(minor, lambda gpu: replace(gpu, virtualization=vgpu))

    def give_mig_device_handles(self) -> None:
        """Has the info of a compute instance name its MIG device, and not the GPU."""
        self._file.update(lambda node: replace(node, compute_instance_device="mig device"))

    # --- inside ---

    def _change_gpu(self, minor: int, change: Callable[[GpuState], GpuState]) -> None:
        self._check(minor)
        self._file.update(
            lambda node: node.with_gpu(minor, change(node.gpus[minor])), self._write_tree
        )

    def _check(self, minor: int) -> None:
        self._hardware.slot(minor)

    def _write_tree(self, state: NodeState) -> None:
        host_tree.write(self.directory, self._hardware, state, self._nodes)


def _others(gpu: GpuState, pid: int) -> tuple[GpuProcess, ...]:
    return tuple(process for process in gpu.processes if process.pid != pid)


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def gpu_uuid(name: str, minor: int) -> str:
    """The UUID of a node's GPU."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{name}/gpu/{minor}')}"
