"""The fleets on which the allocator is measured, one module a kind of fleet."""

from typing import Final

from tests.benchmarks.fleet import Scenario
from tests.benchmarks.fleets import (
    alike,
    constrained,
    crossing,
    dense,
    mig,
    network,
    published,
    shares,
    taint,
    unlike,
    worst,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    alike.ALIKE,
    alike.PLAIN,
    alike.FULL,
    unlike.SCENARIO,
    mig.SCENARIO,
    shares.SCENARIO,
    constrained.SCENARIO,
    crossing.SCENARIO,
    network.ALL_NODES,
    network.RACKS,
    taint.SCENARIO,
    alike.LARGE,
    dense.SCENARIO,
    published.WHOLE,
    published.WHOLE_WITH_MIG,
    published.PARTITIONED,
    worst.SCENARIO,
)
"""In the order in which they are measured."""
