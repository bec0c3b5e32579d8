"""Reads a node's GPUs through NVML.

The library is whatever `libnvidia-ml.so.1` the node has, old and incomplete ones included. So a
function that it lacks, or answers "not supported", costs the attribute that it feeds and nothing
else; any other failure costs the one GPU it happened on, which is then lost or unreadable. Only
when NVML as a whole does not answer is there no inventory.

A session stays open between reads: opening one wakes every GPU that has no persistence daemon. It
is opened anew when the kernel driver's list of GPUs changes, because NVML sees GPUs that come and
go only then.
"""

import ctypes
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

import pynvml

from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory import nvlink
from kubelet_plugin.inventory.gpu import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Gpu,
    Inventory,
    LostGpu,
    Mig,
    MigDisabled,
    MigEnabled,
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigUnsupported,
    NvmlFailure,
    UnknownGpu,
    UnreadableGpu,
)
from kubelet_plugin.nvml.library import NvmlCallError, NvmlLibrary, call
from kubelet_plugin.nvml.names import ADDRESSING_MODES, ARCHITECTURES, BRANDS, mig_profile_name
from kubelet_plugin.rooted_path import RootedPath

__all__ = ["NvmlSession"]

_log = logging.getLogger(__name__)

# An old driver may know a function and not the version of the structure it is asked to fill.
_LACKING = frozenset(
    {
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_NOT_SUPPORTED",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    }
)
# Of links and profiles that a GPU does not have, drivers say one or the other.
_NO_SUCH = _LACKING | {"NVML_ERROR_INVALID_ARGUMENT"}
_LOST = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_GPU_NOT_FOUND"})

_HOPPER = 9
_UNSEEN_SWITCH = "unseen"
_FABRIC_JOINED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED


@dataclass(frozen=True, slots=True)
class _Driver:
    version: str | None
    cuda_version: tuple[int, int] | None


_Reading: TypeAlias = tuple[Gpu, nvlink.Links]


class NvmlSession:
    """One process's view of the node's GPUs, read again and again. For one thread at a time.

    `libraries` are candidates below a driver root, tried in order; without any that exists the
    loader's own `libnvidia-ml.so.1` is taken.
    """

    def __init__(self, host: HostPaths, libraries: Sequence[RootedPath] = ()) -> None:
        self._host = host
        self._library = NvmlLibrary(libraries)
        self._open = False
        self._addresses: frozenset[str] | None = None
        self._layouts: dict[str, MigLayout] = {}
        self._missed: set[str] = set()

    def read(self, previous: Inventory | None = None) -> Inventory:
        """Observes the node once.

        `previous` is what the last read gave: GPUs of it that no longer answer are told as lost or
        unreadable for as long as NVML knows their PCI address, and dropped when it does not.
        Blocks for as long as the driver does, which may be for ever.
        """
        known = _known(previous)
        try:
            return self._observe(known)
        except NvmlCallError:
            self.close()  # the driver may have been reloaded under an open session
        try:
            return self._observe(known)
        except NvmlCallError as error:
            self.close()
            return self._without_driver(error.failure)

    def close(self) -> None:
        """Ends the session; the next read opens another."""
        if not self._open:
            return
        self._open = False
        self._layouts.clear()
        try:
            call("nvmlShutdown")
        except NvmlCallError as error:
            _log.warning("NVML did not shut down", extra={"failure": str(error.failure)})

    def _without_driver(
        self, failure: NvmlFailure
    ) -> DriverMissing | DriverUnusable | DriverReplaced:
        match failure.code:
            case "NVML_ERROR_LIB_RM_VERSION_MISMATCH" if self._library.replacement is not None:
                return DriverReplaced(str(self._library.replacement))
            case "NVML_ERROR_LIBRARY_NOT_FOUND":
                return DriverMissing(
                    f"no NVIDIA driver is installed: libnvidia-ml.so.1 is not found "
                    f"{self._library.places}"
                )
            case "NVML_ERROR_DRIVER_NOT_LOADED":
                return DriverMissing("the NVIDIA kernel module is not loaded")
            case _:
                return DriverUnusable(failure)

    def _observe(self, known: Mapping[str, Gpu]) -> DriverReady:
        self._ensure_open()
        driver = self._read_driver()
        readings, failed = self._enumerate(driver)
        anonymous = [gpu for uuid, gpu in failed if uuid is None]
        strangers = [gpu for uuid, gpu in failed if uuid is not None and uuid not in known]
        silent: list[LostGpu | UnreadableGpu] = []
        for gpu in [gpu for uuid, gpu in known.items() if uuid not in readings]:
            try:
                readings |= self._find(gpu, driver)
            except NvmlCallError as error:
                if error.failure.code == "NVML_ERROR_NOT_FOUND":
                    continue  # unplugged
                kind = LostGpu if error.failure.code in _LOST else UnreadableGpu
                silent.append(kind(gpu, error.failure))
            if all(uuid != gpu.uuid for uuid, _ in failed):
                del anonymous[:1]  # NVML listed this GPU and could not say which it was
        return _ready(readings.values(), silent, [*anonymous, *strangers])

    def _ensure_open(self) -> None:
        addresses = self._host.gpu_addresses()
        # Where the kernel's list cannot be seen, only a new session tells of changes.
        if self._open and (addresses is None or addresses != self._addresses):
            self.close()
        if not self._open:
            self._library.load()
            call("nvmlInit")
            self._open = True
        self._addresses = addresses

    def _enumerate(
        self, driver: _Driver
    ) -> tuple[dict[str, _Reading], list[tuple[str | None, UnknownGpu]]]:
        """The GPUs that can be read, by UUID, and those that cannot, with the UUID if it was."""
        readings: dict[str, _Reading] = {}
        failed: list[tuple[str | None, UnknownGpu]] = []
        for index in range(call("nvmlDeviceGetCount")):
            uuid = None
            try:
                handle = call("nvmlDeviceGetHandleByIndex", index)
                uuid = call("nvmlDeviceGetUUID", handle)
                readings[uuid] = self._read_gpu(handle, uuid, driver)
            except NvmlCallError as error:
                failed.append((uuid, UnknownGpu(index, error.failure)))
        return readings, failed

    def _find(self, gpu: Gpu, driver: _Driver) -> dict[str, _Reading]:
        """Reads a GPU by its address when reading it by its index failed."""
        handle = call("nvmlDeviceGetHandleByPciBusId", gpu.pci_bus_id)
        uuid = call("nvmlDeviceGetUUID", handle)
        return {uuid: self._read_gpu(handle, uuid, driver)}

    def _read_driver(self) -> _Driver:
        cuda = self._optional("nvmlSystemGetCudaDriverVersion_v2")
        return _Driver(
            version=self._optional("nvmlSystemGetDriverVersion"),
            cuda_version=(cuda // 1000, cuda % 1000 // 10) if cuda is not None else None,
        )

    def _read_gpu(self, handle: object, uuid: str, driver: _Driver) -> _Reading:
        address = _address(call("nvmlDeviceGetPciInfo", handle))
        architecture = self._optional("nvmlDeviceGetArchitecture", handle)
        memory = self._optional("nvmlDeviceGetMemoryInfo", handle)
        gpu = Gpu(
            minor=call("nvmlDeviceGetMinorNumber", handle),
            uuid=uuid,
            pci_bus_id=address,
            product_name=self._optional("nvmlDeviceGetName", handle),
            brand=BRANDS.get(self._optional("nvmlDeviceGetBrand", handle)),
            architecture=ARCHITECTURES.get(architecture),
            cuda_compute_capability=self._optional("nvmlDeviceGetCudaComputeCapability", handle),
            memory_bytes=memory.total if memory is not None else None,
            driver_version=driver.version,
            cuda_driver_version=driver.cuda_version,
            addressing_mode=ADDRESSING_MODES.get(
                self._optional("nvmlDeviceGetAddressingMode", handle)
            ),
            numa_node=self._host.numa_node(address),
            pcie_root=self._host.pcie_root(address),
            nvlink=None,
            mig=self._read_mig(handle, uuid, architecture),
        )
        return gpu, self._read_links(handle)

    def _optional(self, function: str, *arguments: object) -> Any:
        """What a function answers; None where the driver has no answer to give."""
        try:
            return call(function, *arguments)
        except NvmlCallError as error:
            if error.failure.code not in _LACKING:
                raise
            if function not in self._missed:
                self._missed.add(function)
                _log.info(
                    "the driver does not tell everything", extra={"missing": str(error.failure)}
                )
            return None

    def _read_links(self, handle: object) -> nvlink.Links:
        gpus: set[str] = set()
        switches: set[str] = set()
        untold: set[str] = set()
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                active = call("nvmlDeviceGetNvLinkState", handle, link)
            except NvmlCallError as error:
                if error.failure.code not in _NO_SUCH:
                    raise
                continue
            if not active:
                continue
            remote = self._optional("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            if remote is None:
                switches.add(_UNSEEN_SWITCH)
                continue
            match self._optional("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link):
                case pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                    gpus.add(_address(remote))
                case pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                    switches.add(_address(remote))
                case pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
                    pass  # a link to the processor joins no GPUs
                case _:
                    untold.add(_address(remote))
        return nvlink.Links(
            gpus=frozenset(gpus),
            switches=frozenset(switches),
            untold=frozenset(untold),
            fabric=self._read_fabric(handle),
        )

    def _read_fabric(self, handle: object) -> str | None:
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        if self._optional("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is None:
            return None
        cluster = UUID(bytes=bytes(info.clusterUuid))
        # A single HGX board joins its fabric without a cluster: all zeros, nothing to tell apart.
        if info.state != _FABRIC_JOINED or info.status != pynvml.NVML_SUCCESS or not cluster.int:
            return None
        return f"{cluster}.{info.cliqueId}"

    def _read_mig(self, handle: object, uuid: str, architecture: int | None) -> Mig:
        modes = self._optional("nvmlDeviceGetMigMode", handle)
        if modes is None:
            return MigUnsupported()
        current, _pending = modes
        if uuid not in self._layouts:
            self._layouts[uuid] = self._read_layout(handle)
        layout = self._layouts[uuid]
        # NVML user guide, nvmlDeviceSetMigMode: a reset is needed on Ampere and not after it.
        at_once = architecture is not None and architecture >= _HOPPER
        kind = MigEnabled if current == pynvml.NVML_DEVICE_MIG_ENABLE else MigDisabled
        return kind(layout=layout, toggles_without_reset=at_once)

    def _read_layout(self, handle: object) -> MigLayout:
        profiles = []
        for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = _profile_info(handle, index)
            if info is not None:
                profiles.append(self._read_profile(handle, index, info))
        return MigLayout(profiles=tuple(sorted(profiles, key=lambda profile: profile.id)))

    def _read_profile(self, handle: object, index: int, info: Any) -> MigProfile:
        if hasattr(info, "name"):
            name = str(info.name).removeprefix("MIG ")
        else:
            memory = self._optional("nvmlDeviceGetMemoryInfo", handle)
            total = memory.total if memory is not None else 0
            name = mig_profile_name(index, info.sliceCount, info.memorySizeMB, total)
        return MigProfile(
            name=name,
            id=info.id,
            index=index,
            slices=info.sliceCount,
            max_instances=info.instanceCount,
            resources=MigResources(
                multiprocessors=info.multiprocessorCount,
                copy_engines=info.copyEngineCount,
                decoders=info.decoderCount,
                encoders=info.encoderCount,
                jpeg_engines=info.jpegCount,
                ofa_engines=info.ofaCount,
                memory_mib=info.memorySizeMB,
            ),
            placements=self._read_placements(handle, info.id),
        )

    def _read_placements(self, handle: object, profile_id: int) -> tuple[MigPlacement, ...]:
        function = "nvmlDeviceGetGpuInstancePossiblePlacements"
        count = ctypes.c_uint()
        if self._optional(function, handle, profile_id, None, ctypes.byref(count)) is None:
            return ()
        placements = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        call(function, handle, profile_id, placements, ctypes.byref(count))
        return tuple(sorted(MigPlacement(each.start, each.size) for each in placements))


def _known(previous: Inventory | None) -> dict[str, Gpu]:
    """GPUs that were seen, by UUID, those included that no longer answered last time."""
    match previous:
        case DriverReady(gpus, lost, unreadable):
            silent = [each.gpu for each in lost] + [each.gpu for each in unreadable]
            return {gpu.uuid: gpu for gpu in (*gpus, *silent)}
        case DriverMissing() | DriverUnusable() | DriverReplaced() | None:
            return {}


def _ready(
    readings: Collection[_Reading],
    silent: Sequence[LostGpu | UnreadableGpu],
    unknown: Sequence[UnknownGpu],
) -> DriverReady:
    gpus = sorted((gpu for gpu, _ in readings), key=lambda gpu: gpu.minor)
    links = {gpu.pci_bus_id: links for gpu, links in readings}
    places = nvlink.place(links, gpus, [each.gpu for each in silent])
    silent = sorted(silent, key=lambda each: each.gpu.minor)
    return DriverReady(
        gpus=tuple(replace(gpu, nvlink=places.get(gpu.minor)) for gpu in gpus),
        lost=tuple(each for each in silent if isinstance(each, LostGpu)),
        unreadable=tuple(each for each in silent if isinstance(each, UnreadableGpu)),
        unknown=tuple(sorted(unknown, key=lambda each: each.index)),
    )


def _address(info: Any) -> str:
    """An NVML PCI address as the kernel writes it; NVML knows function 0 only."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _profile_info(handle: object, index: int) -> Any:
    """A GPU instance profile in the newest form that the driver has; None if there is no such."""
    for version in (2, 1):
        try:
            return call("nvmlDeviceGetGpuInstanceProfileInfo", handle, index, version)
        except NvmlCallError as error:
            if error.failure.code == "NVML_ERROR_FUNCTION_NOT_FOUND":
                continue
            if error.failure.code in _NO_SUCH:
                return None
            raise
    return None
