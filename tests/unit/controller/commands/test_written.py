"""Which refusal of kube-scheduler a group still waits for, by what the controller has written."""

from datetime import UTC, datetime

import pytest

from controller.commands.written import Statement, WrittenReasons, standing_refusal
from controller.engine.explain import Because, GroupExplanation, with_refusal

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
REFUSED = "RefusedByScheduler"


def event(reason: str, at: str = "2026-01-01T11:30:00.000000Z", about: str = "Pod p") -> Statement:
    return Statement(about, at, reason, "kube-scheduler refused it")


def condition(reason: str, at: str = "2026-01-01T02:00:00Z") -> Statement:
    return event(f"Admitted=False {reason}", at, "PodGroup g")


def stands(*newest_first: Statement, waits: bool = True) -> bool:
    return standing_refusal(WrittenReasons("t/g", {}, newest_first, waits), NOW) is not None


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param([event(REFUSED)], True, id="the last Event"),
        pytest.param([event(REFUSED), event("NoRoom")], True, id="after another reason"),
        pytest.param([event("NoRoom"), event(REFUSED)], False, id="before another reason"),
        pytest.param([event(REFUSED, "2026-01-01T10:59:00Z")], False, id="not repeated"),
        pytest.param([condition(REFUSED)], True, id="a condition, however old"),
        pytest.param([event(REFUSED), condition("NoRoom")], False, id="conditions are newer"),
        pytest.param([event("Evicted"), condition(REFUSED)], True, id="whatever Events say"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_a_refusal_stands_while_it_is_the_last_that_was_said(
    statements: list[Statement], expected: bool
) -> None:
    assert stands(*statements) is expected


def test_a_group_that_does_not_wait_is_not_held_back() -> None:
    assert not stands(event(REFUSED), waits=False)


def test_the_explanation_says_it_before_what_the_engine_finds() -> None:
    found = GroupExplanation("t/g", "q", {}, (), (), (), (Because("no room", "wait"),))
    told = with_refusal(found, "2026-01-01T11:30:00Z", "kube-scheduler refused it: no")
    assert told.waits
    first, second = told.because
    assert "kube-scheduler refused it: no (written at 2026-01-01T11:30:00Z)" in first.reason
    assert "pod template" in first.help
    assert second.reason == "no room"
