"""What the plugin does on a node, by name, so that a child process can do it."""

from typing import Literal, TypeAlias

from tests.integration.mig.agreement import TwoGpus

Verb: TypeAlias = Literal["prepare", "unprepare", "repair"]
Operation: TypeAlias = tuple[Verb, str]
"""The verb and the claim; no claim for a repair."""

REPAIR: Operation = ("repair", "")


def carry_out(node: TwoGpus, operation: Operation) -> None:
    """Carries it out; raises ClaimError."""
    match operation:
        case "prepare", claim:
            node.prepare(claim)
        case "unprepare", claim:
            node.unprepare(claim)
        case "repair", _:
            node.repair()
