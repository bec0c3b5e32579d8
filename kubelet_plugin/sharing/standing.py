"""Whether claims keep within the memory of their shares, as far as it is watched. Pure values.

It follows from one report of carina-sharing after the other. Who exceeds a share again and again
has exceeded it all along, until it has kept within it for `CALM` seconds, and so it is with one
whose processes are ended: so a claim's status and its Events change a few times an hour at most,
whatever its processes do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from carina_dra.sharing.message import EndedProcess, ShareUse, SharingReport, WantedShare

CALM: Final = 300.0
"""Seconds within its share after which a claim counts as within it again."""
_REASON_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class WithinShare:
    """The processes use no more memory than given."""


@dataclass(frozen=True, slots=True)
class ShareExceeded:
    """They have used more, now or in the last `CALM` seconds."""

    since: float
    """When it began, in seconds since 1970."""
    used_mib: int
    """When it was first seen."""
    given_mib: int
    """To the claims of the pods together."""
    seen: float = field(compare=False)
    """When they last did, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class EndedViolator:
    """carina-sharing has ended a process of theirs in the last `CALM` seconds."""

    first: EndedProcess
    """Of those seconds."""
    given_mib: int
    """To the claims of the pods together."""
    seen: float = field(compare=False)
    """When it ended the last, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class NotWatched:
    """The processes of the GPU cannot be told."""

    reason: str


ShareStanding: TypeAlias = WithinShare | ShareExceeded | EndedViolator | NotWatched
Standings: TypeAlias = Mapping[tuple[str, str], ShareStanding]
"""By the UIDs of claims and the UUIDs of GPUs; without shares of which nothing is reported."""


def standings(before: Standings, shares: Iterable[WantedShare], report: SharingReport) -> Standings:
    """Returns how it is with the shares, by a report and how it was before."""
    uses = {(claim, use.gpu): use for use in report.uses for claim in use.claims}
    unwatched = {gpu.gpu: gpu.reason for gpu in report.unwatched}
    found: dict[tuple[str, str], ShareStanding] = {}
    for share in shares:
        key = share.claim.uid, share.gpu
        if share.gpu in unwatched:
            found[key] = NotWatched(printable(unwatched[share.gpu]))
        elif key in uses:
            found[key] = _standing(before.get(key), uses[key], report.time)
    return found


def printable(text: str, most: int = _REASON_LENGTH) -> str:
    """Returns the text in one line of a length that fits into messages and labels."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def _standing(before: ShareStanding | None, use: ShareUse, at: float) -> ShareStanding:
    last = use.last_ended
    if last is not None and 0 <= at - last.time < CALM:
        if isinstance(before, EndedViolator):
            return replace(before, seen=last.time)
        return EndedViolator(last, use.given_mib, last.time)
    if isinstance(before, EndedViolator) and 0 <= at - before.seen < CALM:
        return before  # carina-sharing has started again
    known = before if isinstance(before, ShareExceeded) else None
    if use.exceeded_since is not None:
        if known is None:
            return ShareExceeded(use.exceeded_since, use.used_mib, use.given_mib, at)
        return replace(known, seen=at)
    if known is not None and 0 <= at - known.seen < CALM:
        return known
    return WithinShare()
