"""Why a group waits, for conditions and Events: a word for programs, and a text for people."""

from collections.abc import Sequence
from typing import Final, assert_never

from controller.model.reason import (
    BadClaim,
    Behind,
    CutOffQueue,
    Delayed,
    NoDomain,
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    OverQuota,
    Reason,
    SearchCut,
    TooFewPods,
    UnknownQueue,
)

NOT_DECIDED: Final = "NotDecided"
"""The word for a group that has no reason yet."""


def reason_word(reason: Reason) -> str:
    """The CamelCase word of a reason, as `reason` of a condition or an Event.

    The words are part of the API: programs match them.
    """
    match reason:
        case UnknownQueue(exists=True):
            return "QueueHasChildren"
        case CutOffQueue():
            return "QueueCutOff"
        case Delayed():
            return "EvictionDelayed"
        case Behind():
            return "BehindReservation"
        case SearchCut():
            return "SearchContinues"
        case (
            UnknownQueue()
            | TooFewPods()
            | BadClaim()
            | OverLimit()
            | OverQuota()
            | NoRoom()
            | NoDomain()
            | OverFairShare()
            | NoVictims()
        ):
            return type(reason).__name__
    assert_never(reason)


def waiting_word(reasons: Sequence[Reason]) -> str:
    """The word for a group: that of the first reason, which allocation gave.

    The reasons that follow it say why nobody is evicted for the group.
    """
    return reason_word(reasons[0]) if reasons else NOT_DECIDED


def waiting_text(reasons: Sequence[Reason]) -> str:
    """All reasons in a line."""
    if not reasons:
        return "its turn has not come yet"
    return "; ".join(dict.fromkeys(map(str, reasons)))
