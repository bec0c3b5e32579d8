"""A number that was measured, with its goal and what upstream takes for the same."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

Typical: TypeAlias = Callable[[Iterable[float]], float]
"""The mean, or the median."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """How long upstream takes for one pod, in the unit of the measurement."""

    all_nodes: float | None = None
    """Every node is tried, as is necessary to choose the best one."""
    some_nodes: float | None = None
    """As kube-scheduler does on 5,000 nodes: until 500 suitable nodes are found."""
    first_fit: float | None = None
    """Until one suitable node is found."""


NOT_MEASURED: Final = Upstream()


@dataclass(frozen=True, slots=True)
class Measurement:
    """A result; a smaller value is better."""

    fleet: str
    what: str
    value: float
    """The mean for claims that get their devices one after the other; otherwise the median."""
    unit: str
    worst: float | None = None
    goal: float | None = None
    upstream: Upstream = NOT_MEASURED
    limited_by_upstream: bool = True
    """Whether the value must not exceed upstream's for all nodes."""
    note: str = ""
    """What to know about the value, such as how many pods had a place."""
    kai: float | None = None
    """What KAI Scheduler published for the same: end to end, its API server included."""

    @classmethod
    def of_times(
        cls,
        fleet: str,
        what: str,
        times_ms: list[float],
        *,
        goal: float | None,
        upstream: Upstream,
        limited_by_upstream: bool,
        typical: Typical = median,
        note: str = "",
    ) -> "Measurement":
        """The typical and the worst of times in milliseconds."""
        return cls(
            fleet,
            what,
            typical(times_ms),
            "ms",
            max(times_ms),
            goal,
            upstream,
            limited_by_upstream,
            note,
        )

    @property
    def ratio(self) -> float | None:
        """The time as a part of upstream's for all nodes."""
        return None if self.upstream.all_nodes is None else self.value / self.upstream.all_nodes

    @property
    def has_goal(self) -> bool:
        """Whether there is a goal, of its own or that of all decisions."""
        return self.goal is not None or self._limit is not None

    @property
    def is_met(self) -> bool:
        """Whether the goals that there are have been met."""
        return all(goal is None or self.value <= goal for goal in (self.goal, self._limit))

    @property
    def _limit(self) -> float | None:
        return self.upstream.all_nodes if self.limited_by_upstream else None
