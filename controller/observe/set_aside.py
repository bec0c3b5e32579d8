"""Objects that cannot be read, applied or acted on: each is set aside, so that all others go on.

Tenants write objects. A defect that one of them meets must neither end the controller nor reach
another tenant. The object is tried again when it changes; where the same work comes up in every
cycle, also without a change, later and later.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

_FIRST: Final = 10.0
"""Seconds for which an object is set aside the first time; they double each time."""
_LONGEST: Final = 900.0
_REMEMBERED: Final = 3600.0
"""Seconds after which nothing is known any more of work that has not come up again."""

Report: TypeAlias = Callable[[str, str, str, Exception], None]
"""Takes the resource and the `namespace/name` of an object, what was being done, and the error."""


class _Failure(NamedTuple):
    """Work that an object has failed at."""

    times: int
    """How often in a row."""
    until: float | None
    """When it is tried again, as a Unix time; None for when the object changes."""


def _tell_nobody(_resource: str, _key: str, _doing: str, _error: Exception) -> None:
    pass


@dataclass(slots=True)
class SetAsideObjects:
    """The objects that are set aside at present. Used by any thread: each step is atomic."""

    report: Report = _tell_nobody
    """Is told of each object that is set aside."""
    clock: Callable[[], float] = lambda: 0.0
    """Gives the Unix time; without it, time stands still."""
    _failed: dict[tuple[str, str], dict[str, _Failure]] = field(default_factory=dict)
    """By resource and `namespace/name`: what was being done."""

    def attempt(self, resource: str, key: str, doing: str, work: Callable[[], object]) -> bool:
        """Does work for one object; whether it succeeded. If not, the object is set aside.

        doing: what is being done, such as `applied`; success ends what failed under the same word.
        """
        return self._attempt(resource, key, doing, work, comes_again=False)

    def attempt_when_due(
        self, resource: str, key: str, doing: str, work: Callable[[], object]
    ) -> bool:
        """Does work that comes up in every cycle, unless it is too soon after it has failed.

        Whether it was done. It is tried again after 10 s, and twice as long each further time.
        """
        failure = self._failed.get((resource, key), {}).get(doing)
        if failure is not None and (failure.until or 0) > self.clock():
            return False
        return self._attempt(resource, key, doing, work, comes_again=True)

    def each(
        self,
        resource: str,
        doing: str,
        keys: Iterable[str],
        work: Callable[[str], Iterable[T]],
    ) -> Iterator[T]:
        """What work gives for each of these objects; nothing for one that fails at it."""
        for key in keys:
            found: list[T] = []
            if self.attempt_when_due(resource, key, doing, partial(_collect, found, work, key)):
                yield from found

    def until(self, resource: str, key: str) -> float:
        """Until when an object is set aside at least in part, as a Unix time; 0 if it is not."""
        failures = list(self._failed.get((resource, key), {}).values())
        return max((each.until or 0 for each in failures), default=0)

    def forget(self, resource: str, key: str) -> None:
        """The object is gone."""
        self._failed.pop((resource, key), None)

    def counts(self) -> Mapping[str, int]:
        """By resource: how many objects are set aside."""
        self._expire()
        return Counter(resource for resource, _ in list(self._failed))

    def _attempt(
        self,
        resource: str,
        key: str,
        doing: str,
        work: Callable[[], object],
        *,
        comes_again: bool,
    ) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a defect must not reach what belongs to others
            failures = self._failed.setdefault((resource, key), {})
            known = failures.get(doing)
            times = 1 if known is None else known.times + 1
            wait = min(_FIRST * 2 ** min(times - 1, 10), _LONGEST)
            failures[doing] = _Failure(times, self.clock() + wait if comes_again else None)
            self._expire()
            self.report(resource, key, doing, error)
            return False
        if self._failed and doing in (failures := self._failed.get((resource, key), {})):
            failures.pop(doing, None)
            if not failures:
                self.forget(resource, key)
        return True

    def _expire(self) -> None:
        """Forgets work that has not come up again for long: its object is gone, or has changed."""
        over = self.clock() - _REMEMBERED
        for of_object, failures in list(self._failed.items()):
            for doing, failure in list(failures.items()):
                if failure.until is not None and failure.until < over:
                    failures.pop(doing, None)
            if not failures:
                self._failed.pop(of_object, None)


def _collect(found: list[T], work: Callable[[str], Iterable[T]], key: str) -> None:
    found.extend(work(key))
