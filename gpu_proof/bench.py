"""What a part works with: a GPU, processes that use it, and the product's own code beside it."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.process.node_settings import NodeProcessSettings
from gpu_proof import client, own_cgroups, sharing_process
from gpu_proof.client import ClientError, CudaClient
from gpu_proof.finding import ProofStatement, ProofVerdict, judged
from gpu_proof.sharing_process import SharingError, SharingProcess
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.nvml.mig_instance import handle_of
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.nvml.usage import UsageReader
from sharing.cgroup import KubepodsFolder
from sharing.observation import Seen, Unseen
from sharing.processes import GpuProcesses, ProcessTable
from sharing.use import GpuProcess

MIB: Final = 2**20
_LEAST_SHARE_MIB: Final = 2048
_MOST_SHARE_MIB: Final = 4096
_POLL: Final = 0.01
_ENDED_WITHIN: Final = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProofPlace:
    """Where a proof runs."""

    module: tuple[str, ...]
    """The command that runs a Python module, without its name."""
    folder: Path
    """Of its own, which is removed at the end."""
    driver_name: str
    """Of the carina-sharing that is started, which no other one on the machine has."""
    host_root: Path
    driver_root: Path | None
    cgroup_root: Path | None
    """Where cgroup v2 is mounted."""
    cgroup: Path | None
    """The one of this proof; None if none can be made."""
    gpu: str | None
    """UUID of the GPU; None for the first."""

    @property
    def library(self) -> NvmlLibrary:
        """NVML, found and loaded as the product does."""
        roots = {} if self.driver_root is None else {"driver_root": self.driver_root}
        settings = NodeProcessSettings.model_validate(
            {"host_root": self.host_root, "host_driver_root": self.driver_root, **roots}
        )
        search = DriverSearch(settings.driver_locations)
        host = HostPaths(self.host_root)
        return NvmlLibrary(host.gpu_addresses, search.nvml_libraries, below=search.roots)

    def reader(self, library: NvmlLibrary) -> NvmlReader:
        """Returns the reader of the kubelet plugin."""
        return NvmlReader(HostPaths(self.host_root), library, cgroup_root=self.cgroup_root)


class Bench:
    """A GPU to prove something on."""

    def __init__(self, place: ProofPlace, library: NvmlLibrary, observed: ObservedGpu) -> None:
        self.place = place
        self.library = library
        self.gpu = observed.gpu
        self.state = observed.state

    @property
    def share_mib(self) -> int:
        """The memory of a share in a part: an eighth of the GPU, 2 to 4 GiB."""
        eighth = (self.gpu.memory_bytes or 0) // MIB // 8
        return min(max(eighth, _LEAST_SHARE_MIB), _MOST_SHARE_MIB)

    @contextmanager
    def client(
        self,
        *,
        cgroups: tuple[Path, ...] = (),
        shm: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Iterator[CudaClient]:
        """Starts a process that uses the GPU, and ends it after the block."""
        chosen = environment or {"CUDA_VISIBLE_DEVICES": self.gpu.uuid}
        with client.started(
            self.place.module, cgroups=cgroups, shm=shm, environment=chosen
        ) as process:
            yield process

    @contextmanager
    def pod(self) -> Iterator[tuple[str, Path]]:
        """Makes the cgroup of a pod, and removes it after the block; gives the pod's UID, too."""
        assert self.place.cgroup is not None  # noqa: S101 - the part needs cgroups
        uid = str(uuid.uuid4())
        cgroup = own_cgroups.make_pod(self.place.cgroup, uid)
        try:
            yield uid, cgroup
        finally:
            own_cgroups.remove(cgroup, _ENDED_WITHIN)

    @contextmanager
    def sharing(self, **settings: object) -> Iterator[SharingProcess]:
        """Runs carina-sharing.

        Raises:
            SharingError: it does not start.
        """
        flags: dict[str, object] = {
            "host-root": self.place.host_root,
            "kubepods": self._kubepods().path,
            **settings,
        }
        if self.place.driver_root is not None:
            flags |= dict.fromkeys(("driver-root", "host-driver-root"), self.place.driver_root)
        with sharing_process.running(
            self.place.module, self.place.folder, self.place.driver_name, flags
        ) as process:
            yield process

    def handle(self) -> object:
        """Returns NVML's handle of the GPU. Called within a lease."""
        return handle_of(self.gpu.uuid, self.gpu.pci_bus_id)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Returns the processes on the GPU, as carina-sharing sees them.

        Raises:
            SharingError: the driver does not say them.
        """
        reader = GpuProcesses(ProcessTable(Path("/proc"), (self._kubepods(),)))
        with self.library.lease() as session:
            sample = reader.read(self.gpu.uuid, session)
        match sample:
            case Seen(processes):
                return processes
            case Unseen(reason):
                raise SharingError(f"the processes of the GPU cannot be told: {reason}")

    def used_memory(self) -> int:
        """Returns the memory of the GPU that is used, as the plugin reads it, in bytes.

        Raises:
            SharingError: the driver does not say it.
        """
        usage = UsageReader(self.library).read([self.gpu], ()).get(self.gpu.uuid)
        if usage is None:
            raise SharingError("the driver does not say how much memory of the GPU is used")
        return usage.memory_used

    def process(self, pid: int, within: float = 5.0) -> GpuProcess | None:
        """Returns a process on the GPU; None if it is not listed within these seconds."""

        def look() -> GpuProcess | None:
            return next((process for process in self.processes() if process.pid == pid), None)

        return poll(look, within)

    def memory(self, pid: int) -> int:
        """Returns the memory of a process on the GPU, in bytes; 0 if it is not listed.

        Raises:
            SharingError: the driver does not say it.
        """
        found = self.process(pid)
        if found is None:
            return 0
        if found.memory is None:
            raise SharingError(f"the driver does not say how much memory PID {pid} has")
        return found.memory

    def _kubepods(self) -> KubepodsFolder:
        cgroup, root = self.place.cgroup, self.place.cgroup_root
        if cgroup is None or root is None:
            return KubepodsFolder("/kubepods")
        return KubepodsFolder(own_cgroups.pods_path(cgroup, root))


def poll(look: Callable[[], T | None], within: float) -> T | None:
    """Returns the first value that is not None; None if there is none within these seconds."""
    deadline = time.monotonic() + within
    while (found := look()) is None and time.monotonic() < deadline:
        time.sleep(_POLL)
    return found


def tried(statement: ProofStatement, attempt: Callable[[], tuple[bool, str]]) -> ProofVerdict:
    """Returns what came of an attempt: whether it holds, and what was measured.

    A call of CUDA that fails, and a process that does not do what was waited for, disprove it.
    """
    try:
        holds, measured = attempt()
    except (ClientError, SharingError) as error:
        return judged(statement, str(error), holds=False)
    return judged(statement, measured, holds=holds)
