"""Measures many claims that come and go: a gang, releases, and the growth of memory."""

from collections.abc import Callable
from random import Random
from statistics import fmean
from typing import Final

from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Kind, Pod, key_of, pages
from tests.benchmarks.measurement import NOT_MEASURED, Measurement, Upstream
from tests.benchmarks.memory import resident_kib
from tests.benchmarks.stopwatch import cpu_ms
from tests.benchmarks.subject import Subject, in_time
from tests.benchmarks.upstream import FIRST_FIT, typical_ms

GANG: Final = 512
RELEASES: Final = 4000
_CHURN: Final = 10_000
_WARM: Final = 10_000
"""Claims that come and go before memory is looked at."""
_PART: Final = 20
"""The part of the fleet that they are given, so that each device is used several times before. What
is known of a device is made when it is first looked at, and does not grow."""
_CHURN_LIMIT_S: Final = 60.0
_GROWTH_GOAL_KIB: Final = 0.5
"""As near to nothing as resident memory can be measured."""


def gang(subject: Subject, goal_s: float) -> None:
    """Pods that ask for one device each, one after the other. They keep their devices."""
    pods = [subject.scenario.one(number) for number in range(GANG)]
    subject.carina.place(pods[0])
    begun = cpu_ms()
    given = [subject.carina.give(pod) for pod in in_time(pods)]
    took = cpu_ms() - begun
    subject.held += [key for keys in given for key in keys]
    upstream = NOT_MEASURED
    if subject.upstream is not None:
        first_fits = subject.upstream.ask(pods[:64], enough=FIRST_FIT, give=True)
        typical = typical_ms(first_fits, fmean)
        upstream = Upstream(first_fit=None if typical is None else typical * GANG)
    subject.hear(
        Measurement(
            subject.name,
            f"gang of {GANG} claims of 1 device",
            took * GANG / len(given),
            "ms",
            goal=goal_s * 1000,
            upstream=upstream,
            note=f"{sum(map(bool, given))} of {len(given)} given"
            + ("" if len(given) == GANG else ", the time of all extrapolated"),
        )
    )


def releases(subject: Subject, goal_s: float) -> None:
    """Claims released at random, and the next decision."""
    Random(0).shuffle(subject.held)
    released, subject.held = subject.held[:RELEASES], subject.held[RELEASES:]
    pod = subject.scenario.one(0)
    begun = cpu_ms()
    for key in released:
        subject.carina.cluster.release(key)
    subject.carina.place(pod)
    took = cpu_ms() - begun
    subject.hear(
        Measurement(
            subject.name,
            f"{RELEASES} releases and the next decision",
            took,
            "ms",
            goal=goal_s * 1000,
            note="" if len(released) == RELEASES else f"only {len(released)}",
        )
    )


def churn(subject: Subject, make: Callable[[int], Pod]) -> None:
    """The growth of memory while claims come and go, one for one, on a part of the fleet.

    It is measured before the fleet is loaded: memory that is free again would hide a growth.
    """
    part, random = Carina(), Random(1)
    live: list[str] = []
    for page in pages(subject.scenario.make(max(1, subject.nodes // _PART))):
        part.add(page)
        if page.kind is Kind.IN_USE:
            live += [key_of(claim) for claim in page.objects]

    def turn_over(number: int) -> None:
        if live:
            index = random.randrange(len(live))
            live[index], live[-1] = live[-1], live[index]
            part.cluster.release(live.pop())
        live.extend(part.give(make(number)))

    for number in in_time(range(_WARM), _CHURN_LIMIT_S):
        turn_over(number)
    before, counted = resident_kib(), 0
    for number in in_time(range(_CHURN), _CHURN_LIMIT_S):
        turn_over(number)
        counted += 1
    subject.hear(
        Measurement(
            subject.name,
            "growth of memory for a claim that came and went",
            (resident_kib() - before) / counted,
            "KiB",
            goal=_GROWTH_GOAL_KIB,
            note=f"{counted} claims, {len(live)} at a time",
        )
    )
