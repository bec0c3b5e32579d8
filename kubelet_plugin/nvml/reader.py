"""Reads a node's GPUs through NVML.

The library is the node's own `libnvidia-ml.so.1`, which may be old or incomplete. If a function is
missing or fails, only its attribute is missing, or is as it was. Only calls that identify a GPU or
read its MIG state, and those that say that it is lost, cost the GPU. GPUs that were known stay
known while the driver as a whole fails.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import (
    NvmlCallError,
    NvmlLibrary,
    NvmlSession,
    call,
    optional_call,
)
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory import nvlink
from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.gpu import Gpu, GpuState, MigMode, ObservedGpu
from kubelet_plugin.inventory.health import (
    GpuLost,
    GpuProblem,
    GpuUnreadable,
    since,
    unanswered,
)
from kubelet_plugin.inventory.held_mode import HeldMode, Switch
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    UnknownGpu,
    known_gpus,
)
from kubelet_plugin.inventory.mig import (
    GpuInstance,
    MigLayout,
    MigSupport,
    MigSupported,
    MigUnsupported,
    as_it_is,
)
from kubelet_plugin.inventory.mig_intent import MigIntents
from kubelet_plugin.inventory.share_guard import UNGUARDED, ShareGuard
from kubelet_plugin.inventory.signals import Fabric, Signals
from kubelet_plugin.nvml.attributes import Attributes
from kubelet_plugin.nvml.instance_cache import InstanceCache
from kubelet_plugin.nvml.links import read_fabric, read_links
from kubelet_plugin.nvml.memory_limits import limits_memory
from kubelet_plugin.nvml.mig import read_layout
from kubelet_plugin.nvml.mig_instance import FINDING, read_instances
from kubelet_plugin.nvml.names import (
    ADDRESSING_MODES,
    ARCHITECTURES,
    BRANDS,
    COMPUTE_MODES,
    pci_address,
)
from kubelet_plugin.nvml.signals import read_signals

_LOST = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_GPU_NOT_FOUND"})

_HOPPER = 9
_NODE = ""
"""Stands for the driver, where a GPU is named."""


@dataclass(frozen=True, slots=True)
class _Driver:
    version: str | None
    cuda_version: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _GpuRead:
    """What NVML reports for one GPU."""

    gpu: Gpu
    mig_mode: MigMode
    instances: tuple[GpuInstance, ...]
    links: nvlink.Links
    held_mode: HeldMode | None
    repair_failed: str | None
    compute_mode: ComputeMode
    guard: ShareGuard
    signals: Signals
    binding: str


class NvmlReader:
    """Reads the node's GPUs repeatedly. Not thread-safe."""

    def __init__(
        self,
        host: HostPaths,
        library: NvmlLibrary,
        *,
        intents: Callable[[str], MigIntents | None] = lambda _: None,
        held_mode: Callable[[str], HeldMode | None] = lambda _: None,
        repair_failed: Callable[[int], str | None] = lambda _: None,
        guard: Callable[[str], ShareGuard] = lambda _: UNGUARDED,
        cgroup_root: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`intents` returns what Carina makes on the GPU with this UUID, and `held_mode` the switch
        of its MIG mode that NVML refused last. `repair_failed` returns, by minor number, why claims
        cannot be prepared, and `guard`, by UUID, what carina-sharing does for shares. Below
        `cgroup_root` it is tried whether the driver limits the memory of
        cgroups; without, it counts as if it does not.

        `now` returns the current time, for the time at which a problem is first seen; `clock` is in
        seconds, from any start.
        """
        self._host = host
        self._intents = intents
        self._held_mode = held_mode
        self._repair_failed = repair_failed
        self._guard = guard
        self._cgroup_root = cgroup_root
        self._now = now
        self._library = library
        self._session: NvmlSession | None = None
        self._layouts: dict[str, MigLayout] = {}
        """Layouts by UUID, as read in the session."""
        self._attributes = Attributes(clock)
        self._instances = InstanceCache(clock)

    def read(self, previous: Inventory | None = None) -> Inventory:
        """Reads the node's GPUs once.

        `previous` is the result of the last read. A GPU in it that no longer responds is reported
        as lost or unreadable. It is dropped only if neither NVML nor the kernel knows its address.

        Blocks as long as the driver does, possibly until the node is rebooted.

        Raises:
            NvmlBusyError: another thread's nvmlInit or nvmlShutdown does not return.
        """
        known = {observed.gpu.uuid: observed for observed in known_gpus(previous)}
        try:
            return self._observe_in_session(known)
        except NvmlCallError:
            pass  # the driver may have been reloaded during the session
        try:
            return self._observe_in_session(known)
        except NvmlCallError as error:
            return self._without_driver(error.failure, tuple(known.values()))

    def _observe_in_session(self, known: Mapping[str, ObservedGpu]) -> DriverReady:
        with self._library.lease() as session:
            if session is not self._session:
                self._session, self._layouts = session, {}
            self._attributes.begin(session)
            self._instances.begin(session)
            try:
                return self._observe(known)
            except NvmlCallError:
                self._library.discard(session)
                raise

    def _without_driver(
        self, failure: NvmlFailure, known: Sequence[ObservedGpu]
    ) -> DriverMissing | DriverUnusable | DriverReplaced | DriverReady:
        match failure.code:
            case "NVML_ERROR_LIB_RM_VERSION_MISMATCH" if self._library.replacement is not None:
                return DriverReplaced(str(self._library.replacement))
            case "NVML_ERROR_LIBRARY_NOT_FOUND":
                return DriverMissing(
                    f"no NVIDIA driver is installed: libnvidia-ml.so.1 was not found "
                    f"{self._library.places}"
                )
            case "NVML_ERROR_DRIVER_NOT_LOADED":
                return DriverMissing("the NVIDIA kernel module is not loaded")
            case "NVML_ERROR_LIB_RM_VERSION_MISMATCH":
                return DriverUnusable(failure)
            case _ if known:
                return _ready((), [self._with_problem(gpu, failure) for gpu in known], ())
            case _:
                return DriverUnusable(failure)

    def _observe(self, known: Mapping[str, ObservedGpu]) -> DriverReady:
        for uuid, observed in known.items():
            if unanswered(observed.state.problems):
                self._attributes.forget(uuid)
                self._instances.forget(uuid)
        driver = self._read_driver()
        reads, failed = self._enumerate(driver)
        unidentified = [gpu for uuid, gpu in failed if uuid is None]
        new_unreadable = [gpu for uuid, gpu in failed if uuid is not None and uuid not in known]
        unresponsive: list[ObservedGpu] = []
        for observed in [observed for uuid, observed in known.items() if uuid not in reads]:
            try:
                reads |= self._find(observed.gpu, driver)
            except NvmlCallError as error:
                if self._is_unplugged(observed.gpu, error.failure):
                    continue
                unresponsive.append(self._with_problem(observed, error.failure))
            if all(uuid != observed.gpu.uuid for uuid, _ in failed):
                del unidentified[:1]  # NVML listed this GPU, but did not identify it
        # After a reboot, another GPU may have the number of one that is lost, and so its names.
        taken = {read.gpu.minor for read in reads.values()}
        unresponsive = [observed for observed in unresponsive if observed.gpu.minor not in taken]
        return _ready(reads.values(), unresponsive, [*unidentified, *new_unreadable])

    def _is_unplugged(self, gpu: Gpu, failure: NvmlFailure) -> bool:
        """Returns whether NVML does not know the GPU's address, and neither does the kernel."""
        if failure.code != "NVML_ERROR_NOT_FOUND" or failure.function != FINDING:
            return False
        addresses = self._host.gpu_addresses()
        return addresses is None or gpu.pci_bus_id not in addresses

    def _with_problem(self, observed: ObservedGpu, failure: NvmlFailure) -> ObservedGpu:
        problem = since(_problem(failure, self._now()), observed.state.problems)
        return replace(observed, state=replace(observed.state, problems=frozenset({problem})))

    def _enumerate(
        self, driver: _Driver
    ) -> tuple[dict[str, _GpuRead], list[tuple[str | None, UnknownGpu]]]:
        """Returns the readable GPUs by UUID, and the others with their UUID if that is readable."""
        reads: dict[str, _GpuRead] = {}
        failed: list[tuple[str | None, UnknownGpu]] = []
        for index in range(call(pynvml.nvmlDeviceGetCount)):
            uuid = None
            try:
                handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = call(pynvml.nvmlDeviceGetUUID, handle)
                reads[uuid] = self._read_gpu(handle, uuid, driver)
            except NvmlCallError as error:
                failed.append((uuid, UnknownGpu(index, error.failure)))
        return reads, failed

    def _find(self, gpu: Gpu, driver: _Driver) -> dict[str, _GpuRead]:
        """Reads a GPU by its PCI address, after the read by index has failed."""
        handle = call(pynvml.nvmlDeviceGetHandleByPciBusId, gpu.pci_bus_id)
        uuid = call(pynvml.nvmlDeviceGetUUID, handle)
        return {uuid: self._read_gpu(handle, uuid, driver)}

    def _read_gpu(self, handle: object, uuid: str, driver: _Driver) -> _GpuRead:
        def constant(function: Callable[..., Any]) -> Any:
            read = partial(optional_call, function, handle)
            return self._attributes.constant(uuid, function.__name__, read)

        address = pci_address(call(pynvml.nvmlDeviceGetPciInfo, handle))
        architecture = constant(pynvml.nvmlDeviceGetArchitecture)
        memory = constant(pynvml.nvmlDeviceGetMemoryInfo)
        reserved = self._attributes.constant(
            uuid, "reserved memory", partial(optional_call, _reserved_memory, handle)
        )
        before = self._intents(uuid)
        modes = optional_call(pynvml.nvmlDeviceGetMigMode, handle)
        gpu = Gpu(
            minor=call(pynvml.nvmlDeviceGetMinorNumber, handle),
            uuid=uuid,
            pci_bus_id=address,
            product_name=constant(pynvml.nvmlDeviceGetName),
            brand=BRANDS.get(constant(pynvml.nvmlDeviceGetBrand)),
            architecture=ARCHITECTURES.get(architecture),
            cuda_compute_capability=constant(pynvml.nvmlDeviceGetCudaComputeCapability),
            memory_bytes=memory.total if memory is not None else None,
            driver_version=driver.version,
            cuda_driver_version=driver.cuda_version,
            addressing_mode=ADDRESSING_MODES.get(constant(pynvml.nvmlDeviceGetAddressingMode)),
            numa_node=self._host.numa_node(address),
            pcie_root=self._host.pcie_root(address),
            mig=self._read_mig_support(handle, uuid, architecture, modes),
            memory_reserved_bytes=reserved or 0,
            memory_limits=self._limits_memory(handle, uuid, modes),
        )
        instances = self._read_instances(handle, gpu, modes)
        virtualization = constant(pynvml.nvmlDeviceGetVirtualizationMode)
        if virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
            gpu = replace(gpu, mig=as_it_is(gpu.mig, instances))
        # What Carina made and removed meanwhile is in one of the two.
        recorded = [intents for intents in (before, self._intents(uuid)) if intents is not None]
        own = {site for intents in recorded for site in intents.instances.values()}
        others = tuple(instance for instance in instances if instance.site not in own)
        own_mode = any(intents.mode for intents in recorded) and not others
        links = self._attributes.seldom(uuid, "links", partial(read_links, handle))
        fabric, health = self._attributes.current(uuid, "fabric", partial(read_fabric, handle)) or (
            None,
            Fabric.ABSENT,
        )
        mode = _mig_mode(modes, own=own_mode)
        compute_mode = self._attributes.recent(
            uuid, "compute mode", partial(optional_call, pynvml.nvmlDeviceGetComputeMode, handle)
        )
        return _GpuRead(
            gpu,
            mig_mode=mode,
            instances=others,
            links=replace(links or nvlink.Links(), fabric=fabric),
            held_mode=_still_held(self._held_mode(uuid), mode),
            repair_failed=self._repair_failed(gpu.minor),
            compute_mode=COMPUTE_MODES.get(compute_mode, ComputeMode.DEFAULT),
            guard=self._guard(uuid),
            signals=read_signals(self._attributes, uuid, handle, health),
            binding=self._host.binding(address),
        )

    def _limits_memory(self, handle: object, uuid: str, modes: tuple[int, int] | None) -> bool:
        """Returns whether the driver limits cgroups, which it does not in MIG mode."""
        name = "memory limits"
        if self._cgroup_root is None:
            return False
        if _is_on(modes):
            return bool(self._attributes.last(uuid, name))
        tried = partial(limits_memory, handle, self._cgroup_root)
        return bool(self._attributes.constant(uuid, name, tried))

    def _read_driver(self) -> _Driver:
        def recent(function: Callable[..., Any]) -> Any:
            read = partial(optional_call, function)
            return self._attributes.recent(_NODE, function.__name__, read)

        cuda = recent(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return _Driver(
            version=recent(pynvml.nvmlSystemGetDriverVersion),
            cuda_version=(cuda // 1000, cuda % 1000 // 10) if cuda is not None else None,
        )

    def _read_instances(
        self, handle: object, gpu: Gpu, modes: tuple[int, int] | None
    ) -> tuple[GpuInstance, ...]:
        match gpu.mig:
            case MigSupported(layout) if _is_on(modes):
                shown = self._host.mig_instances(gpu.minor)
                read = partial(read_instances, handle, layout)
                return self._instances.instances(gpu.uuid, shown, read)
            case MigSupported() | MigUnsupported():
                self._instances.forget(gpu.uuid)
                return ()

    def _read_mig_support(
        self,
        handle: object,
        uuid: str,
        architecture: int | None,
        modes: tuple[int, int] | None,
    ) -> MigSupport:
        if modes is None:
            return MigUnsupported()
        if uuid not in self._layouts:
            self._layouts[uuid] = read_layout(handle)
        # NVML user guide, nvmlDeviceSetMigMode: Ampere needs a reset, later architectures do not.
        at_once = architecture is not None and architecture >= _HOPPER
        return MigSupported(self._layouts[uuid], toggles_without_reset=at_once)


def _problem(failure: NvmlFailure, now: datetime) -> GpuProblem:
    kind = GpuLost if failure.code in _LOST else GpuUnreadable
    return kind(failure, now)


def _reserved_memory(handle: object) -> int:
    """Returns what the driver reserves of a GPU's memory, in bytes, of which `total` is with it."""
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return int(memory.reserved)


def _mig_mode(modes: tuple[int, int] | None, *, own: bool) -> MigMode:
    """Returns the current mode. The second of the two modes is the one after a reset."""
    if not _is_on(modes):
        return MigMode.OFF
    return MigMode.ON_FOR_CLAIMS if own else MigMode.ON


def _still_held(held: HeldMode | None, mode: MigMode) -> HeldMode | None:
    """Returns the refused switch, unless an administrator has made it."""
    before = {Switch.ON: MigMode.OFF, Switch.OFF: MigMode.ON_FOR_CLAIMS}
    return held if held is not None and mode is before[held.switch] else None


def _is_on(modes: tuple[int, int] | None) -> bool:
    return modes is not None and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _ready(
    reads: Collection[_GpuRead],
    unresponsive: Sequence[ObservedGpu],
    unknown: Sequence[UnknownGpu],
) -> DriverReady:
    links = {read.gpu.pci_bus_id: read.links for read in reads}
    connections = nvlink.nvlinks(links, [read.gpu for read in reads], unresponsive)
    responsive = [
        ObservedGpu(
            read.gpu,
            GpuState(
                mig_mode=read.mig_mode,
                instances=read.instances,
                nvlink=connections.get(read.gpu.minor),
                held_mode=read.held_mode,
                repair_failed=read.repair_failed,
                compute_mode=read.compute_mode,
                guard=read.guard,
                signals=read.signals,
                binding=read.binding,
            ),
        )
        for read in reads
    ]
    return DriverReady(
        gpus=tuple(sorted((*responsive, *unresponsive), key=lambda observed: observed.gpu.minor)),
        unknown=tuple(sorted(unknown, key=lambda gpu: gpu.index)),
    )
