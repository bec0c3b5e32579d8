"""Runs one of the benchmarks by its name, in a process of its own."""

from dataclasses import dataclass
from typing import Final

from tests.benchmarks import allocator, image, kube_scheduler, plugin, report
from tests.benchmarks.controller import comparison
from tests.benchmarks.engine import MEASURES
from tests.benchmarks.fleets import SCENARIOS
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.packing import measure as packing

FULL_SIZE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and how."""

    scale: float
    compare: bool

    @property
    def judge(self) -> bool:
        """Whether goals say anything: they are for fleets of full size."""
        return self.scale >= FULL_SIZE


def run(name: str, options: Options) -> list[Measurement]:
    """Measures and prints, and returns what was measured."""
    measurements: list[Measurement] = []

    def hear(measurement: Measurement) -> None:
        measurements.append(measurement)
        report.say(measurement, judge=options.judge)

    if name == plugin.NAME:
        plugin.measure(hear)
    elif name == image.NAME:
        image.measure(hear)
    elif name == kube_scheduler.NAME:
        kube_scheduler.measure(hear, scale=options.scale)
    elif name == comparison.NAME:
        comparison.measure(hear, scale=options.scale)
    elif name == packing.NAME:
        packing.measure(hear, scale=options.scale)
    elif name in MEASURES:
        print(f"\n{name}", flush=True)
        MEASURES[name](hear, scale=options.scale)
    else:
        (scenario,) = (each for each in SCENARIOS if each.name == name)
        nodes = allocator.size(scenario, options.scale)
        print(f"\n{name}: {scenario.about.format(nodes=f'{nodes:,}')}", flush=True)
        allocator.measure(scenario, hear, scale=options.scale, compare=options.compare)
    return measurements
