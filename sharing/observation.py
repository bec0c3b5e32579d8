"""From samples of all shared GPUs to a report, and what one sample leaves to the next."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from carina_dra.sharing.message import (
    ShareUse,
    SharingReport,
    Strangers,
    Unwatched,
    WantedShares,
)
from sharing.exceeded import Exceeded
from sharing.use import GivenUse, GpuProcess, given_uses, mib, used_by_pods


@dataclass(frozen=True, slots=True)
class Seen:
    """The processes of a GPU, those with the most memory first."""

    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True, slots=True)
class Unseen:
    """Why the processes of a GPU cannot be told."""

    reason: str


GpuSample: TypeAlias = Seen | Unseen


@dataclass(frozen=True, slots=True)
class UsePast:
    """What earlier samples have shown of a use."""

    exceeded: Exceeded = field(default_factory=Exceeded)
    idle_since: float | None = None


Past: TypeAlias = Mapping[tuple[str, tuple[str, ...]], UsePast]
"""By the identity of a use. A use whose claims have changed is another one, and begins again."""
NO_PAST: Past = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UseObservation:
    """What a sample shows."""

    report: SharingReport
    past: Past


def observe(
    wanted: WantedShares, samples: Mapping[str, GpuSample], past: Past, now: float
) -> UseObservation:
    """Returns what samples, by the UUID of the GPU, show of what is wanted.

    now: in seconds since 1970.
    """
    uses: list[ShareUse] = []
    unwatched: list[Unwatched] = []
    strangers: list[Strangers] = []
    present: dict[tuple[str, tuple[str, ...]], UsePast] = {}
    by_gpu: dict[str, list[GivenUse]] = {}
    for use in given_uses(wanted.shares):
        by_gpu.setdefault(use.gpu, []).append(use)
    for gpu, given in by_gpu.items():
        match samples.get(gpu, Unseen("it has not been looked at yet")):
            case Unseen(reason):
                unwatched.append(Unwatched(gpu=gpu, reason=reason))
                for use in given:
                    before = past.get(use.identity, UsePast())
                    present[use.identity] = UsePast(before.exceeded.unseen(), before.idle_since)
            case Seen(processes):
                for use in given:
                    before = past.get(use.identity, UsePast())
                    seen, present[use.identity] = _after(use, processes, before, now)
                    uses.append(seen)
                strangers += _strangers(gpu, given, processes)
    report = SharingReport(
        generation=wanted.generation,
        time=now,
        uses=tuple(uses),
        strangers=tuple(strangers),
        unwatched=tuple(unwatched),
    )
    return UseObservation(report, present)


def _after(
    use: GivenUse, processes: Collection[GpuProcess], before: UsePast, now: float
) -> tuple[ShareUse, UsePast]:
    pods = used_by_pods(use, processes)
    used = sum(pod.memory_mib for pod in pods)
    exceeded = before.exceeded.after(used, use.memory_mib, now)
    idle = all(pod.sm_percent == 0 for pod in pods)  # not known counts as not idle
    idle_since = (now if before.idle_since is None else before.idle_since) if idle else None
    seen = ShareUse(
        gpu=use.gpu,
        claims=use.claims,
        given_mib=use.memory_mib,
        given_cores=use.cores,
        used_mib=used,
        pods=pods,
        idle_since=idle_since,
        exceeded_since=exceeded.since,
        exceeded=exceeded.times,
    )
    return seen, UsePast(exceeded, idle_since)


def _strangers(
    gpu: str, given: Collection[GivenUse], processes: Collection[GpuProcess]
) -> list[Strangers]:
    known = {pod.uid for use in given for pod in use.pods}
    strange = [process for process in processes if process.pod_uid not in known]
    if not strange:
        return []
    memory = mib(sum(process.memory for process in strange))
    return [Strangers(gpu=gpu, processes=len(strange), memory_mib=memory)]
