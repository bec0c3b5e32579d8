"""A simulation as a table for people, and as a document for programs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

from carina_dra.text_table import columns
from controller.engine.decide.nodes.stranded import in_words
from controller.engine.files.value import codec_of
from controller.engine.model.plan import Action
from controller.engine.simulate.record import (
    Arrived,
    Finished,
    Happening,
    NodeCame,
    NodeLeft,
    PodsEvicted,
    Record,
    Started,
)
from controller.engine.simulate.summary import QueueSummary, Summary, summarize

_FEW_JOBS: Final = 20
"""A simulation with more jobs is shown by its queues only."""
_NODES_NAMED: Final = 4
_WHY: Final[Mapping[Action, str]] = {
    Action.CONSOLIDATE: "is evicted, to make room for",
    Action.RECLAIM: "is evicted, since its queue has more than its share, for",
    Action.PREEMPT: "is evicted, since it has a lower priority, for",
    Action.STALE: "is evicted, since it has fewer pods than it needs:",
    Action.DRAIN: "is evicted, since its queue is emptied:",
    Action.RELEASE: "is evicted, since its node is released:",
    Action.REPLACE: "is evicted, since a device of it has failed:",
}


def table(record: Record) -> Iterator[str]:
    """The lines of the default output."""
    summary = summarize(record)
    yield from _headline(record, summary)
    yield ""
    yield from _queues(record, summary)
    if len(record.jobs) <= _FEW_JOBS:
        yield ""
        yield from _jobs(record)
        yield ""
        yield from _happenings(record)
    waiting = [job for job in record.jobs if job.waits_for and job.waits]
    if waiting:
        yield ""
    for job in waiting[:_FEW_JOBS]:
        yield f"{job.job} waits:"
        yield from (f"  {reason}" for reason in job.waits_for)
    if len(waiting) > _FEW_JOBS:
        yield f"and {len(waiting) - _FEW_JOBS} more jobs; -o json shows them"


def comparison(records: Iterable[Record]) -> Iterator[str]:
    """The lines of a table with a column for each simulation of the same trace."""
    found = [(record, summarize(record)) for record in records]
    rows: list[tuple[str, list[str]]] = [
        ("GPUs in use", [_percent(summary.utilisation) for _, summary in found]),
        ("jobs ended", [str(summary.total.ended) for _, summary in found]),
        ("jobs waiting at the end", [str(summary.total.waiting) for _, summary in found]),
        ("wait, mean", [clock(summary.total.waits.mean) for _, summary in found]),
        ("wait, 95%", [clock(summary.total.waits.p95) for _, summary in found]),
        ("wait, longest", [clock(summary.total.waits.longest) for _, summary in found]),
        ("pods evicted", [str(summary.total.evictions) for _, summary in found]),
        ("GPU hours lost", [f"{summary.total.lost_gpu_hours:.1f}" for _, summary in found]),
        ("GPUs stranded", [f"{sum(summary.stranded.values()):.1f}" for _, summary in found]),
        ("time to the end", [clock(record.end - record.start) for record, _ in found]),
    ]
    for queue in found[0][0].queues:
        waits = [clock(summary.queues[queue].waits.mean) for _, summary in found]
        rows.append((f"wait of {queue}, mean", waits))
    headings = ["", *(record.policy.upper() for record, _ in found)]
    yield from columns(headings, ([name, *cells] for name, cells in rows))


def document(record: Record) -> dict[str, Any]:
    """All of a simulation, with its summary."""
    written: dict[str, Any] = codec_of(Record).write(record)
    return {"summary": codec_of(Summary).write(summarize(record)), **written}


def clock(seconds: float) -> str:
    """A time since the start, or a duration, as hours:minutes:seconds."""
    minutes, rest = divmod(abs(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if seconds < 0 else ''}{hours}:{minutes:02}:{rest:02}"


def _headline(record: Record, summary: Summary) -> Iterator[str]:
    yield (
        f"{record.name}: {_number(record.nodes, 'node')}, {_number(record.gpus, 'GPU')}, "
        f"{_number(len(record.jobs), 'job')}, {clock(record.end - record.start)} in all"
    )
    lost = summary.total.lost_gpu_hours
    yield (
        f"{_percent(summary.utilisation)} of the GPUs in use, "
        f"{_number(summary.total.evictions, 'pod')} evicted, {lost:.1f} GPU hours lost"
    )
    stranded = {lack: round(gpus, 1) for lack, gpus in summary.stranded.items()}
    if any(stranded.values()):
        yield f"GPUs stranded, of use for nothing that is typically asked for: {in_words(stranded)}"


def _queues(record: Record, summary: Summary) -> Iterator[str]:
    headings = ["QUEUE", "JOBS", "ENDED", "WAITING", "WAIT", "WAIT 95%", "GPUS", "EVICTED"]
    shared = _shared_resources(summary)
    if shared:
        headings += ["SHARE", "SHORT"]
    rows = []
    for name in record.queues:
        queue = summary.queues[name]
        rows.append([name, *_cells(queue)])
        if shared:
            fairness = [queue.fairness[resource] for resource in shared]
            share, short = (
                sum(of_resource.fair_share for of_resource in fairness),
                sum(of_resource.short for of_resource in fairness),
            )
            rows[-1] += [f"{share:.1f}", f"{short:.1f}"]
    yield from columns(headings, rows)


def _cells(queue: QueueSummary) -> list[str]:
    counts = [str(queue.jobs), str(queue.ended), str(queue.waiting)]
    waits = [clock(queue.waits.mean), clock(queue.waits.p95)]
    return [*counts, *waits, f"{queue.gpus:.1f}", str(queue.evictions)]


def _shared_resources(summary: Summary) -> Sequence[str]:
    """The resources of devices of which the table shows the sum.

    GPUs, or else GPUs of each model, or else the first DeviceClass, as the queues name them.
    """
    named = sorted({resource for of in summary.queues.values() for resource in of.fairness})
    models = [each for each in named if each.startswith("gpus ")]
    classes = [each for each in named if each.startswith("deviceClass ")]
    return ["gpus"] if "gpus" in named else models or classes[:1]


def _jobs(record: Record) -> Iterator[str]:
    headings = ["JOB", "PODS", "ARRIVED", "STARTED", "ENDED", "WAIT", "EVICTED"]
    rows = [
        [
            job.job,
            str(job.pods),
            clock(job.arrival - record.start),
            "-" if job.started is None else clock(job.started - record.start),
            "-" if job.ended is None else clock(job.ended - record.start),
            clock(job.waited(record.end)),
            str(job.evictions),
        ]
        for job in record.jobs
    ]
    yield from columns(headings, rows)


def _happenings(record: Record) -> Iterator[str]:
    lines = [(clock(each.at - record.start), _text(each)) for each in record.happenings]
    width = max((len(at) for at, _ in lines), default=0)
    for at, text in lines:
        yield f"{at.rjust(width)}  {text}"


def _text(happening: Happening) -> str:
    match happening:
        case Arrived(job=job):
            return f"{job} arrives"
        case Started(job=job, nodes=nodes):
            return f"{job} starts {_number(sum(nodes.values()), 'pod')} on {_named(nodes)}"
        case PodsEvicted(job=job, action=action, favoured=favoured, nodes=nodes, moves=moves):
            pods = _number(sum(nodes.values()), "pod")
            why = "moves, to make room for" if moves else _WHY[action]
            if happening.overran:
                why = "is evicted, since it runs for longer than it said, for"
            return f"{job} ({pods} on {_named(nodes)}) {why} {favoured}"
        case Finished(job=job):
            return f"{job} ends"
        case NodeCame(node=node):
            return f"node {node} is added"
        case NodeLeft(node=node, jobs=jobs):
            return f"node {node} is gone{', with pods of ' + ', '.join(jobs) if jobs else ''}"
    assert_never(happening)


def _named(nodes: Mapping[str, int]) -> str:
    names = sorted(nodes)
    more = len(names) - _NODES_NAMED
    return ", ".join(names[:_NODES_NAMED]) + (f" and {more} more nodes" if more > 0 else "")


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _percent(part: float) -> str:
    return f"{part:.1%}"
