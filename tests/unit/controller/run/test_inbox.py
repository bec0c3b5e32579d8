"""Work for the loop, and how long it takes."""

import pytest

from controller.run import inbox as inboxes
from controller.run.inbox import Inbox


class _Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(inboxes, "time", clock)
    return clock


def test_the_seconds_of_work_are_counted_and_those_of_waiting_are_not(clock: _Clock) -> None:
    inbox = Inbox()

    def work() -> None:
        clock.now += 2

    for _ in range(3):
        inbox.put(work)
    assert inbox.do(0)
    clock.now += 50  # the loop waits, or does something else
    assert not inbox.do(0)
    assert inbox.take_seconds() == 6


def test_seconds_are_given_once(clock: _Clock) -> None:
    inbox = Inbox()
    inbox.put(lambda: setattr(clock, "now", clock.now + 1))
    inbox.do(0)
    assert inbox.take_seconds() == 1
    assert inbox.take_seconds() == 0
