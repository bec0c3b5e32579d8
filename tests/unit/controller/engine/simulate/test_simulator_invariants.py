"""What holds of any simulation, whatever is evicted and whichever nodes go."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engine.decide.cycle import Engine
from controller.engine.simulate.record import PodRun, Record
from controller.engine.simulate.simulator import simulate
from controller.engine.simulate.trace import Trace
from tests.unit.controller.engine.simulate.scenarios import NODES, trace
from tests.unit.controller.engine.simulate.stand_in import evicting

_seconds = st.integers(0, 300).map("{}s".format)
_jobs = st.lists(
    st.fixed_dictionaries(
        {
            "arrival": _seconds,
            "duration": _seconds,
            "pods": st.integers(1, 4),
            "minPods": st.sampled_from([None, 0, 1]),
            "gpus": st.integers(0, 3),
            "checkpoints": st.booleans(),
            "priority": st.integers(0, 2),
        }
    ),
    min_size=1,
    max_size=6,
)
_events = st.lists(st.integers(1, 400), min_size=0, max_size=4, unique=True)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Jobs of all kinds on four GPUs, and a node that comes and goes."""
    times = sorted(draw(_events))
    changes = [
        {"at": at, "gone" if index % 2 == 0 else "added": ["node-1"]}
        for index, at in enumerate(times)
    ]
    fields: dict[str, Any] = {"events": changes, "grace": draw(_seconds), "nodes": NODES}
    return trace(*draw(_jobs), **fields)


@st.composite
def contended(draw: st.DrawFn) -> Trace:
    """Two queues that want more than there is, with quotas, limits and priorities."""
    jobs = [{**job, "queue": draw(st.sampled_from(["a", "b"]))} for job in draw(_jobs)]
    amounts = st.none() | st.integers(0, 4)
    queues = [
        {
            "name": name,
            "priority": draw(st.integers(1, 2)),
            "resources": [
                {"deviceClass": "gpu.carina.dev", "quota": draw(amounts), "limit": draw(amounts)}
            ],
        }
        for name in ("a", "b")
    ]
    placement = draw(st.sampled_from(["binpack", "spread"]))
    fields = {"queues": queues, "settings": {"placement": placement}, "grace": draw(_seconds)}
    return trace(*jobs, nodes=NODES, **fields)


def runs_of(record: Record) -> Iterator[PodRun]:
    for job in record.jobs:
        yield from job.runs


@settings(max_examples=60, deadline=None)
@given(traces(), st.integers(0, 1000))
def test_what_a_simulation_never_does(of: Trace, seed: int) -> None:
    record = simulate(of, evicting(seed))
    assert_no_device_is_used_twice(record)
    assert_pods_run_once_at_a_time(record)
    assert_jobs_end_or_say_why(record, of)
    assert_utilisation_is_that_of_the_runs(record)


@settings(max_examples=60, deadline=None)
@given(contended())
def test_what_the_engine_never_does(of: Trace) -> None:
    record = simulate(of, lambda state: Engine(state).decide)
    assert_no_device_is_used_twice(record)
    assert_pods_run_once_at_a_time(record)
    assert_jobs_end_or_say_why(record, of)
    assert_utilisation_is_that_of_the_runs(record)


def assert_no_device_is_used_twice(record: Record) -> None:
    by_device: dict[str, list[tuple[float, float]]] = {}
    for run in runs_of(record):
        for device in run.devices:
            ended = record.end if run.ended is None else run.ended
            by_device.setdefault(device, []).append((run.started, ended))
    for uses in by_device.values():
        for before, after in pairwise(sorted(uses)):
            assert before[1] <= after[0]


def assert_pods_run_once_at_a_time(record: Record) -> None:
    for job in record.jobs:
        by_pod: dict[str, list[PodRun]] = {}
        for run in job.runs:
            by_pod.setdefault(run.pod, []).append(run)
        for runs in by_pod.values():
            for before, after in pairwise(runs):
                assert before.ended is not None
                assert before.ended <= after.started


def assert_jobs_end_or_say_why(record: Record, of: Trace) -> None:
    assert len(record.jobs) == len(of.jobs)
    work = {job.name: job.work for job in of.jobs}
    for job in record.jobs:
        if job.ended is None:
            assert job.waits_for
        else:
            assert job.started is not None
            assert job.ended - job.started >= (work[job.job] or 0) - 1e-6


def assert_utilisation_is_that_of_the_runs(record: Record) -> None:
    ends = [sample.at for sample in record.samples[1:]] + [record.end]
    sampled = sum(
        sum(sample.in_use.values()) * (end - sample.at)
        for sample, end in zip(record.samples, ends, strict=True)
    )
    ran = sum(
        run.gpus * ((record.end if run.ended is None else run.ended) - run.started)
        for run in runs_of(record)
    )
    assert sampled == pytest.approx(ran)
    assert all(sum(sample.in_use.values()) <= 4 for sample in record.samples)
