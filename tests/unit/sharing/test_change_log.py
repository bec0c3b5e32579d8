"""What the log says of reports that differ."""

import logging

import pytest

from carina_dra.sharing.message import PodUse, Reference, ShareUse, SharingReport, Unwatched
from sharing.change_log import ChangeLog


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
