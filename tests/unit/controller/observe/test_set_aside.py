"""Work that fails for one object is tried again later and later, and that of others is done."""

from collections.abc import Iterator

import pytest

from controller.observe.set_aside import SetAsideObjects


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tries = 0

    def fail(self) -> None:
        self.tries += 1
        raise RuntimeError("a defect")

    def succeed(self) -> None:
        self.tries += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def set_aside(clock: Clock) -> SetAsideObjects:
    return SetAsideObjects(clock=lambda: clock.now)


def test_what_comes_up_in_every_cycle_is_tried_again_later_and_later(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    tried_at = []
    for second in range(200):
        clock.now = 1000.0 + second
        before = clock.tries
        assert not set_aside.attempt_when_due("pods", "t/p", "judged", clock.fail)
        if clock.tries > before:
            tried_at.append(second)
    assert tried_at == [0, 10, 30, 70, 150]


def test_success_ends_it(clock: Clock, set_aside: SetAsideObjects) -> None:
    set_aside.attempt_when_due("pods", "t/p", "judged", clock.fail)
    assert set_aside.until("pods", "t/p") == 1010
    clock.now = 1010
    assert set_aside.attempt_when_due("pods", "t/p", "judged", clock.succeed)
    assert (set_aside.counts(), set_aside.until("pods", "t/p")) == ({}, 0)


def test_one_that_fails_keeps_no_other_from_its_results(set_aside: SetAsideObjects) -> None:
    def letters(key: str) -> Iterator[str]:
        yield key
        if key == "bad":
            raise RuntimeError("a defect")

    assert list(set_aside.each("pods", "judged", ["a", "bad", "b"], letters)) == ["a", "b"]


def test_an_object_that_does_not_come_up_again_is_forgotten_in_the_end(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    set_aside.attempt_when_due("groups", "t/g", "told", clock.fail)
    assert set_aside.counts() == {"groups": 1}
    clock.now += 4000
    assert set_aside.counts() == {}


def test_it_is_tried_at_least_every_quarter_of_an_hour(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    waits = []
    for _ in range(12):
        set_aside.attempt_when_due("pods", "t/p", "judged", clock.fail)
        until = set_aside.until("pods", "t/p")
        waits.append(until - clock.now)
        clock.now = until
    assert waits == [10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900, 900]


def test_success_ends_only_what_failed_under_the_same_word(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    set_aside.attempt_when_due("pods", "t/p", "judged", clock.fail)
    set_aside.attempt_when_due("pods", "t/p", "told", clock.fail)
    clock.now += 10
    assert set_aside.attempt_when_due("pods", "t/p", "told", clock.succeed)
    assert set_aside.counts() == {"pods": 1}


def test_what_fails_when_an_object_changes_is_tried_at_its_next_change_and_not_forgotten(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    set_aside.attempt("pods", "t/p", "applied", clock.fail)
    assert set_aside.until("pods", "t/p") == 0
    clock.now += 100_000
    assert set_aside.counts() == {"pods": 1}
    set_aside.attempt("pods", "t/p", "applied", clock.fail)
    assert clock.tries == 2
    set_aside.forget("pods", "t/p")
    assert set_aside.counts() == {}


def test_an_object_is_set_aside_until_the_last_of_what_failed_is_due(
    clock: Clock, set_aside: SetAsideObjects
) -> None:
    set_aside.attempt_when_due("pods", "t/p", "judged", clock.fail)
    clock.now += 5
    set_aside.attempt_when_due("pods", "t/p", "told", clock.fail)
    assert set_aside.until("pods", "t/p") == 1015
