"""Why a group waits for now: what is put off, and what was not found out."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

_LATEST: Final = 253_402_300_799
"""The Unix time of the last second that can be written, in the year 9999."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """Nothing is evicted for it before this time."""

    word: ClassVar = "EvictionDelayed"

    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return f"nothing is evicted for it before {time_text(self.until)}"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "wait until then, or lower its preemption delay"


@dataclass(frozen=True, slots=True)
class Behind:
    """It would delay a group that holds a reservation."""

    word: ClassVar = "BehindReservation"

    group: str
    """Empty where its name is not for the reader."""

    def __str__(self) -> str:
        which = f"group {self.group}, which" if self.group else "a group that"
        return f"it would delay {which} holds a reservation"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "declare a run time that ends before the reservation, or wait"


@dataclass(frozen=True, slots=True)
class RefusedByScheduler:
    """Its start was refused, by kube-scheduler or the API server; it is tried later and later."""

    word: ClassVar = "RefusedByScheduler"

    words: str
    """By whom, and why, in their words."""

    def __str__(self) -> str:
        return f"its start was refused by {self.words}"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "correct the pod template, or what it names; the next attempt comes by itself"


@dataclass(frozen=True, slots=True)
class SearchCut:
    """The search for victims reached its limit in this cycle, and goes on in the next."""

    word: ClassVar = "SearchContinues"

    action: str
    looked_at: int
    """At how many nodes it has looked so far."""

    def __str__(self) -> str:
        return f"{self.action}: {self.looked_at} nodes looked at so far; the search goes on"

    @property
    def remedy(self) -> str:
        """What would help."""
        return "nothing to do: the next cycle goes on"


@dataclass(frozen=True, slots=True)
class DecisionFailed:
    """Deciding on it failed with an unexpected error, so it is set aside for a while."""

    word: ClassVar = "DecisionFailed"

    error: str
    """The class of the error; its text may name what belongs to others."""
    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return (
            f"deciding on it failed with an unexpected error ({self.error}); it is tried again at "
            f"{time_text(self.until)}, or when it has changed"
        )

    @property
    def remedy(self) -> str:
        """What would help."""
        return "change what is unusual about it, and report the error, which the log has"


@dataclass(frozen=True, slots=True)
class Undecided:
    """An attempt has cost more than it may, so it is not known whether there is a place."""

    word: ClassVar = "Undecided"

    steps: int
    """What it has cost, in steps of about 10 microseconds."""
    about: str
    """What it was spent on, such as `pod team/train-0`."""
    until: float
    """Unix time in seconds."""

    def __str__(self) -> str:
        return (
            f"undecided after {self.steps} steps of work, at {self.about}; it is tried again at "
            f"{time_text(self.until)}, or when it has changed"
        )

    @property
    def remedy(self) -> str:
        """What would help."""
        return "ask for less at once, by simpler selectors, fewer constraints or a smaller gang"


def time_text(time: float) -> str:
    """Returns a Unix time in seconds as RFC 3339 has it, in UTC, up to the year 9999.

    It is rounded up to a second: what is due then is not due before.
    """
    second = math.ceil(min(time, _LATEST))
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat() + "Z"
