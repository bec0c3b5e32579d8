"""What a part finds: what came of its statements, and facts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class ProofStatement:
    """What is to be proven."""

    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Proven:
    """It was tried, and holds."""

    measured: str
    result: Literal["proven"] = "proven"


@dataclass(frozen=True, slots=True)
class Disproven:
    """It was tried, and does not hold."""

    measured: str
    result: Literal["disproven"] = "disproven"


@dataclass(frozen=True, slots=True)
class NotTried:
    """It could not be tried."""

    reason: str
    result: Literal["not tried"] = "not tried"


ProofOutcome: TypeAlias = Proven | Disproven | NotTried


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """What came of a statement."""

    statement: ProofStatement
    outcome: ProofOutcome


@dataclass(frozen=True, slots=True)
class Fact:
    """What was measured and is not judged, because Carina promises nothing of it."""

    name: str
    sentence: str
    value: str


ProofFinding: TypeAlias = ProofVerdict | Fact
FINDING: TypeAdapter[ProofFinding] = TypeAdapter(ProofFinding)


def judged(statement: ProofStatement, measured: str, *, holds: bool) -> ProofVerdict:
    """Returns that a statement holds, or that it does not."""
    return ProofVerdict(statement, Proven(measured) if holds else Disproven(measured))


def untried(statements: Iterable[ProofStatement], reason: str) -> Iterable[ProofVerdict]:
    """Returns that these statements could not be tried."""
    return (ProofVerdict(statement, NotTried(reason)) for statement in statements)


@dataclass(frozen=True, slots=True)
class PartReport:
    """All that a part has found."""

    part: str
    seconds: float
    verdicts: Sequence[ProofVerdict]
    """Of each of its statements."""
    facts: Sequence[Fact]
    broke_off: str | None = None
    """Why it did not come to its end."""

    @property
    def outcome(self) -> ProofOutcome:
        """What came of the part: disproven if a statement was, and proven if only some were tried.

        Without a statement, a part is proven by coming to its end.
        """
        outcomes = [verdict.outcome for verdict in self.verdicts]
        for outcome in outcomes:
            if isinstance(outcome, Disproven):
                return outcome
        proven = sum(isinstance(outcome, Proven) for outcome in outcomes)
        if proven:
            return Proven(f"{proven} of {len(outcomes)} statements")
        reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, NotTried)]
        return NotTried("; ".join(dict.fromkeys(reasons)))


def part_report(
    part: str,
    seconds: float,
    statements: Collection[ProofStatement],
    findings: Collection[ProofFinding],
    broke_off: str | None,
) -> PartReport:
    """Returns the report of a part. What it did not come to was not tried."""
    verdicts = {found.statement: found for found in findings if isinstance(found, ProofVerdict)}
    reason = f"the part broke off: {broke_off}" if broke_off else "the part did not come to it"
    missing = [statement for statement in statements if statement not in verdicts]
    verdicts |= {found.statement: found for found in untried(missing, reason)}
    facts = [found for found in findings if isinstance(found, Fact)]
    in_order = [verdicts[statement] for statement in statements]
    return PartReport(part, seconds, in_order, facts, broke_off)
