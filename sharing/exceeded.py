"""Whether a use has exceeded its memory, from one sample to the next.

It has once two samples in a row are above what it was given by more than a margin, since the first
of them. It has no longer once two samples in a row are not above what it was given. Between the two
limits nothing changes, so that a use at a limit is not reported again and again. One sample says
little: a driver may count memory that is being freed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

LEAST_MARGIN_MIB: Final = 64
MARGIN_PERCENT: Final = 2
IN_A_ROW: Final = 2


@dataclass(frozen=True, slots=True)
class Exceeded:
    """What the samples of a use have shown."""

    since: float | None = None
    """In seconds since 1970; None if it has not."""
    times: int = 0
    """How many times it has begun to."""
    turning_since: float | None = None
    """The time of the first sample in a row that says the opposite."""
    turning: int = 0
    """The number of these samples."""

    def after(self, used_mib: int, given_mib: int, now: float) -> "Exceeded":
        """What it is after a sample."""
        opposite = used_mib > limit_mib(given_mib) if self.since is None else used_mib <= given_mib
        if not opposite:
            return replace(self, turning_since=None, turning=0)
        first = now if self.turning_since is None else self.turning_since
        if self.turning + 1 < IN_A_ROW:
            return replace(self, turning_since=first, turning=self.turning + 1)
        if self.since is None:
            return Exceeded(first, self.times + 1)
        return Exceeded(None, self.times)

    @classmethod
    def joined(cls, parts: Sequence["Exceeded"]) -> "Exceeded":
        """What it is of a use that others have become, which is given something else.

        It has exceeded if all have; so nobody is said to who was not.
        """
        since = [part.since for part in parts if part.since is not None]
        return cls(
            max(since) if len(since) == len(parts) else None, max(part.times for part in parts)
        )

    def unseen(self) -> "Exceeded":
        """What it is where there was no sample: those after it are not in a row with it."""
        return replace(self, turning_since=None, turning=0)


def limit_mib(given_mib: int) -> int:
    """Returns the memory above which a use has exceeded what it was given, in MiB."""
    return given_mib + max(LEAST_MARGIN_MIB, given_mib * MARGIN_PERCENT // 100)
