"""The watchdog of carina-sharing: from the allocation that exceeds a share to the end."""

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from carina_dra.sharing.message import Reference, ShareUse, SharingReport, WantedShare
from gpu_proof.bench import MIB, Bench, poll, tried
from gpu_proof.client import ClientError
from gpu_proof.finding import ProofFinding, ProofStatement, judged, untried
from gpu_proof.need import Need
from gpu_proof.part import ProofPart
from gpu_proof.sharing_process import SharingProcess

_TRIALS: Final = 50
_LONGEST: Final = 10.0
"""Seconds after which a process counts as not ended."""
_PATIENCE: Final = 30.0
_LEFT_ALONE: Final = 5.0
_HALF: Final = 1.0
_MOST: Final = 2.0
"""Seconds in which half of the trials and 99 % of them have to end: about a second."""
_FREED: Final = 10.0
_TOO_MUCH_MIB: Final = 256
_TOLERATED: Final = 64 * MIB

WITHIN: Final = ProofStatement(
    "watchdog-within", "A process that keeps within its share for 5 s is not ended."
)
ENDED: Final = ProofStatement(
    "watchdog-ends", "Every process that exceeds its share is ended by SIGKILL."
)
LATENCY: Final = ProofStatement(
    "watchdog-latency",
    "Half of them are ended within a second of the allocation, and 99 % within two.",
)
FREED: Final = ProofStatement(
    "watchdog-frees", "The memory of an ended process is free again within 10 s."
)
NOTICED: Final = ProofStatement(
    "watchdog-notices", "A use that exceeds its share is reported within two seconds."
)
_KILLING: Final = (ENDED, LATENCY, FREED)
STATEMENTS: Final = (NOTICED, WITHIN, *_KILLING)


def _run(bench: Bench) -> Iterator[ProofFinding]:
    with bench.pod() as (uid, pod):
        with bench.sharing() as sharing:
            yield from _notices(bench, sharing, uid, pod)
        with bench.sharing(watchdog="kill") as sharing:
            _want(bench, sharing, uid)
            report = sharing.report(lambda _: True, within=_PATIENCE, what="anything")
            if report.offers.ends_violators:
                yield from _ends(bench, pod)
            else:
                reason = "carina-sharing does not offer to end violators here"
                yield from untried((WITHIN, *_KILLING), reason)


def _want(bench: Bench, sharing: SharingProcess, uid: str) -> None:
    share = WantedShare(
        claim=Reference(namespace="gpu-proof", name="share", uid=f"claim-{uid}"),
        gpu=bench.gpu.uuid,
        memory_mib=bench.share_mib,
        cores=10,
        pods=(Reference(namespace="gpu-proof", name="pod", uid=uid),),
    )
    sharing.want(shares=[share])


def _within(bench: Bench) -> int:
    """What a process of a share can allocate beside its context, in bytes."""
    return bench.share_mib // 2 * MIB


def _beyond(bench: Bench) -> int:
    """What it must not allocate then, in bytes."""
    return (bench.share_mib // 2 + _TOO_MUCH_MIB) * MIB


def _notices(bench: Bench, sharing: SharingProcess, uid: str, pod: Path) -> Iterator[ProofFinding]:
    def used(report: SharingReport) -> ShareUse | None:
        return next((use for use in report.uses if use.exceeded_since is not None), None)

    def attempt() -> tuple[bool, str]:
        _want(bench, sharing, uid)
        with bench.client(cgroups=(pod,)) as client:
            client.get("allocate", kind="cuMemAlloc", size=_within(bench))
            answer = client.call("allocate", kind="cuMemAlloc", size=_beyond(bench))
            report = sharing.report(used, within=_PATIENCE, what="that it has exceeded")
            took = time.monotonic() - answer.at
        use = used(report)
        seen = 0 if use is None else use.used_mib
        return took <= _MOST, f"after {took:.2f} s, with {seen} of {bench.share_mib} MiB"

    yield tried(NOTICED, attempt)


def _ends(bench: Bench, pod: Path) -> Iterator[ProofFinding]:
    with bench.client(cgroups=(pod,)) as client:
        client.get("allocate", kind="cuMemAlloc", size=_within(bench))
        status = client.wait(_LEFT_ALONE)
        yield judged(
            WITHIN, "it runs" if status is None else f"it ended: {status}", holds=not status
        )
    trials: list[_Trial] = []
    for _ in range(_TRIALS):
        trial = _trial(bench, pod)
        if isinstance(trial, str):
            yield judged(ENDED, f"after {len(trials)} trials: {trial}", holds=False)
            break
        trials.append(trial)
    else:
        yield judged(ENDED, f"{_TRIALS} of {_TRIALS}", holds=True)
    if not trials:
        return
    latencies = [trial.ended for trial in trials]
    half, most = quantile(latencies, 50), quantile(latencies, 99)
    yield judged(LATENCY, _table(latencies), holds=half <= _HALF and most <= _MOST)
    freed = [trial.freed for trial in trials if trial.freed is not None]
    if len(freed) < len(trials):
        yield judged(FREED, f"{len(freed)} of {len(trials)}", holds=False)
    else:
        yield judged(FREED, _table(freed), holds=True)


@dataclass(frozen=True, slots=True)
class _Trial:
    ended: float
    """Seconds from the allocation to the end of the process."""
    freed: float | None
    """Seconds from its end until its memory is free; None if it is not."""


def _trial(bench: Bench, pod: Path) -> _Trial | str:
    """A process exceeds its share; returns how it went, or why it did not end."""
    before = bench.used_memory()
    with bench.client(cgroups=(pod,)) as client:
        try:
            client.get("allocate", kind="cuMemAlloc", size=_within(bench))
            answer = client.call("allocate", kind="cuMemAlloc", size=_beyond(bench))
        except ClientError as error:
            return str(error)
        status = client.wait(_LONGEST)
        now = time.monotonic()
        if status != -signal.SIGKILL:
            return "not ended" if status is None else f"ended with {status}"
    gone = poll(lambda: bench.used_memory() <= before + _TOLERATED or None, _FREED)
    return _Trial(now - answer.at, None if gone is None else time.monotonic() - now)


def quantile(values: Sequence[float], percent: int) -> float:
    """Returns the least of the values that this percentage does not exceed (nearest rank)."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]


def _table(seconds: Sequence[float]) -> str:
    p50, p99 = quantile(seconds, 50), quantile(seconds, 99)
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s, longest {max(seconds):.3f} s, {len(seconds)} trials"


PART: Final = ProofPart(
    "watchdog",
    540,
    (Need.GPU, Need.WHOLE, Need.CUDA, Need.ROOT, Need.CGROUPS),
    STATEMENTS,
    _run,
)
