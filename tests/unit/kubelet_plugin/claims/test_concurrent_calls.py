"""Calls at the same time: what is locked, for how long, and what is read again after a wait."""

import os
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from carina_dra.kube.errors import (
    Unreachable,
)
from kubelet_plugin.claims.call import CallLimits
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.failure import (
    CallerGone,
    ClaimError,
    LockUnavailable,
)
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.claims.lock import FileLock
from tests.fakes.claims import PATIENT
from tests.samples.claims import UID
from tests.unit.kubelet_plugin.claims.world import (
    DEADLINE,
    GET,
    NO_NODE,
    OTHER,
    TRAIN,
    World,
    body,
    refusal,
)


def test_concurrent_calls_for_a_shared_claim_are_serialised(world: World) -> None:
    inside = threading.Semaphore(1)

    def making(_: object) -> None:
        assert inside.acquire(blocking=False), "two at once"
        os.sched_yield()
        inside.release()

    world.node.making = making
    answers: list[tuple[PreparedDevice, ...]] = []
    claims = world.claims()
    calls = [
        threading.Thread(target=lambda: answers.append(claims.prepare(TRAIN, PATIENT)))
        for _ in range(5)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert answers == [answers[0]] * 5


def test_a_slow_gpu_does_not_keep_claims_on_others_waiting(world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def making(claim: Any) -> None:
        if claim.name == "train":
            begun.set()
            assert go_on.wait(DEADLINE)

    world.node.making = making
    claims = world.claims()
    slow = threading.Thread(target=claims.prepare, args=(TRAIN, PATIENT))
    slow.start()
    assert begun.wait(DEADLINE)
    claims.prepare(OTHER, PATIENT)
    claims.unprepare(OTHER, PATIENT)
    assert world.recorded() == {"train": ("gpu-0",)}
    go_on.set()
    slow.join()
    assert set(world.node.made) == {UID}


def test_an_allocation_that_was_read_before_a_long_wait_is_read_again(world: World) -> None:
    held = world.hold_gpu("gpu-0")

    def waiting(_: float) -> None:
        world.api["train"] = body(TRAIN, "gpu-2")
        world.now = time.monotonic() + 1.1
        held.close()

    world.pause = waiting
    (prepared,) = world.claims().prepare(TRAIN, PATIENT)
    assert prepared.device == "gpu-2"
    assert world.recorded() == {"train": ("gpu-2",)}


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_claim_is_not_unprepared_while_another_call_prepares_it(world: World, ends: str) -> None:
    """The other call begins when the node's lock is released for the first time.

    It ends before the unprepare goes on, or once that waits for the GPU or has ended.
    """
    preparing, go_on = threading.Event(), threading.Event()

    def making(_: object) -> None:
        preparing.set()
        assert go_on.wait(DEADLINE)

    world.node.making = making
    prepare = threading.Thread(target=world.claims().prepare, args=(TRAIN, PATIENT))
    releases = 0

    def begin_to_prepare() -> None:
        nonlocal releases
        releases += 1
        if releases == 1:
            prepare.start()
            assert preparing.wait(DEADLINE)
            if ends == "before":
                go_on.set()
                prepare.join(DEADLINE)

    world.released = begin_to_prepare
    world.pause = lambda _: go_on.set()
    _tried_again(world.claims(), TRAIN)
    go_on.set()
    prepare.join(DEADLINE)
    assert world.recorded().keys() == {made.name for made in world.node.made.values()}


def test_an_allocation_that_another_call_has_replaced_meanwhile_is_not_prepared(
    world: World,
) -> None:
    other = world.claims()

    def another_call_prepares_a_newer_allocation() -> None:
        if not world.node.made:
            world.reading = lambda: None
            world.api["train"] = body(TRAIN, "gpu-2")
            other.prepare(TRAIN, PATIENT)

    stale = world.api["train"]
    world.reading = another_call_prepares_a_newer_allocation
    world.answers = [stale]
    (prepared,) = world.claims().prepare(TRAIN, PATIENT)
    assert prepared.device == "gpu-2"
    assert world.recorded() == {"train": ("gpu-2",)}
    assert world.node.removed == []


def _tried_again(claims: ClaimLifecycle, reference: ClaimReference) -> None:
    """Unprepares as the DRA service does."""
    while True:
        try:
            return claims.unprepare(reference, PATIENT)
        except ClaimError as error:
            if not error.failure.retriable:
                raise


def test_a_plugin_that_has_just_started_unprepares_under_the_gpus_lock(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    held = world.hold_gpu("gpu-0")
    waited: list[dict[str, tuple[str, ...]]] = []

    def waiting(_: float) -> None:
        waited.append(world.recorded())
        held.close()

    world.pause = waiting
    world.claims().unprepare(TRAIN, PATIENT)
    assert waited == [{"train": ("gpu-0",)}]
    assert world.recorded() == {}


def test_the_api_server_is_not_asked_while_a_gpu_is_locked(world: World) -> None:
    held = ExitStack()
    other = FileLock(world.folder / "gpu-0.lock", clock=time.monotonic, pause=time.sleep)
    held.enter_context(other.held(time.monotonic() + DEADLINE))

    def waiting(_: float) -> None:
        world.now = time.monotonic() + 1.1
        held.close()

    def reading() -> None:
        if world.now:
            with other.held(time.monotonic()):
                pass

    world.pause, world.reading = waiting, reading
    world.claims().prepare(TRAIN, PATIENT)
    assert [name for name, _ in world.asked] == ["train", "train"]


def test_an_allocation_is_read_once_where_the_wait_is_short(world: World) -> None:
    held = world.hold_gpu("gpu-0")
    world.pause = lambda _: held.close()
    world.now = time.monotonic()
    world.claims().prepare(TRAIN, PATIENT)
    assert [name for name, _ in world.asked] == ["train"]


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_nothing_is_done_for_a_caller_that_has_gone(world: World, operation: str) -> None:
    claims = world.claims()
    claims.prepare(OTHER, PATIENT)
    call = replace(PATIENT, abandoned=lambda: True)
    reference = TRAIN if operation == "prepare" else OTHER
    with pytest.raises(ClaimError) as caught:
        getattr(claims, operation)(reference, call)
    assert caught.value.failure == CallerGone(reference)
    assert world.recorded() == {"other": ("gpu-1",)}
    assert set(world.node.made) == {OTHER.uid}


def test_one_try_of_a_call_waits_ten_seconds_for_a_lock(world: World) -> None:
    world.now = 1000.0

    def wait(seconds: float) -> None:
        world.now += seconds

    world.pause = wait
    with world.hold_gpu("gpu-0"), pytest.raises(ClaimError) as caught:
        world.claims().prepare(TRAIN, CallLimits(1040.0, lambda: False))
    assert isinstance(caught.value.failure, LockUnavailable)
    assert world.now == pytest.approx(1010.0, abs=0.1)
    assert world.node.made == {}


@pytest.mark.parametrize("operation", ["unprepare", "allocation replaced"])
def test_a_claim_recorded_while_another_is_undone_stays_recorded(
    world: World, operation: str
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.removing = lambda _: claims.prepare(OTHER, PATIENT)
    if operation == "unprepare":
        claims.unprepare(TRAIN, PATIENT)
        assert world.recorded() == {"other": ("gpu-1",)}
    else:
        world.api["train"] = body(TRAIN, "gpu-2")
        claims.prepare(TRAIN, PATIENT)
        assert world.recorded() == {"train": ("gpu-2",), "other": ("gpu-1",)}


def test_a_claim_recorded_while_another_fails_stays_recorded(world: World) -> None:
    claims = world.claims()

    def making(claim: NodeClaim) -> None:
        if claim.name == "train":
            claims.prepare(OTHER, PATIENT)
            raise ClaimError(NO_NODE)

    world.node.making = making
    with pytest.raises(ClaimError):
        claims.prepare(TRAIN, PATIENT)
    assert world.recorded() == {"other": ("gpu-1",)}


def test_the_api_server_gets_time_by_what_is_left_of_the_call(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    for deadline, patience in [(1040.0, 20.0), (1008.0, 5.0), (1003.0, 3.0), (990.0, 1.0)]:
        world.asked.clear()
        world.api["train"] = Unreachable(GET, "refused")
        with pytest.raises(ClaimError):
            claims.prepare(TRAIN, CallLimits(deadline, lambda: False))
        assert world.asked == [("train", patience)]


def test_a_recorded_claim_does_not_wait_long_for_the_api_server(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.asked.clear()
    claims.prepare(TRAIN, CallLimits(1040.0, lambda: False))
    assert world.asked == [("train", 5.0)]


def test_a_file_system_without_locks_fails_the_claim_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    failure = refusal(world, TRAIN)
    assert isinstance(failure, LockUnavailable)
    assert "No locks available" in str(failure)
