"""From samples of all shared GPUs to a report, and what one sample leaves to the next."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from carina_dra.sharing.message import (
    EndedProcess,
    ShareUse,
    SharingReport,
    Strangers,
    Unwatched,
    WantedShares,
)
from sharing.exceeded import Exceeded
from sharing.use import GivenUse, GpuProcess, given_uses, memory_mib, unmeasured, used_by_pods
from sharing.violators import (
    Violations,
    Violator,
    held,
    joined,
    pods_under_mps,
    violators,
)


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
    violations: Violations = field(default_factory=Violations)
    ended: int = 0
    last_ended: EndedProcess | None = None


Past: TypeAlias = Mapping[tuple[str, tuple[str, ...]], UsePast]
"""By the identity of a use."""
NO_PAST: Past = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UseObservation:
    """What a sample shows."""

    report: SharingReport
    past: Past
    violators: tuple[Violator, ...]
    """The processes to be ended."""
    held: tuple[GpuProcess, ...] = ()
    """Those that were ended before, and something keeps from it."""


def observe(
    wanted: WantedShares,
    samples: Mapping[str, GpuSample],
    past: Past,
    now: float,
) -> UseObservation:
    """Returns what samples, by the UUID of the GPU, show of what is wanted.

    now: in seconds since 1970.
    """
    uses: list[ShareUse] = []
    unwatched: list[Unwatched] = []
    strangers: list[Strangers] = []
    to_end: list[Violator] = []
    kept: list[GpuProcess] = []
    present: dict[tuple[str, tuple[str, ...]], UsePast] = {}
    by_gpu: dict[str, list[GivenUse]] = {}
    under_mps = pods_under_mps(wanted)
    for use in given_uses(wanted.shares):
        by_gpu.setdefault(use.gpu, []).append(use)
    for gpu, given in by_gpu.items():
        match samples.get(gpu, Unseen("it has not been looked at yet")):
            case Unseen(reason):
                unwatched.append(Unwatched(gpu=gpu, reason=reason))
                for use in given:
                    before = _before(use, past)
                    present[use.identity] = replace(
                        before,
                        exceeded=before.exceeded.unseen(),
                        violations=before.violations.begun_again(),
                    )
            case Seen(processes):
                for use in given:
                    found, after, seen = _after(use, processes, under_mps, _before(use, past), now)
                    present[use.identity] = after
                    uses.append(seen)
                    to_end += found
                    kept += held(processes, after.violations)
                strangers += _strangers(gpu, given, processes)
    report = SharingReport(
        generation=wanted.generation,
        time=now,
        uses=tuple(uses),
        strangers=tuple(strangers),
        unwatched=tuple(unwatched),
    )
    return UseObservation(report, present, tuple(to_end), tuple(kept))


def with_ended(seen: UseObservation, ended: Iterable[Violator]) -> UseObservation:
    """Returns the observation after some of its violators were ended."""
    past = dict(seen.past)
    for gone in ended:
        before = past[gone.use]
        past[gone.use] = replace(
            before,
            violations=before.violations.after_end(gone.process),
            ended=before.ended + 1,
            last_ended=EndedProcess(
                pod=gone.pod,
                container_id=gone.process.container_id,
                memory_mib=memory_mib([gone.process]),
                time=seen.report.time,
                why=gone.why,
            ),
        )
    uses = tuple(
        use.model_copy(update={"ended": own.ended, "last_ended": own.last_ended})
        for use in seen.report.uses
        for own in (past[use.gpu, use.claims],)
    )
    return UseObservation(seen.report.model_copy(update={"uses": uses}), past, ())


def _before(use: GivenUse, past: Past) -> UsePast:
    """What is known of a use, also if its claims have changed: counts never fall."""
    same = past.get(use.identity)
    if same is not None:
        return same
    parts = [
        before
        for (gpu, claims), before in past.items()
        if gpu == use.gpu and not set(claims).isdisjoint(use.claims)
    ]
    if not parts:
        return UsePast()
    idle = [part.idle_since for part in parts if part.idle_since is not None]
    last = [part.last_ended for part in parts if part.last_ended is not None]
    return UsePast(
        exceeded=Exceeded.joined([part.exceeded for part in parts]),
        idle_since=max(idle) if len(idle) == len(parts) else None,
        violations=joined([part.violations for part in parts]),
        ended=max(part.ended for part in parts),
        last_ended=max(last, key=lambda process: process.time, default=None),
    )


def _after(
    use: GivenUse,
    processes: Collection[GpuProcess],
    under_mps: Collection[tuple[str, str]],
    before: UsePast,
    now: float,
) -> tuple[tuple[Violator, ...], UsePast, ShareUse]:
    pods = used_by_pods(use, processes)
    used = sum(pod.memory_mib for pod in pods)
    found, violations = violators(use, processes, under_mps, before.violations, now)
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
        ended=before.ended,
        last_ended=before.last_ended,
    )
    after = replace(before, exceeded=exceeded, idle_since=idle_since, violations=violations)
    return found, after, seen


def _strangers(
    gpu: str, given: Collection[GivenUse], processes: Collection[GpuProcess]
) -> list[Strangers]:
    known = {pod.uid for use in given for pod in use.pods}
    strange = [process for process in processes if process.pod_uid not in known]
    if not strange:
        return []
    return [
        Strangers(
            gpu=gpu,
            processes=len(strange),
            memory_mib=memory_mib(strange),
            unmeasured=unmeasured(strange),
        )
    ]
