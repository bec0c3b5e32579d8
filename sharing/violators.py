"""Which processes of a use are to be ended, from one sample to the next.

A use that is above its limit in two samples in a row loses processes until it is within the limit,
those with the most memory first. Of several that have as much, it is the one that began last: it
has lost the least work, and the use was within its limit before it. The limit is that of
`exceeded`, with its margin. Processes of a pod that is under MPS are ended if they compute outside
of MPS in two samples in a row.

What a process has that has ended does not count while the driver frees it, so that no other is
ended for it. A process that the kernel does not let end keeps what it has, and counts again after a
while. So does what others keep of one that has ended: these are to be ended then.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from carina_dra.sharing.message import Reference, WantedShares
from sharing.exceeded import IN_A_ROW, limit_mib
from sharing.use import GivenUse, GpuProcess, mib

FREEING: Final = 17
"""Samples, of about five seconds, in which the driver can free what an ended process had. It is not
waited for longer, since its parent decides when the process is gone."""
STUCK: Final = 100
"""Samples, of about thirty seconds, in which a process ends that was sent the signal. In a call of
the kernel that does not return, it never does."""

APART: Final = 0.2
"""Seconds between two samples that count: what is wanted is sampled at once when it changes, and
that two samples are in a row would say little if they were taken at the same time."""

ViolationKind: TypeAlias = Literal["memory", "mps"]


@dataclass(frozen=True, slots=True)
class Violator:
    """A process that is to be ended."""

    use: tuple[str, tuple[str, ...]]
    """The identity of its use."""
    pod: Reference
    process: GpuProcess
    why: ViolationKind


@dataclass(frozen=True, slots=True)
class Awaited:
    """A process that was ended or has ended, and may still be listed."""

    process: tuple[int, int]
    """Its identity."""
    runs: bool = True
    """Whether it has not ended yet."""
    samples: int = 0
    """Since the signal was sent, or since it has ended."""

    @property
    def frees(self) -> bool:
        """Whether what it has is taken for memory that is being freed."""
        return self.samples <= (STUCK if self.runs else FREEING)


@dataclass(frozen=True, slots=True)
class Violations:
    """What the samples of a use have shown that counts for the next."""

    above: int = 0
    """Samples in a row above the limit."""
    outside: frozenset[tuple[int, int]] = frozenset()
    """The processes that computed outside of MPS in the last sample."""
    awaited: tuple[Awaited, ...] = ()
    at: float | None = None
    """When the last sample that counts was taken, in seconds since 1970."""

    def begun_again(self) -> "Violations":
        """What it is where there was no sample."""
        return Violations(awaited=self.awaited)

    def after_end(self, ended: GpuProcess) -> "Violations":
        """What it is when a process was ended, or those that keep what it had."""
        others = (awaited for awaited in self.awaited if awaited.process != ended.identity)
        return replace(self, awaited=(*others, Awaited(ended.identity, ended.runs)))


def violators(
    use: GivenUse,
    processes: Collection[GpuProcess],
    under_mps: Collection[tuple[str, str]],
    before: Violations,
    now: float,
) -> tuple[tuple[Violator, ...], Violations]:
    """Returns the processes to be ended after a sample of a use, and what the sample leaves.

    `processes` are all of the GPU, and `under_mps` the pods under MPS (`pods_under_mps`). `now` is
    in seconds since 1970.
    """
    if before.at is not None and 0 <= now - before.at < APART:
        return (), before
    pods = {pod.uid: pod for pod in use.pods}
    awaited = _still_there(before.awaited, processes, pods)
    freeing = {ended.process for ended in awaited if ended.frees}
    sent = {ended.process for ended in awaited}
    own = [
        process
        for process in processes
        if process.pod_uid in pods and process.identity not in freeing
    ]
    outside = {
        process.identity
        for process in own
        if process.outside_mps and (use.gpu, process.pod_uid) in under_mps
    }
    limit = limit_mib(use.memory_mib)
    left = sum(process.memory or 0 for process in own)
    after = Violations(
        above=before.above + 1 if mib(left) > limit else 0,
        outside=frozenset(outside),
        awaited=awaited,
        at=now,
    )
    chosen: dict[tuple[int, int], Violator] = {}

    def choose(process: GpuProcess, why: ViolationKind) -> None:
        if process.pod_uid is not None:
            pod = pods[process.pod_uid]
            chosen.setdefault(process.identity, Violator(use.identity, pod, process, why))

    can_be_ended = [process for process in own if process.runs and process.identity not in sent]
    if after.above >= IN_A_ROW:
        kept = (process for process in own if process.memory and not process.runs)
        for process in (
            *sorted(kept, key=_size)[-1:],
            *sorted(can_be_ended, key=_size, reverse=True),
        ):
            if mib(left) <= limit or not process.memory:
                break
            choose(process, "memory")
            left -= process.memory
            if not process.runs:
                after = after.after_end(process)
    for process in can_be_ended:
        if process.identity in after.outside & before.outside:
            choose(process, "mps")
    return tuple(chosen.values()), after


def held(processes: Iterable[GpuProcess], after: Violations) -> tuple[GpuProcess, ...]:
    """Returns the processes that were ended before a sample and run on, by what the sample leaves.

    A tracer may keep one from ending that was none of it before.
    """
    ended = {awaited.process for awaited in after.awaited if awaited.runs}
    return tuple(process for process in processes if process.runs and process.identity in ended)


def joined(parts: Sequence[Violations]) -> Violations:
    """Returns what counts for a use that others have become.

    A claim that comes or goes ends no row of samples: tenants make claims.
    """
    return Violations(
        above=max((part.above for part in parts), default=0),
        outside=frozenset[tuple[int, int]]().union(*(part.outside for part in parts)),
        awaited=tuple({found: None for part in parts for found in part.awaited}),
        at=max((part.at for part in parts if part.at is not None), default=None),
    )


def pods_under_mps(wanted: WantedShares) -> frozenset[tuple[str, str]]:
    """Returns the pods that can compute by MPS alone: the UUID of the GPU, and the UID of the pod.

    All claims that the pod has on the GPU have a daemon with the memory of all shares of the claim:
    no process tells of which claim or share it is. Whether a daemon is ready does not matter, since
    no container starts before it was, and a container can keep its daemon from being so later.
    """
    by_daemon = {
        (daemon.claim.uid, device.uuid): device.memory_mib
        for daemon in wanted.daemons or ()
        for device in daemon.devices
    }
    under: set[tuple[str, str]] = set()
    beside: set[tuple[str, str]] = set()
    for share in wanted.shares:
        by_mps = by_daemon.get((share.claim.uid, share.gpu)) == share.memory_mib
        found = under if by_mps else beside
        found.update((share.gpu, pod.uid) for pod in share.pods)
    return frozenset(under - beside)


def _still_there(
    awaited: Iterable[Awaited], processes: Iterable[GpuProcess], pods: Collection[str]
) -> tuple[Awaited, ...]:
    """Those that are listed, and others of the pods that have ended by themselves.

    The first can be of any pod: with cgroup v1, a process that has ended is of no cgroup.
    """
    known = {ended.process: ended for ended in awaited}
    found = []
    for process in processes:
        ended = known.get(process.identity)
        if ended is not None and process.runs == ended.runs:
            found.append(replace(ended, samples=ended.samples + 1))
        elif ended is not None or (not process.runs and process.pod_uid in pods):
            found.append(Awaited(process.identity, process.runs, 1))
    return tuple(found)


def _size(process: GpuProcess) -> tuple[int, int, int]:
    return process.memory or 0, process.started, process.pid
