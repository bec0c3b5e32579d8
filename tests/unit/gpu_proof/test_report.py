"""What a report says of a part and of a run."""

from pathlib import Path

import pytest

from gpu_proof.finding import (
    Disproven,
    Fact,
    NotTried,
    ProofOutcome,
    ProofStatement,
    ProofVerdict,
    Proven,
    part_report,
)
from gpu_proof.parts.listed import PARTS
from gpu_proof.parts.watchdog import quantile
from gpu_proof.report import REPORT, ProofReport, markdown

FIRST = ProofStatement("first", "The first holds.")
SECOND = ProofStatement("second", "The second holds.")


def report(*outcomes: ProofOutcome, broke_off: str | None = None, left: str = "") -> ProofReport:
    verdicts = [
        ProofVerdict(statement, outcome)
        for statement, outcome in zip((FIRST, SECOND), outcomes, strict=False)
    ]
    part = part_report("part", 1.5, (FIRST, SECOND), verdicts, broke_off)
    return ProofReport("2026-11-27T04:00:00+00:00", (), (part,), (left,) if left else ())


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (report(Proven("1"), Proven("2")), 0),
        (report(NotTried("no GPU"), NotTried("no GPU")), 0),
        (report(Proven("1"), Disproven("2")), 1),
        (report(Disproven("1"), broke_off="it hangs"), 1),
        (report(Proven("1"), broke_off="it hangs"), 3),
        (report(Proven("1"), Proven("2"), left="folder /f"), 3),
    ],
)
def test_the_exit_status_says_whether_all_is_well(made: ProofReport, status: int) -> None:
    assert made.status == status


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        ((Proven("1"), Disproven("2")), Disproven("2")),
        ((Proven("1"), NotTried("no")), Proven("1 of 2 statements")),
        ((NotTried("a"), NotTried("a")), NotTried("a")),
        ((NotTried("a"), NotTried("b")), NotTried("a; b")),
    ],
)
def test_a_part_is_as_its_statements(
    outcomes: tuple[ProofOutcome, ...], whole: ProofOutcome
) -> None:
    assert report(*outcomes).parts[0].outcome == whole


def test_a_statement_that_a_part_did_not_come_to_was_not_tried() -> None:
    first, second = report(Proven("1"), broke_off="it hangs").parts[0].verdicts
    assert first.outcome == Proven("1")
    assert second.outcome == NotTried("the part broke off: it hangs")


def test_the_text_has_each_statement_with_its_result() -> None:
    text = markdown(report(Proven("1 MiB"), Disproven("2|3 MiB")))
    assert "| `first` | The first holds. | **proven**: 1 MiB |" in text
    assert "## part: **disproven**: 2|3 MiB" in text


def test_a_report_can_be_read_again() -> None:
    made = report(Proven("1"), Disproven("2"))
    again = REPORT.validate_json(REPORT.dump_json(made))
    assert markdown(again) == markdown(made)


def test_statements_have_names_of_their_own() -> None:
    names = [statement.name for part in PARTS.values() for statement in part.statements]
    assert len(names) == len(set(names))


def test_a_part_takes_nine_minutes_at_most() -> None:
    assert all(part.seconds <= 540 for part in PARTS.values())


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 2.0), (75, 3.0), (76, 4.0), (99, 4.0), (1, 1.0)]
)
def test_a_quantile_is_a_value_that_was_measured(percent: int, expected: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], percent) == expected


def test_a_fact_is_not_judged() -> None:
    part = part_report("part", 1, (FIRST,), [Fact("size", "Its size", "1 MiB")], None)
    assert part.facts == [Fact("size", "Its size", "1 MiB")]
    assert part.verdicts[0].outcome == NotTried("the part did not come to it")


def test_the_documentation_has_all_statements_and_no_others() -> None:
    page = (Path(__file__).parents[3] / "docs/gpu-proof.md").read_text()
    rows = [
        f"| `{part.name}` | `{statement.name}` | {statement.sentence} |"
        for part in PARTS.values()
        for statement in part.statements
    ]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows
