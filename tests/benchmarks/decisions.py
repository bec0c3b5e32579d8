"""Measures single decisions, on a cluster as it is and after a change."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from statistics import fmean, median
from typing import Final

from carina_dra.placement.choice.placer import PlacedClaims
from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Asking, Event, Fleet, Pod, Question, pages
from tests.benchmarks.measurement import NOT_MEASURED, Measurement, Typical, Upstream
from tests.benchmarks.stopwatch import cpu_ms, took_ms
from tests.benchmarks.subject import Subject, in_time
from tests.benchmarks.upstream import (
    ALL_NODES,
    ENOUGH_FOR_KUBE_SCHEDULER,
    FIRST_FIT,
    Tried,
    typical_ms,
)

_TWICE_GOAL: Final = 2.5
"""How much longer a node with twice as many devices may take: more would not be linear."""


class DisagreementError(RuntimeError):
    """Carina and upstream do not agree on whether a pod has a place."""


def ask(subject: Subject, question: Question) -> Measurement:
    """The time of a decision.

    Raises:
        DisagreementError: upstream gives another answer, so that the times mean nothing.
    """
    pods = [question.pod(number) for number in range(question.times)]
    gives = question.asking is not Asking.NEW
    # The mean has in it what is put off from one claim to the next.
    typical: Typical = fmean if gives else median
    times, had_place = _given(subject, pods) if gives else _new_kinds(subject, pods)
    upstream = NOT_MEASURED
    if subject.upstream is not None:
        try_nodes = partial(subject.upstream.ask, give=gives)
        on_all = try_nodes(pods[: min(3, len(times))], enough=ALL_NODES)
        # What is given out differs, and so does what is left for later pods.
        _agree(subject, question.what, had_place[:1] if gives else had_place, on_all)
        upstream = Upstream(
            all_nodes=typical_ms(on_all, typical),
            some_nodes=typical_ms(try_nodes(pods[:3], enough=ENOUGH_FOR_KUBE_SCHEDULER), typical),
            first_fit=typical_ms(try_nodes(pods[:50], enough=FIRST_FIT), typical),
        )
    measurement = Measurement.of_times(
        subject.name,
        question.what,
        times,
        goal=question.goal_ms,
        upstream=upstream,
        limited_by_upstream=True,
        typical=typical,
        note=f"{sum(had_place)} of {len(times)} {'given' if gives else 'placed'}",
    )
    subject.hear(measurement)
    return measurement


def _new_kinds(subject: Subject, pods: list[Pod]) -> tuple[list[float], list[bool]]:
    """The times, and which pods have a place."""
    times, placed = [], []
    for pod in in_time(pods):
        begun = cpu_ms()
        placement = subject.carina.place(pod)
        times.append(cpu_ms() - begun)
        placed.append(isinstance(placement, PlacedClaims))
    return times, placed


def _given(subject: Subject, pods: list[Pod]) -> tuple[list[float], list[bool]]:
    """The times, and which pods got devices. All are free again afterwards."""
    subject.carina.place(pods[0])
    times, given = [], []
    for pod in in_time(pods):
        begun = cpu_ms()
        given.append(subject.carina.give(pod))
        times.append(cpu_ms() - begun)
    for claim in chain.from_iterable(given):
        subject.carina.cluster.release(claim)
    return times, [bool(claims) for claims in given]


def _agree(subject: Subject, what: str, had_place: list[bool], tried: list[Tried]) -> None:
    for number, (ours, theirs) in enumerate(zip(had_place, tried, strict=False)):
        # Fewer nodes are tried where time was over.
        if theirs.tried == subject.nodes and ours != (theirs.suitable > 0):
            raise DisagreementError(
                f"{subject.name}, {what}, number {number}: Carina "
                f"{'finds a' if ours else 'finds no'} node, upstream finds {theirs.suitable}"
            )


def after(subject: Subject, event: Event) -> None:
    """The time from a change to the next decision."""
    cluster, carina = subject.carina.cluster, subject.carina
    carina.place(event.then(0))
    times = []
    for repetition in in_time(range(event.times)):
        pod = event.then(repetition)
        begun = cpu_ms()
        event.change(cluster, repetition)
        carina.place(pod)
        times.append(cpu_ms() - begun)
        if event.undo is not None:
            event.undo(cluster, repetition)
            carina.place(pod)
    upstream = NOT_MEASURED
    if subject.upstream is not None:
        tried = subject.upstream.ask([event.then(0)] * 3, enough=ALL_NODES)
        upstream = Upstream(all_nodes=typical_ms(tried))
    subject.hear(
        Measurement.of_times(
            subject.name,
            event.what,
            times,
            goal=event.goal_ms,
            upstream=upstream,
            limited_by_upstream=False,  # upstream's time has no change in it
        )
    )


def denser(
    subject: Subject, make: Callable[[int], Fleet], question: Question, simple_ms: float
) -> None:
    """How the time of a decision grows with the devices of a node.

    `simple_ms` is the time with half as many.
    """
    dense = Carina()
    for page in pages(make(subject.nodes)):
        dense.add(page)
    dense.place(subject.scenario.one(0))
    pods = [question.pod(number) for number in range(question.times)]
    typical = median(took_ms(partial(dense.place, pod)) for pod in pods)
    subject.hear(
        Measurement(
            subject.name,
            "time of a decision with twice as many devices a node",
            typical / simple_ms,
            "x",
            goal=_TWICE_GOAL,
            note=f"{typical / subject.nodes:.2f} ms a node, {simple_ms / subject.nodes:.2f} before",
        )
    )
