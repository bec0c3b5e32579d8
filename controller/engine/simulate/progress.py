"""How far a job is with its work."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.engine.model.group import Group, is_satisfied


@dataclass(slots=True)
class Progress:
    """The work of a job that does `rate` seconds of it in a second."""

    work: float | None
    """Seconds with all of its pods; None for a job that does not end."""
    checkpoints: bool
    done: float = 0
    rate: float = 0
    since: float = 0
    """Up to when `done` counts."""
    lost: float = field(default=0)
    """Seconds of work that were done and lost."""

    def advance(self, now: float, rate: float) -> None:
        """Counts the work up to now, and works at another rate from now on.

        A job that stops keeps what it has done only if it saves it.
        """
        self.done += (now - self.since) * self.rate
        self.since, self.rate = now, rate
        if rate == 0 and not self.checkpoints:
            self.lost += self.done
            self.done = 0

    def end(self) -> float | None:
        """When it has done its work if nothing changes; None for never."""
        if self.work is None or self.rate == 0:
            return None
        return self.since + max(0.0, self.work - self.done) / self.rate


def has_minimum(group: Group, placed: Mapping[str, int]) -> bool:
    """Whether a group has the pods that it needs; `placed` counts them by pod set."""
    return any(placed.values()) and is_satisfied(group.root, placed)
