"""Why a group waits, for conditions and Events: one word and one text for all its reasons."""

from collections.abc import Sequence
from typing import Final

from controller.engine.model.reason import (
    BadClaim,
    Behind,
    ClosedQueue,
    CutOffQueue,
    ExclusiveDevices,
    NoVictims,
    Reason,
    TooFewPods,
    UncountedGpus,
    UnknownQueue,
)

NOT_DECIDED: Final = "NotDecided"
"""The word for a group that has no reason yet."""


def waiting_word(reasons: Sequence[Reason]) -> str:
    """The word for a group: that of the first reason, which allocation gave.

    The reasons that follow it say why nobody is evicted for the group.
    """
    return reasons[0].word if reasons else NOT_DECIDED


def waiting_text(reasons: Sequence[Reason]) -> str:
    """All reasons in a line, each fact once."""
    if not reasons:
        return "its turn has not come yet"
    texts: dict[str, None] = {}
    for reason in reasons:
        text = str(reason)
        if isinstance(reason, NoVictims) and str(reason.why) in texts:
            text = reason.result
        texts[text] = None
    return "; ".join(texts)


def needs_its_user(reason: Reason) -> bool:
    """Whether the user has to change something: time alone does not help."""
    return isinstance(
        reason,
        UnknownQueue
        | CutOffQueue
        | ClosedQueue
        | TooFewPods
        | BadClaim
        | ExclusiveDevices
        | UncountedGpus,
    )


def for_tenant(reasons: Sequence[Reason], namespace: str) -> tuple[Reason, ...]:
    """The reasons without the names of groups of other namespaces."""
    return tuple(_for_tenant(reason, namespace) for reason in reasons)


def _for_tenant(reason: Reason, namespace: str) -> Reason:
    match reason:
        case Behind(group=group) if not group.startswith(f"{namespace}/"):
            return Behind("")
        case _:
            return reason
