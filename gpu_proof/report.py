"""The report of a run, as JSON and as a text in Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from pydantic import TypeAdapter

from gpu_proof.finding import Disproven, Fact, NotTried, PartReport, ProofOutcome, Proven

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ProofReport:
    """What was found on a machine."""

    began: str
    """RFC 3339."""
    machine: Sequence[Fact]
    parts: Sequence[PartReport]
    left_behind: Sequence[str] = ()
    """What could not be removed at the end."""
    version: int = VERSION

    @property
    def status(self) -> int:
        """The exit status: 1 if a statement was disproven, 3 if a part broke off, else 0."""
        if any(isinstance(part.outcome, Disproven) for part in self.parts):
            return 1
        broke_off = any(part.broke_off is not None for part in self.parts)
        return 3 if broke_off or self.left_behind else 0


REPORT: Final = TypeAdapter(ProofReport)


def markdown(report: ProofReport) -> str:
    """Returns the report as a text."""
    return "\n".join(_lines(report)) + "\n"


def summary(part: PartReport) -> str:
    """Returns what came of a part, as a line."""
    if part.broke_off is not None:
        return f"{part.part}: broke off, {part.broke_off}"
    return f"{part.part}: {_words(part.outcome)}"


def _lines(report: ProofReport) -> Iterator[str]:
    yield from ("# Proof on a GPU", "", f"Begun {report.began}.", "")
    yield from ("| machine | |", "|---|---|")
    yield from (f"| {fact.sentence} | {_cell(fact.value)} |" for fact in report.machine)
    for part in report.parts:
        yield from ("", f"## {summary(part)}", "", f"It took {part.seconds:.1f} s.")
        if part.verdicts:
            yield from ("", "| statement | | result |", "|---|---|---|")
        for verdict in part.verdicts:
            statement = verdict.statement
            same = verdict.outcome == part.outcome  # the heading has the reason
            words = verdict.outcome.result if same else _cell(_words(verdict.outcome))
            yield f"| `{statement.name}` | {_cell(statement.sentence)} | {words} |"
        if part.facts:
            yield from ("", "| fact | | value |", "|---|---|---|")
        for fact in part.facts:
            yield f"| `{fact.name}` | {_cell(fact.sentence)} | {_cell(fact.value)} |"
    if report.left_behind:
        yield from ("", "## Left behind", "")
        yield from (f"- {left}" for left in report.left_behind)


def _words(outcome: ProofOutcome) -> str:
    match outcome:
        case Proven(measured):
            return f"**proven**: {measured}"
        case Disproven(measured):
            return f"**disproven**: {measured}"
        case NotTried(reason):
            return f"not tried: {reason}"
    assert_never(outcome)


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
