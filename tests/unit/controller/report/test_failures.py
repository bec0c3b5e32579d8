"""What fails is in the log, and nobody fills the log with it."""

import logging
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.engine.model.plan import Failure, Plan, SetAsideGroup
from controller.engine.model.reason import Undecided
from controller.report.failures import FailureLog
from controller.report.metrics import ControllerMetrics
from tests.unit.controller.engine.scene import Scene


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


class TestPlans:
    """What has failed in a cycle, or was undecided in it."""

    def _plan(self, *failed: str, undecided: str = "", times: int = 1) -> Plan:
        plan = Scene().node("n").plan()
        traceback = "Traceback (most recent call last):\n  File\nKeyError: 'of somebody'\n"
        reason = Undecided(5_000, "pod t/p", 10)
        return replace(
            plan,
            failures=tuple(Failure(group, times, traceback) for group in failed),
            undecided=(undecided,) if undecided else (),
            memory=replace(plan.memory, set_aside={undecided: SetAsideGroup(10, 1, (reason,))}),
        )

    def test_the_first_failure_of_a_group_is_logged_with_its_traceback_the_next_without(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        for times in (1, 2, 3):
            log.failures.plan(self._plan("t/g", times=times), ControllerMetrics())
            log.now += 300
        first, again = (vars(record) for record in caplog.records)
        assert first["error"].startswith("Traceback")
        assert (again["error"], again["times"], again["repeated"]) == (
            "KeyError: 'of somebody'",
            3,
            1,
        )

    def test_a_group_that_is_undecided_is_logged_with_the_price_once_in_a_while(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for _ in range(2):
            log.failures.plan(self._plan(undecided="t/g"), ControllerMetrics())
        (record,) = caplog.records
        assert "5000 steps" in vars(record)["reason"]

    def test_failures_of_a_tenant_do_not_keep_those_of_others_out(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        groups = [f"hostile/{number}" for number in range(100)]
        log.failures.plan(self._plan(*groups, "other/g"), ControllerMetrics())
        assert [vars(record)["group"] for record in caplog.records] == [*groups[:20], "other/g"]

    def test_all_are_counted(self, log: Log) -> None:
        metrics = ControllerMetrics()
        for _ in range(2):
            log.failures.plan(self._plan("t/a", "t/b", undecided="t/g"), metrics)
        found = {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(metrics.exposition().decode())
            for sample in family.samples
            if sample.name.endswith("set_aside_total")
        }
        assert found == {"failed": 4, "undecided": 2}


def test_what_was_left_out_is_told_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        log.fail(f"t/{number}")
    for number in (30, 31):
        log.now += 60
        log.fail(f"t/{number}")
    assert [vars(record).get("others_left_out") for record in caplog.records[20:]] == [10, None]


def test_what_is_logged_after_the_log_had_no_room_says_how_often_it_failed_meanwhile(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.fail("t/p")
    log.now = 599.0
    for number in range(30):
        log.fail(f"t/{number}")
    log.now = 600.0
    log.fail("t/p")
    log.now = 660.0
    log.fail("t/p")
    assert vars(caplog.records[-1])["repeated"] == 1
