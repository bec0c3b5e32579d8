"""Which process of a use is to be ended, from one sample to the next.

A use that is above its limit in two samples in a row loses the process that has the most memory.
Of several that have as much, it is the one that began last: it has lost the least work, and the
use was within its limit before it. The limit is that of `exceeded`, with its margin. A process of a
pod that is under MPS is ended if it computes outside of MPS in two samples in a row.

There is one at a time. While a process that was ended is still there, nothing of its use is
counted, because its memory is being freed; after it is gone, two more samples are needed.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from carina_dra.sharing.message import MpsDaemon, Reference, WantedShares
from sharing.exceeded import IN_A_ROW, limit_mib
from sharing.use import GivenUse, GpuProcess

FREEING: Final = 17
"""Samples, of about five seconds, in which the driver can free what an ended process had. It is not
waited for longer, since its parent decides when the process is gone."""

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
    """A process that was ended, and may still be there."""

    process: tuple[int, int]
    """Its identity."""
    freeing: int = 0
    """Samples since it has ended."""


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

    def unseen(self) -> "Violations":
        """What it is where there was no sample, or where the use has become another."""
        return Violations(awaited=self.awaited)


def violator(
    use: GivenUse,
    processes: Collection[GpuProcess],
    used_mib: int,
    under_mps: Collection[tuple[str, str]],
    before: Violations,
    now: float,
) -> tuple[Violator | None, Violations]:
    """Returns the process to be ended after a sample of a use, and what the sample leaves.

    `processes` are all of the GPU, `used_mib` what those of the use have of it, and `under_mps` the
    pods under MPS (`pods_under_mps`). `now` is in seconds since 1970.
    """
    if before.at is not None and 0 <= now - before.at < APART:
        return None, before
    pods = {pod.uid: pod for pod in use.pods}
    awaited = _still_there(before.awaited, processes)
    if awaited:
        return None, Violations(awaited=awaited, at=now)
    own = [process for process in processes if process.pod_uid in pods]
    outside = [
        process
        for process in own
        if process.outside_mps and (use.gpu, process.pod_uid) in under_mps
    ]
    after = Violations(
        above=before.above + 1 if used_mib > limit_mib(use.memory_mib) else 0,
        outside=frozenset(process.identity for process in outside),
        at=now,
    )
    why: ViolationKind = "memory"
    chosen = None
    if after.above >= IN_A_ROW:
        chosen = _largest(process for process in own if process.memory)
    if chosen is None:
        why = "mps"
        chosen = _largest(process for process in outside if process.identity in before.outside)
    if chosen is None or chosen.pod_uid is None:
        return None, after
    return Violator(use.identity, pods[chosen.pod_uid], chosen, why), after


def after_end(ended: Violator) -> Violations:
    """Returns what counts for the next sample when a process was ended."""
    return Violations(awaited=(Awaited(ended.process.identity),))


def joined(parts: Sequence[Violations]) -> Violations:
    """Returns what counts for a use that others have become: whom they wait for."""
    return Violations(awaited=tuple({found: None for part in parts for found in part.awaited}))


def pods_under_mps(
    wanted: WantedShares, daemons: Iterable[MpsDaemon]
) -> frozenset[tuple[str, str]]:
    """Returns the pods that can compute by MPS alone: the UUID of the GPU, and the UID of the pod.

    The daemons of all claims that the pod has on the GPU are ready, and have the memory of all
    shares of the claim: no process tells of which claim or share it is.
    """
    ready = {
        (daemon.wanted.claim.uid, device.uuid): device.memory_mib
        for daemon in daemons
        if daemon.state == "ready" and daemon.wanted in (wanted.daemons or ())
        for device in daemon.wanted.devices
    }
    under: set[tuple[str, str]] = set()
    beside: set[tuple[str, str]] = set()
    for share in wanted.shares:
        by_mps = ready.get((share.claim.uid, share.gpu)) == share.memory_mib
        found = under if by_mps else beside
        found.update((share.gpu, pod.uid) for pod in share.pods)
    return frozenset(under - beside)


def _still_there(
    awaited: Iterable[Awaited], processes: Iterable[GpuProcess]
) -> tuple[Awaited, ...]:
    """Those of any pod: with cgroup v1, a process that has ended is of no cgroup."""
    there = {process.identity: process for process in processes} if awaited else {}
    found = []
    for ended in awaited:
        process = there.get(ended.process)
        if process is None:
            continue
        if process.runs:
            found.append(replace(ended, freeing=0))
        elif ended.freeing < FREEING:
            found.append(replace(ended, freeing=ended.freeing + 1))
    return tuple(found)


def _largest(processes: Iterable[GpuProcess]) -> GpuProcess | None:
    """The process that runs and has the most memory; of several, the one that began last."""
    return max(
        (process for process in processes if process.runs),
        key=lambda process: (process.memory or 0, process.started, process.pid),
        default=None,
    )
