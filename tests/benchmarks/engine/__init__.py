"""The engine in numbers: whole cycles on snapshots, from the values of a cluster to a plan."""

from collections.abc import Mapping
from typing import Final, Protocol

from tests.benchmarks.engine import changes, growth, published, scenarios
from tests.benchmarks.subject import Hear


class Measure(Protocol):
    """Measures and reports."""

    def __call__(self, hear: Hear, *, scale: float) -> None:
        """On clusters of `scale` times the full size."""


MEASURES: Final[Mapping[str, Measure]] = {
    scenarios.NAME: scenarios.measure,
    changes.NAME: changes.measure,
    published.NAME: published.measure,
    **growth.MEASURES,
}
"""By name, each to be run in a process of its own."""
