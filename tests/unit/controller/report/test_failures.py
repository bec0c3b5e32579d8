"""What fails is in the log, and nobody fills the log with it."""

import logging

import pytest

from controller.report.failures import FailureLog


class Log:
    """A log of failures, with a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.failures = FailureLog(lambda: self.now)

    def fail(self, key: str, doing: str = "judged") -> bool:
        return self.failures.object("pods", key, doing, KeyError(key))


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_first_failure_has_a_traceback(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    assert log.fail("t/p")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert (record.__dict__["object"], record.__dict__["not"]) == ("t/p", "judged")


def test_the_same_again_is_one_line_without_a_traceback_after_a_while(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        log.fail("t/p")
        log.now += 1
    first, second = caplog.records
    assert first.exc_info is not None
    assert second.exc_info is None
    assert second.__dict__["repeated"] == 599


def test_another_failure_of_the_same_object_has_a_line_of_its_own(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.fail("t/p")
    log.fail("t/p", "told")
    assert len(caplog.records) == 2


def test_a_tenant_with_many_objects_does_not_fill_the_log_nor_keep_others_out_of_it(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10_000):
        log.fail(f"hostile/{number}")
    assert len(caplog.records) == 20
    assert log.fail("other/p")
    log.now += 60
    assert log.fail("hostile/once-more")
    assert caplog.records[-1].__dict__["others_left_out"] == 9980


def test_a_deep_traceback_is_cut(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def deep(levels: int) -> None:
        if levels == 0:
            raise RuntimeError("a defect")
        deep(levels - 1)

    with pytest.raises(RuntimeError) as caught:
        deep(200)
    log.failures.object("pods", "t/p", "judged", caught.value)
    text = logging.Formatter().format(caplog.records[-1])
    assert "a defect" in text
    assert text.count("in deep") <= 12
