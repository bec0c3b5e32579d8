"""Which Events users get when the health of their devices changes."""

from dataclasses import replace

from carina_dra.sharing.message import EndedProcess, Reference
from kubelet_plugin.claim_status.device_health import GpusNow
from kubelet_plugin.claim_status.device_status import DeviceStatus, device_statuses
from kubelet_plugin.claim_status.health_notice import (
    MemoryExceeded,
    ProblemBegan,
    ProblemEnded,
    ProcessWasEnded,
    notices,
)
from kubelet_plugin.claim_status.readiness import SetUp
from kubelet_plugin.inventory.health import GpuProblem
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.sharing.standing import EndedViolator, ShareExceeded, ShareStanding, WithinShare
from tests.samples.claims import allocated, claim
from tests.samples.gpus import LOST, UNREADABLE, observed

TWO = claim(allocated("gpu-0"), allocated("gpu-1"))


def said(*problems: GpuProblem, second: tuple[GpuProblem, ...] = ()) -> tuple[DeviceStatus, ...]:
    gpus = GpusNow(DriverReady((observed(0, *problems), observed(1, *second))))
    return device_statuses(TWO, SetUp(), gpus)


def test_a_healthy_device_is_not_told() -> None:
    assert notices((), said()) == ()
    assert notices(said(), said()) == ()


def test_a_problem_is_told_when_it_begins_and_when_it_ends() -> None:
    (began,) = notices(said(), said(LOST))
    assert isinstance(began, ProblemBegan)
    assert (began.reason, began.devices) == ("GPULost", ("gpu-0",))
    assert LOST.remedy in began.message

    assert notices(said(LOST), said()) == (ProblemEnded(("gpu-0",)),)


def test_a_problem_is_told_once() -> None:
    assert notices(said(LOST), said(LOST)) == ()
    (second,) = notices(said(LOST), said(LOST, second=(LOST,)))
    assert isinstance(second, ProblemBegan)
    assert second.devices == ("gpu-1",)


def test_another_problem_is_told_too() -> None:
    (began,) = notices(said(UNREADABLE), said(LOST))
    assert isinstance(began, ProblemBegan)
    assert began.reason == "GPULost"


def test_a_problem_at_the_start_is_told() -> None:
    assert len(notices((), said(LOST))) == 1


def test_nothing_is_told_of_a_device_of_whose_health_nothing_is_said() -> None:
    unsaid = tuple(replace(status, conditions=()) for status in said())
    assert notices(said(LOST), unsaid) == ()


def exceeded(used: int, *more: int) -> tuple[DeviceStatus, ...]:
    """What is said of two shares of a claim, on a GPU each."""
    return of_shares(
        *(ShareExceeded(1.0, mib, 1024, 1.0) if mib else WithinShare() for mib in (used, *more))
    )


def of_shares(*given: ShareStanding) -> tuple[DeviceStatus, ...]:
    shares = claim(
        allocated("gpu-0-share", share_id="a"), allocated("gpu-1-share", "b", share_id="b")
    )
    gpus = (observed(0), observed(1))
    standings: dict[tuple[str, str], ShareStanding] = {}
    for seen, standing in zip(gpus, given, strict=False):
        standings[shares.uid, seen.gpu.uuid] = standing
    return device_statuses(shares, SetUp(), GpusNow(DriverReady(gpus)), standings)


def test_a_share_that_is_exceeded_is_told_once_and_its_end_is_not() -> None:
    (began,) = notices(exceeded(0, 0), exceeded(2000, 0))
    assert isinstance(began, MemoryExceeded)
    assert began.devices == ("gpu-0-share",)
    assert "2000 MiB of 1024 MiB" in began.message

    assert notices(exceeded(2000, 0), exceeded(3000, 0)) == ()
    assert notices(exceeded(2000, 0), exceeded(0, 0)) == ()
    assert notices(exceeded(2000), ()) == ()
    assert len(notices((), exceeded(2000, 2000))) == 2


POD = Reference(namespace="default", name="train", uid="pod")
ENDED = EndedViolator(
    EndedProcess(pod=POD, container_id=None, memory_mib=900, time=1.0, why="memory"), 1024, 1.0
)


def test_a_process_that_was_ended_is_told_once_and_not_also_that_the_share_was_exceeded() -> None:
    (told,) = notices(exceeded(0, 0), of_shares(ENDED, WithinShare()))
    assert isinstance(told, ProcessWasEnded)
    assert told.devices == ("gpu-0-share",)
    assert "a process of pod default/train with 900 MiB" in told.message

    assert notices(of_shares(ENDED), of_shares(replace(ENDED, given_mib=7))) == ()
    assert notices(of_shares(ENDED), exceeded(2000)) == ()
    assert notices(of_shares(ENDED), exceeded(0)) == ()


def test_a_process_that_is_ended_after_the_share_was_exceeded_is_told_too() -> None:
    (told,) = notices(exceeded(2000), of_shares(ENDED))
    assert isinstance(told, ProcessWasEnded)
