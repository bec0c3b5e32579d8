"""What pods have of a GPU together, and what their processes use of it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from carina_dra.sharing.message import PodUse, Reference, WantedShare

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has memory of a GPU."""

    pid: int
    started: int
    """In clock ticks since the boot. With it, the PID is of this process alone."""
    runs: bool
    """False if it has ended, while the driver still lists it."""
    pod_uid: str | None
    """None if it is of no pod."""
    container_id: str | None
    memory: int | None
    """Bytes; None if the driver does not say."""
    sm_percent: int | None
    """Of the GPU's multiprocessors, over the last second; None if the driver does not say."""
    outside_mps: bool
    """Whether it computes and is no client of MPS; False if the driver lists no such clients."""

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process has since the boot."""
        return self.pid, self.started


@dataclass(frozen=True, slots=True)
class GivenUse:
    """What pods were given together of a GPU: claims that are connected by their pods."""

    gpu: str
    claims: tuple[str, ...]
    """UIDs, sorted."""
    pods: tuple[Reference, ...]
    """Sorted by UID."""
    memory_mib: int
    cores: int

    @property
    def identity(self) -> tuple[str, tuple[str, ...]]:
        """What stays the same as long as it is the same use."""
        return self.gpu, self.claims


def given_uses(shares: Iterable[WantedShare]) -> tuple[GivenUse, ...]:
    """Returns the uses that shares come to, sorted by GPU and claims.

    A claim that several pods share and a pod with several claims connect what they have.
    """
    by_gpu: dict[str, list[WantedShare]] = defaultdict(list)
    for share in shares:
        by_gpu[share.gpu].append(share)
    uses = [
        _given(gpu, together) for gpu, of_gpu in by_gpu.items() for together in _connected(of_gpu)
    ]
    return tuple(sorted(uses, key=lambda use: use.identity))


def used_by_pods(use: GivenUse, processes: Collection[GpuProcess]) -> tuple[PodUse, ...]:
    """Returns what the processes of each pod of a use have of its GPU.

    Memory is rounded up to whole MiB. A process that the driver says nothing of has not computed.
    """
    by_pod: Mapping[str, list[GpuProcess]] = {pod.uid: [] for pod in use.pods}
    for process in processes:
        if process.pod_uid is not None and process.pod_uid in by_pod:
            by_pod[process.pod_uid].append(process)
    return tuple(
        PodUse(
            pod=pod,
            memory_mib=memory_mib(by_pod[pod.uid]),
            sm_percent=_sm_percent(by_pod[pod.uid]),
            processes=len(by_pod[pod.uid]),
            unmeasured=unmeasured(by_pod[pod.uid]),
        )
        for pod in use.pods
    )


def memory_mib(processes: Iterable[GpuProcess]) -> int:
    """Returns what processes have together, in MiB, rounded up."""
    return mib(sum(process.memory or 0 for process in processes))


def unmeasured(processes: Iterable[GpuProcess]) -> int:
    """Returns of how many processes the driver does not say what they have."""
    return sum(process.memory is None for process in processes)


def mib(memory: int) -> int:
    """Returns bytes as MiB, rounded up."""
    return -(-memory // _MIB)


def _sm_percent(processes: Collection[GpuProcess]) -> int | None:
    known = [process.sm_percent for process in processes if process.sm_percent is not None]
    if len(known) < len(processes):
        return None
    return min(sum(known), 100)


def _given(gpu: str, shares: Collection[WantedShare]) -> GivenUse:
    pods = {pod.uid: pod for share in shares for pod in share.pods}
    return GivenUse(
        gpu,
        tuple(sorted({share.claim.uid for share in shares})),
        tuple(pods[uid] for uid in sorted(pods)),
        sum(share.memory_mib for share in shares),
        sum(share.cores for share in shares),
    )


def _connected(shares: Collection[WantedShare]) -> Iterable[list[WantedShare]]:
    """The shares that have a claim or a pod in common, directly or by others."""
    by_name: dict[tuple[str, str], list[WantedShare]] = defaultdict(list)
    for share in shares:
        for name in _names(share):
            by_name[name].append(share)
    seen: set[tuple[str, str]] = set()
    for share in shares:
        together: dict[int, WantedShare] = {}
        pending = [name for name in _names(share) if name not in seen]
        seen.update(pending)
        while pending:
            for other in by_name[pending.pop()]:
                together[id(other)] = other
                fresh = [name for name in _names(other) if name not in seen]
                seen.update(fresh)
                pending += fresh
        if together:
            yield list(together.values())


def _names(share: WantedShare) -> list[tuple[str, str]]:
    return [("claim", share.claim.uid), *(("pod", pod.uid) for pod in share.pods)]
