"""The packing benchmark: percent of GPUs that are not given out, beside published policies."""

from statistics import mean
from typing import Final

from carina_dra.allocator.preference import DEFAULT
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.packing import partitions
from tests.benchmarks.packing.experiment import run, scaled
from tests.benchmarks.packing.trace import (
    WORKLOADS,
    arrivals,
    node_kinds,
    published,
    until,
    workload,
)
from tests.benchmarks.subject import Hear

NAME: Final = "packing"
_SEEDS: Final = range(3)
_BEST: Final = "FGD"
_AHEAD: Final = 0.3
"""Percent of all GPUs that the mean is to be better than the best published policy."""
_BESIDE: Final = ("FGD", "BestFit", "Random")


def measure(hear: Hear, *, scale: float = 1) -> None:
    """Measures the default placement on each workload, for several seeds, and the mean of all."""
    nodes = list(scaled(node_kinds(), scale))
    gpus = sum(kind.count * kind.gpus for kind in nodes)
    all_gpus = sum(kind.count * kind.gpus for kind in node_kinds())
    means, goals = [], []
    for name in WORKLOADS:
        kinds = workload(name)
        outcomes = [
            run(nodes, until(arrivals(kinds, all_gpus, seed), gpus), DEFAULT) for seed in _SEEDS
        ]
        left = [100 - outcome.given for outcome in outcomes]
        beside = published(name)
        means.append(mean(left))
        goals.append(100 - beside[_BEST])
        others = ", ".join(f"{policy} {100 - beside[policy]:.2f}" for policy in _BESIDE)
        no_cpu = mean(outcome.without_cpu for outcome in outcomes)
        hear(
            Measurement(
                NAME,
                f"{name}: GPUs not given out when pods asked for all",
                means[-1],
                "%",
                max(left),
                goals[-1],
                note=f"published: {others}; on nodes with less than 4 free cores {no_cpu:.2f}",
            )
        )
    goal = mean(goals) - _AHEAD
    hear(Measurement(NAME, "the mean of all workloads", mean(means), "%", goal=goal))
    partitions.measure(NAME, hear, scale=scale)
