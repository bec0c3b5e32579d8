"""Random durations and arrivals, drawn from a seeded generator so that a run can be repeated."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Final, TypeAlias, assert_never

from carina_dra.resource.value_codec import Codec
from controller.engine.files.amount import Seconds, read_duration, write_duration
from controller.engine.files.value import codec_of

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same; written as a duration alone."""

    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Uniform:
    """Equally likely between two bounds."""

    least: Seconds
    most: Seconds

    def __post_init__(self) -> None:
        """Checks the order of the bounds."""
        if self.least > self.most:
            raise ValueError("least is more than most")


@dataclass(frozen=True, slots=True)
class Exponential:
    """Many short ones, few long ones."""

    mean: Seconds


@dataclass(frozen=True, slots=True)
class LogNormal:
    """As durations of jobs are in practice: half are below the median, some far above it."""

    median: Seconds
    sigma: float = 1
    """Of the logarithm: about a sixth are more than e^sigma times the median."""
    most: Seconds | None = None


_Random: TypeAlias = Uniform | Exponential | LogNormal


def _read(value: object) -> Any:
    if isinstance(value, dict):
        return codec_of(_Random).read(value)
    return Constant(read_duration(value))


def _write(value: Any) -> object:
    if isinstance(value, Constant):
        return write_duration(value.seconds)
    return codec_of(_Random).write(value)


Distribution: TypeAlias = Annotated[Constant | _Random, Codec(_read, _write)]


def draw(distribution: Constant | _Random, random: Random) -> float:
    """A duration in seconds, at least one and in whole seconds."""
    match distribution:
        case Constant(seconds=seconds):
            return seconds
        case Uniform(least=least, most=most):
            drawn = random.uniform(least, most)
        case Exponential(mean=mean):
            drawn = random.expovariate(1 / mean) if mean else 0
        case LogNormal(median=median, sigma=sigma, most=limit):
            drawn = median * math.exp(random.gauss(0, sigma))
            drawn = drawn if limit is None else min(drawn, limit)
        case _:
            assert_never(distribution)
    return float(max(1, round(drawn)))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Independent arrivals (a Poisson process) at a rate that may follow the time of day."""

    per_hour: float
    """The mean over a day."""
    daily: float = 0
    """By which part of it the rate is higher at the peak, and lower half a day later; up to 1."""
    peak: Seconds = 14 * _HOUR
    """When the rate is highest, after the start of each day."""

    def __post_init__(self) -> None:
        """Checks the rate."""
        if not 0 < self.per_hour < math.inf:
            raise ValueError(f"perHour is {self.per_hour}; it must be more than 0")
        if not 0 <= self.daily <= 1:
            raise ValueError(f"daily is {self.daily}; it must be from 0 to 1")

    def times(self, first: float, last: float, random: Random) -> Iterator[float]:
        """The times of arrival from first to last, in whole seconds."""
        most = self.per_hour * (1 + self.daily)
        now = first
        while True:
            now += random.expovariate(most / _HOUR)
            if now > last:
                return
            turn = math.cos(2 * math.pi * (now - self.peak) / _DAY)
            if random.random() * most <= self.per_hour * (1 + self.daily * turn):
                yield float(round(now))
