"""What is done next about an MPS daemon."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from sharing.mps.course import (
    PROBE_INTERVAL,
    AbsentDaemon,
    AdoptDaemon,
    DaemonCourse,
    EndDaemon,
    LeftDaemon,
    ProbeDaemon,
    RemoveDaemon,
    RunningDaemon,
    StartDaemon,
    UnknownDaemon,
    WaitForDaemon,
    next_step,
)


def wanted(memory_mib: int = 1000) -> WantedDaemon:
    return WantedDaemon(
        claim=Reference(namespace="default", name="a", uid="uid-a"),
        devices=(MpsDevice(uuid="GPU-a", memory_mib=memory_mib),),
        thread_percentage=10,
    )


A, OTHER = wanted(), wanted(2000)
NEW = DaemonCourse()
READY = NEW.replaced(0).ended(0).starting().began(A, 100)


def test_what_an_earlier_process_has_left_is_adopted_if_it_is_wanted() -> None:
    assert next_step(A, NEW.state, 0) == AdoptDaemon(A)
    assert next_step(None, NEW.state, 0) == EndDaemon()


def test_what_cannot_be_told_is_left_alone_and_looked_at_again() -> None:
    unsure = NEW.not_known("no driver is loaded", 5)
    assert next_step(A, unsure.state, 5) == WaitForDaemon(6)
    assert next_step(A, unsure.state, 6) == AdoptDaemon(A)
    assert next_step(None, unsure.state, 5) == EndDaemon()


def test_what_is_not_the_wanted_one_is_ended_before_it_is_started() -> None:
    left = NEW.replaced(0)
    assert next_step(A, left.state, 0) == EndDaemon()
    assert next_step(A, left.ended(0).state, 0) == StartDaemon(A)


def test_a_ready_daemon_is_probed_now_and_then() -> None:
    assert next_step(A, READY.state, 100) == WaitForDaemon(100 + PROBE_INTERVAL)
    assert next_step(A, READY.state, 100 + PROBE_INTERVAL) == ProbeDaemon()
    later = READY.answered(110)
    assert next_step(A, later.state, 110) == WaitForDaemon(110 + PROBE_INTERVAL)


def test_a_daemon_of_other_limits_is_ended_and_started_without_a_pause() -> None:
    assert next_step(OTHER, READY.state, 100) == EndDaemon()
    ended = READY.replaced(100).ended(102)
    assert next_step(OTHER, ended.state, 102) == StartDaemon(OTHER)


def test_one_that_is_not_wanted_is_ended_and_removed() -> None:
    assert next_step(None, READY.state, 100) == EndDaemon()
    assert next_step(None, READY.replaced(100).ended(101).state, 101) == RemoveDaemon()


def test_one_that_does_not_answer_three_probes_in_a_row_is_ended() -> None:
    once = READY.missed("no answer", 110)
    assert next_step(A, once.state, 110) == WaitForDaemon(111)
    twice = once.missed("no answer", 113)
    assert isinstance(twice.state, RunningDaemon)
    thrice = twice.missed("no answer", 116)
    assert next_step(A, thrice.state, 116) == EndDaemon()
    assert thrice.reason == "3 probes failed: no answer"


def test_an_answer_forgives_the_probes_before() -> None:
    forgiven = READY.missed("no answer", 110).missed("no answer", 113).answered(114)
    assert isinstance(
        forgiven.missed("no answer", 124).missed("no answer", 127).state, RunningDaemon
    )


def test_processes_that_do_not_end_are_tried_again_and_nothing_is_started_beside_them() -> None:
    stuck = READY.failed("its process ended", 100).not_ended("1234 does not end", 104)
    assert next_step(A, stuck.state, 104) == WaitForDaemon(105)
    assert next_step(A, stuck.state, 105) == EndDaemon()
    assert stuck.reason == "1234 does not end"


def test_the_reason_of_failures_in_a_row_is_the_first() -> None:
    """A container can have its daemon fail with other words each time, and an Event says them."""
    again = READY.failed("one", 100).ended(101).starting().failed("two", 103)
    assert again.reason == "one"
    ready = again.ended(104).starting().began(A, 105)
    assert ready.failed("three", 106).reason == "one"
    stable = ready.answered(105 + 61)
    assert stable.reason == ""
    assert stable.failed("four", 170).reason == "four"


def test_the_pause_before_a_start_doubles_to_a_minute() -> None:
    course, pauses = NEW.replaced(0).ended(0), []
    for _ in range(9):
        course = course.starting().failed("it ended", 10).ended(10)
        assert isinstance(course.state, AbsentDaemon)
        pauses.append(course.state.not_before - 10)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert course.restarts == 8


def test_a_minute_of_answers_forgives_failures() -> None:
    failing = READY.failed("it ended", 100).ended(100).starting().began(A, 200)
    assert failing.answered(230).failures == 1
    assert failing.answered(260).failures == 0


def test_the_first_start_is_no_restart() -> None:
    assert READY.restarts == 0
    assert READY.failed("it ended", 101).ended(101).starting().restarts == 1


def test_a_start_with_other_limits_is_a_restart() -> None:
    assert READY.replaced(101).ended(102).starting().restarts == 1


def test_a_start_after_an_adoption_is_a_restart() -> None:
    assert NEW.began(A, 0).replaced(5).ended(6).starting().restarts == 1


def test_a_start_after_one_that_did_not_become_ready_is_a_restart() -> None:
    again = NEW.replaced(0).ended(0).starting().replaced(1).ended(2).starting()
    assert again.restarts == 1


def test_what_cannot_be_told_has_a_reason() -> None:
    assert NEW.not_known("no driver is loaded", 5).reason == "no driver is loaded"


def test_earlier_failures_do_not_count_for_other_limits() -> None:
    failing = READY.failed("it ended", 100).ended(101).starting().began(A, 102)
    assert next_step(OTHER, failing.replaced(103).ended(104).state, 104) == StartDaemon(OTHER)


def test_a_failure_is_no_reason_of_what_has_other_limits() -> None:
    assert NEW.not_known("no driver is loaded", 5).replaced(6).reason == ""


EVENTS = ("began", "failed", "replaced", "ended", "not_ended", "answered", "missed", "not_known")


@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=30),
    want=st.sampled_from([A, OTHER, None]),
    now=st.floats(0, 1e6),
)
def test_nothing_is_started_while_processes_may_be_left(
    events: Sequence[str], want: WantedDaemon | None, now: float
) -> None:
    course = NEW
    for event in events:
        match event:
            case "began":
                course = course.began(A, now)
            case "failed" | "not_ended" | "missed" | "not_known":
                course = getattr(course, event)("why", now)
            case _:
                course = getattr(course, event)(now)
    step = next_step(want, course.state, now)
    match step:
        case StartDaemon() | RemoveDaemon():
            assert isinstance(course.state, AbsentDaemon)
        case EndDaemon():
            assert not isinstance(course.state, AbsentDaemon)
        case WaitForDaemon(until):
            assert now < until <= now + 61
        case AdoptDaemon() | ProbeDaemon():
            assert isinstance(course.state, UnknownDaemon | RunningDaemon)
    assert isinstance(step, StartDaemon | AdoptDaemon) <= (want is not None)


@pytest.mark.parametrize("state", [UnknownDaemon(), LeftDaemon(0), AbsentDaemon(0)])
def test_an_answer_of_nothing_changes_nothing(state: UnknownDaemon) -> None:
    course = DaemonCourse(state)
    assert course.answered(0) == course
