"""How soon a write is tried again that has failed."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from carina_dra.kube.errors import ApiError, Conflict, NotFound

EVICTION: Final = 5.0
"""Seconds before a refused eviction is tried again."""
_RACE: Final = 0.1
"""Seconds before a decision is made again of which an object had changed."""
_FAILURE: Final = 1.0
"""Seconds before one is made again that failed for another reason."""
_LONGEST: Final = 60.0
_DOUBLINGS: Final = 10


def is_race(error: Exception) -> bool:
    """Whether an object had changed before the write reached it."""
    return isinstance(error, Conflict | NotFound)


def delay(error: Exception | None) -> float:
    """Seconds before something is tried again that ended with an error; 0 without one."""
    if error is None:
        return 0.0
    return _RACE if is_race(error) else _FAILURE


@dataclass(frozen=True, slots=True)
class Retry:
    """How a group is decided on again whose start has failed."""

    seconds: float
    keeps: bool
    """Whether it keeps its devices meanwhile: the start is completed soon. One that the API server
    refuses would keep them for nothing."""


class StartRetries:
    """Delays groups the longer the more often their start has failed in a row."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def failed(self, group: str, error: Exception) -> Retry:
        """Counts a failure."""
        times = self._failures[group] = self._failures.get(group, 0) + 1
        seconds = min(delay(error) * 2 ** min(times - 1, _DOUBLINGS), _LONGEST)
        is_retriable = isinstance(error, ApiError) and error.retriable
        return Retry(seconds, keeps=is_race(error) or is_retriable)

    def started(self, group: str) -> None:
        """Forgets the failures of a group that has started."""
        self._failures.pop(group, None)

    def forget_all_but(self, groups: Container[str]) -> None:
        """Forgets the failures of groups that are gone."""
        self._failures = {key: times for key, times in self._failures.items() if key in groups}
