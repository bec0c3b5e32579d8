"""A simulation as lines over time, for pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from controller.engine.simulate.record import Record, Sample


@dataclass(frozen=True, slots=True)
class Series:
    """Means over equal parts of the time of a simulation."""

    hours: Sequence[float]
    """The bounds of the parts: one more than there are parts."""
    gpus: Sequence[float]
    """How many there are."""
    in_use: Mapping[str, Sequence[float]]
    """GPUs, by queue."""
    waiting: Mapping[str, Sequence[float]]
    """Jobs, by queue."""


def series(record: Record, parts: int) -> Series:
    """The lines of a simulation."""
    span = max(record.end - record.start, 1)
    bounds = [span * index / parts for index in range(parts + 1)]

    def line(quantity: Callable[[Sample], float]) -> list[float]:
        return _means(record, [record.start + bound for bound in bounds], quantity)

    return Series(
        hours=[bound / 3600 for bound in bounds],
        gpus=line(lambda sample: sample.gpus),
        in_use={queue: line(partial(_in_use, queue)) for queue in record.queues},
        waiting={queue: line(partial(_waiting, queue)) for queue in record.queues},
    )


def _in_use(queue: str, sample: Sample) -> float:
    return sample.in_use[queue]


def _waiting(queue: str, sample: Sample) -> float:
    return sample.waiting[queue]


def _means(
    record: Record, bounds: Sequence[float], quantity: Callable[[Sample], float]
) -> list[float]:
    """The mean of a quantity between each two bounds."""
    total, integral = 0.0, [0.0]
    at, value, index = bounds[0], 0.0, 0
    samples = record.samples
    for bound in bounds[1:]:
        while index < len(samples) and samples[index].at <= bound:
            total += value * (samples[index].at - at)
            at, value = samples[index].at, quantity(samples[index])
            index += 1
        total += value * (bound - at)
        at = bound
        integral.append(total)
    width = bounds[1] - bounds[0]
    return [(after - before) / width for before, after in pairwise(integral)]
