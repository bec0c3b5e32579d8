"""What the log says of reports that differ."""

import logging

import pytest

from carina_dra.sharing.message import (
    EndedProcess,
    PodUse,
    Reference,
    ShareUse,
    SharingReport,
    Unwatched,
)
from sharing.change_log import ChangeLog
from sharing.violators import Violator
from tests.unit.sharing.samples import process


def report(*, exceeded: int, unwatched: bool = False, pods: int = 1) -> SharingReport:
    use = ShareUse(
        gpu="GPU-0",
        claims=("claim",),
        given_mib=100,
        given_cores=10,
        used_mib=300,
        pods=tuple(
            PodUse(
                pod=Reference(namespace="default", name=f"pod-{number}", uid=f"{number}"),
                memory_mib=number,
                sm_percent=0,
                processes=1,
            )
            for number in range(pods)
        ),
        idle_since=None,
        exceeded_since=1.0,
        exceeded=exceeded,
    )
    gpus = (Unwatched(gpu="GPU-1", reason="it is lost"),) if unwatched else ()
    return SharingReport(generation=1, time=1.0, uses=(use,), unwatched=gpus)


def test_who_exceeds_again_and_again_is_said_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, before = ChangeLog(), report(exceeded=0)
    for tenth in range(1800):
        after = report(exceeded=tenth + 1, unwatched=tenth % 2 == 0)
        log.note(before, after, {}, tenth / 10)
        before = after
    said = [record.message for record in caplog.records]
    assert len(said) == 6
    assert len(set(said)) == 2


def test_of_many_pods_those_with_the_most_memory_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    ChangeLog().note(report(exceeded=0, pods=256), report(exceeded=1, pods=256), {}, 0.0)
    (record,) = caplog.records
    named = list(vars(record)["pods"])
    assert named[0] == "default/pod-255"
    assert len(named) == 8


def test_who_loses_process_after_process_is_said_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, before = ChangeLog(), report(exceeded=1)
    for second in range(180):
        after = with_ended(report(exceeded=1), second + 1)
        log.note(before, after, {}, float(second))
        before = after
    assert [record.message for record in caplog.records] == ["a process was ended"] * 3
    last = vars(caplog.records[-1])
    assert (last["pod"], last["times"], last["why"]) == ("default/pod-0", 121, "memory")


def test_counts_of_a_use_whose_claims_have_changed_are_not_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = with_ended(report(exceeded=3), 2)
    joined = before.uses[0].model_copy(update={"claims": ("claim", "more")})
    ChangeLog().note(before, before.model_copy(update={"uses": (joined,)}), {}, 0.0)
    assert caplog.records == []


def test_who_cannot_be_ended_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log = ChangeLog()
    pod = Reference(namespace="default", name="pod", uid="uid")
    spared = Violator(("GPU-0", ("claim",)), pod, process("pod", 5000), "memory")
    for second in range(120):
        log.spared(spared, "it is in another cgroup by now", float(second))
        log.note(report(exceeded=0), report(exceeded=0), {}, float(second))
    assert len(caplog.records) == 2


def with_ended(seen: SharingReport, times: int) -> SharingReport:
    pod = seen.uses[0].pods[0].pod
    ended = EndedProcess(pod=pod, container_id=None, memory_mib=300, time=1.0, why="memory")
    use = seen.uses[0].model_copy(update={"ended": times, "last_ended": ended})
    return seen.model_copy(update={"uses": (use,)})
