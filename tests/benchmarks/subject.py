"""A scenario under measurement: its fleet, loaded into both allocators."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Scenario
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.upstream import UpstreamAllocator

T = TypeVar("T")
Hear: TypeAlias = Callable[[Measurement], None]
_LIMIT_S: Final = 20.0


@dataclass(slots=True)
class Subject:
    """What measurements act on."""

    scenario: Scenario
    nodes: int
    """The number of nodes."""
    carina: Carina
    upstream: UpstreamAllocator | None
    """None if Carina is measured alone."""
    hear: Hear
    """Receives each measurement as soon as it is made."""
    held: list[str] = field(default_factory=list)
    """The keys of the claims that hold devices."""

    @property
    def name(self) -> str:
        """The name of the fleet."""
        return self.scenario.name


def in_time(items: Iterable[T], limit_s: float = _LIMIT_S) -> Iterator[T]:
    """The items until the time of a measurement is over; at least one."""
    end = time.monotonic() + limit_s
    for item in items:
        yield item
        if time.monotonic() > end:
            return
