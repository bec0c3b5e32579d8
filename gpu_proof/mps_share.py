"""A share with an MPS daemon, as a container has it: the pipes and /dev/shm of its daemon."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from carina_dra.sharing.files import MPS, MPS_PIPES, MPS_SHM
from carina_dra.sharing.message import MpsDaemon, MpsDevice, Reference, SharingReport, WantedDaemon
from gpu_proof import own_cgroups
from gpu_proof.bench import Bench
from gpu_proof.client import CudaClient
from gpu_proof.sharing_process import SharingProcess


@dataclass(frozen=True, slots=True)
class MpsShare:
    """A share of the GPU with a daemon of its own."""

    bench: Bench
    sharing: SharingProcess
    wanted: WantedDaemon

    @property
    def limit(self) -> int:
        """The memory that each process can have, in bytes."""
        return (self.wanted.devices[0].memory_mib or 0) * 2**20

    @contextmanager
    def client(self, **environment: str) -> Iterator[CudaClient]:
        """Starts a process with this share."""
        folder = self.sharing.folder / MPS / self.wanted.claim.uid
        pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / MPS_PIPES)}
        with self.bench.client(shm=folder / MPS_SHM, environment=pipes | environment) as client:
            yield client

    @property
    def cgroup(self) -> Path:
        """That of the daemon and its servers, which carina-sharing has made."""
        assert self.bench.place.cgroup_root is not None  # noqa: S101 - the part needs cgroups
        return daemons_cgroup(self.bench.place.cgroup_root, self.bench.place.driver_name) / (
            self.wanted.claim.uid
        )

    def servers(self) -> list[int]:
        """Returns the PIDs of the daemon and its servers."""
        return own_cgroups.pids(self.cgroup)

    def daemon(self, report: SharingReport) -> MpsDaemon | None:
        """Returns how it is with the daemon, if the report has it as it is wanted."""
        return next((known for known in report.daemons if known.wanted == self.wanted), None)

    def is_ready(self, report: SharingReport, restarts: int = 0) -> bool:
        """Whether it is ready, and was started again at least this many times."""
        daemon = self.daemon(report)
        return daemon is not None and daemon.state == "ready" and daemon.restarts >= restarts


def daemons_cgroup(root: Path, driver_name: str) -> Path:
    """Returns the cgroup of all daemons of a driver, below the root of the hierarchy."""
    return root / f"carina-mps.{driver_name}"


def mps_share(
    bench: Bench, sharing: SharingProcess, name: str, memory_mib: int, threads: int
) -> MpsShare:
    """Returns a share. Its daemon has to be wanted yet."""
    claim = Reference(namespace="gpu-proof", name=name, uid=name)
    device = MpsDevice(uuid=bench.gpu.uuid, memory_mib=memory_mib)
    wanted = WantedDaemon(claim=claim, devices=(device,), thread_percentage=threads)
    return MpsShare(bench, sharing, wanted)
