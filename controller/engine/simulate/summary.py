"""What a simulation comes to, in numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from controller.engine.decide.nodes.stranded import Lack
from controller.engine.model.resource import figure, parse_resource
from controller.engine.simulate.record import JobRecord, PodOutcome, Record, Sample

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """How long jobs waited for their first start, in seconds."""

    mean: float
    p95: float
    longest: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """What a queue had of one resource, and its part; means over time, in units of the resource."""

    allocated: float
    fair_share: float
    """Its part of what there is, as far as it asked for it."""
    short: float
    """By how much it had less."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """The jobs of one queue, or of all."""

    jobs: int
    ended: int
    waiting: int
    """How many do not run at the end."""
    waits: WaitTimes
    gpus: float
    """How many GPUs they held, as a mean over time."""
    gpu_hours: float
    lost_gpu_hours: float
    """Those of runs that ended otherwise than with their job, without checkpoints."""
    evictions: int
    """How many pods were evicted."""
    fairness: Mapping[str, Fairness]
    """By resource."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A simulation in numbers."""

    utilisation: float
    """The part of the GPUs that was in use, as a mean over time; 0 without GPUs."""
    stranded: Mapping[Lack, float]
    """Free GPUs that nothing could use that was typically asked for, as means over time."""
    total: QueueSummary
    queues: Mapping[str, QueueSummary]


def summarize(record: Record) -> Summary:
    """The numbers of a simulation."""
    spans = list(_spans(record))
    held = _mean(spans, lambda sample: sum(sample.in_use.values()))
    there = _mean(spans, lambda sample: sample.gpus)
    return Summary(
        utilisation=held / there if there else 0,
        stranded={lack: _mean(spans, partial(_stranded, lack)) for lack in Lack},
        total=_of_jobs(record, record.jobs, held, {}),
        queues={queue: _of_queue(record, spans, queue) for queue in record.queues},
    )


def _stranded(lack: Lack, sample: Sample) -> float:
    return sample.stranded.get(lack, 0)


def _of_queue(record: Record, spans: Sequence[tuple[Sample, float]], queue: str) -> QueueSummary:
    jobs = [job for job in record.jobs if job.queue == queue]
    gpus = _mean(spans, lambda sample: sample.in_use.get(queue, 0))
    resources = spans[0][0].allocated.get(queue, {}) if spans else {}
    fairness = {resource: _fairness(spans, queue, resource) for resource in resources}
    return _of_jobs(record, jobs, gpus, fairness)


def _of_jobs(
    record: Record, jobs: Sequence[JobRecord], gpus: float, fairness: Mapping[str, Fairness]
) -> QueueSummary:
    return QueueSummary(
        jobs=len(jobs),
        ended=sum(job.ended is not None for job in jobs),
        waiting=sum(job.waits for job in jobs),
        waits=_waits([job.waited(record.end) for job in jobs]),
        gpus=gpus,
        gpu_hours=gpus * (record.end - record.start) / _HOUR,
        lost_gpu_hours=sum(map(_lost, jobs)) / _HOUR,
        evictions=sum(job.evictions for job in jobs),
        fairness=fairness,
    )


def _lost(job: JobRecord) -> float:
    """GPU seconds of work that were done in vain."""
    gpus = max((run.gpus for run in job.runs if run.outcome is not PodOutcome.ENDED), default=0)
    return job.lost * gpus * job.pods


def _waits(waits: list[float]) -> WaitTimes:
    if not waits:
        return WaitTimes(0, 0, 0)
    waits.sort()
    return WaitTimes(sum(waits) / len(waits), waits[ceil(0.95 * len(waits)) - 1], waits[-1])


def _fairness(spans: Sequence[tuple[Sample, float]], queue: str, resource: str) -> Fairness:
    counted = parse_resource(resource)

    def allocated(sample: Sample) -> float:
        return figure(counted, sample.allocated.get(queue, {}).get(resource, 0))

    def fair(sample: Sample) -> float:
        return figure(counted, sample.fair_shares.get(queue, {}).get(resource, 0))

    return Fairness(
        allocated=_mean(spans, allocated),
        fair_share=_mean(spans, fair),
        short=_mean(spans, lambda sample: max(0, fair(sample) - allocated(sample))),
    )


def _spans(record: Record) -> Iterator[tuple[Sample, float]]:
    """Each sample, and for how many seconds it holds."""
    ends = [sample.at for sample in record.samples[1:]] + [record.end]
    for sample, end in zip(record.samples, ends, strict=True):
        yield sample, end - sample.at


def _mean(spans: Sequence[tuple[Sample, float]], quantity: Callable[[Sample], float]) -> float:
    seconds = sum(span for _, span in spans)
    return sum(quantity(sample) * span for sample, span in spans) / seconds if seconds else 0
