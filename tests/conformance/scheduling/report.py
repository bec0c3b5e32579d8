"""What a person needs to see why a vector fails, in few lines."""

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from controller.engine.model.plan import Nomination, Plan, Start
from tests.conformance.scheduling.comparison import outcome_of
from tests.conformance.scheduling.rounds import Result
from tests.conformance.scheduling.state import State
from tests.conformance.scheduling.vector import (
    UNLIMITED,
    Amounts,
    Job,
    Number,
    Outcome,
    Part,
    Queue,
    Request,
    Status,
    Task,
    TopologyConstraint,
    Vector,
)

T = TypeVar("T")
_MOST_JOBS = 30
_MOST_DIFFERENCES = 12


def describe(name: str, vector: Vector, result: Result | None, *, verbose: bool) -> str:
    """The case, and what came of it. Without a result, only the case."""
    source = vector.source
    lines = [
        f"{name}  {vector.name}",
        f"  {source.func}[{source.index}] {source.file.rpartition('/')[2]}:{source.line}",
        f"  tags: {', '.join(vector.tags)}",
        f"  run: {_run(vector)}",
        *(f"  note: {note}" for note in vector.notes),
        *_cluster(vector),
        *_jobs(vector, result, verbose=verbose),
    ]
    if result is not None:
        if verbose:
            for number, each in enumerate(result.rounds, 1):
                lines.append(f"  round {number}:")
                lines += (f"    {line}" for line in steps(each.plan))
        lines += (f"  UNSOUND {each}" for each in result.unsound)
        shown = result.differences if verbose else result.differences[:_MOST_DIFFERENCES]
        lines += (f"  DIFFERS after {len(result.rounds)} rounds: {each}" for each in shown)
        more = len(result.differences) - len(shown)
        lines += [f"  ... and {more} more"] if more else []
    return "\n".join(lines)


def steps(plan: Plan) -> Iterator[str]:
    """What a plan decides, and why groups wait."""
    for start in plan.starts:
        yield f"start    {start.pod} on {start.node}{_devices(start)}"
    for nomination in plan.nominations:
        yield f"nominate {nomination.pod} on {nomination.node}{_devices(nomination)}"
    for eviction in plan.evictions:
        yield f"evict    {eviction.pod} on {eviction.node}: {eviction.action} for {eviction.group}"
    for group, reasons in plan.waiting.items():
        yield from textwrap.wrap(
            f"wait     {group}: {'; '.join(map(str, reasons))}", 150, subsequent_indent=" " * 11
        )
    for queue, shares in plan.fair_shares.items():
        yield f"share    {queue}: {', '.join(f'{name} {n}' for name, n in shares.items())}"


def _devices(placed: Start | Nomination) -> str:
    names = [
        result.device
        for _, allocation in placed.allocations
        for result in allocation.devices.results
    ]
    return f" ({', '.join(names)})" if names else ""


def _run(vector: Vector) -> str:
    run, params = vector.run, vector.run.params
    unusual = [f"{', '.join(run.actions)}; {run.compare}"]
    unusual.append(f"{run.rounds_until}+{run.rounds_after} rounds")
    if params.max_consolidation_preemptees != UNLIMITED:
        unusual.append(f"consolidation limit {params.max_consolidation_preemptees}")
    if not params.allow_consolidating_reclaim:
        unusual.append("no consolidating reclaim")
    if (params.gpu_placement, params.cpu_placement, params.gpu_sharing) != (
        "binpack",
        "binpack",
        "pack",
    ):
        unusual.append(
            f"gpu {params.gpu_placement}, cpu {params.cpu_placement}, shares {params.gpu_sharing}"
        )
    if params.staleness_grace_period_s:
        unusual.append(f"staleness grace {params.staleness_grace_period_s:g} s")
    return "; ".join(unusual)


def _cluster(vector: Vector) -> Iterator[str]:
    cluster = vector.cluster
    usual_cpu, usual_memory = 20_000_000, 20_000_000_000
    nodes = []
    for node in cluster.nodes:
        text = f"{node.name} {node.gpus} GPU"
        if node.gpu_memory_mib != 100:
            text += f" of {node.gpu_memory_mib} MiB"
        if (node.cpu_milli, node.memory_bytes) != (usual_cpu, usual_memory):
            text += f" {node.cpu_milli} mCPU {node.memory_bytes:,} B"
        text += "".join(f" {key.rpartition('/')[2]}={value}" for key, value in node.labels.items())
        nodes.append(text)
    yield from textwrap.wrap(
        f"nodes: {'; '.join(nodes)}", 150, initial_indent="  ", subsequent_indent="    "
    )
    for topology in cluster.topologies:
        yield f"  topology {topology.name}: {' > '.join(topology.levels)}"
    for published in cluster.resource_slices:
        yield f"  slice {published.pool}: {', '.join(published.devices)} of {published.driver}"
    for claim in cluster.claims:
        has = [device.device for device in claim.allocation or ()]
        labels = ", ".join(f"{key}={value}" for key, value in claim.labels.items())
        yield (
            f"  claim {claim.name}: {claim.count} of {claim.device_class}, has {has}, "
            f"{len(claim.reserved_for)} users, {labels}"
        )
    for queue in sorted(cluster.queues, key=lambda each: each.age_rank):
        yield f"  queue {_queue(queue)}"


def _queue(queue: Queue) -> str:
    text = f"{queue.name} in {queue.parent}:" if queue.parent else f"{queue.name}:"
    text += f" quota {_amounts(queue.quota)}, limit {_amounts(queue.limit)}"
    text += f", weight {queue.weight.gpu:g}"
    if (queue.weight.cpu, queue.weight.memory) != (1, 1):
        text += f"/{queue.weight.cpu:g}/{queue.weight.memory:g}"
    text += f", priority {queue.priority}" if queue.priority != 100 else ""
    if queue.preempt_min_runtime_s is not None:
        text += f", safe from preemption {queue.preempt_min_runtime_s:g} s"
    if queue.reclaim_min_runtime_s is not None:
        text += f", safe from reclaim {queue.reclaim_min_runtime_s:g} s"
    return text


def _amounts(amounts: Amounts) -> str:
    def number(amount: Number) -> str:
        return "-" if amount == UNLIMITED else f"{amount:g}"

    others = (amounts.cpu_milli, amounts.memory_bytes)
    if others == (UNLIMITED, UNLIMITED):
        return number(amounts.gpu)
    return "/".join(map(number, (amounts.gpu, *others)))


def _jobs(vector: Vector, result: Result | None, *, verbose: bool) -> Iterator[str]:
    jobs = sorted(vector.jobs, key=lambda job: job.age_rank)
    shown = jobs if verbose else jobs[:_MOST_JOBS]
    state = result.rounds[-1].after if result is not None and result.rounds else None
    for job in shown:
        yield f"  job {_job(job)}"
        outcomes = {task.name: outcome_of(vector, job, task) for task in job.tasks}
        described = [
            (_task(job, task), *_came(outcomes[task.name], task, state)) for task in job.tasks
        ]
        for (text, expected, came), count in _runs(described, lambda each: each):
            times = f"{count} x " if count > 1 else ""
            yield f"      {times}{text} | expected {expected}{came}"
    if len(shown) < len(jobs):
        yield f"  ... and {len(jobs) - len(shown)} younger jobs"


def _job(job: Job) -> str:
    text = f"{job.name} in {job.queue}, priority {job.priority}"
    text += "" if job.preemptible else ", non-preemptible"
    text += f", {_part(job.tree)}"
    for value, what in (
        (job.stale_for_s, "stale for"),
        (job.staleness_grace_period_s, "staleness grace"),
        (job.preemption_delay_s or None, "preemption delay"),
    ):
        text += f", {what} {value:g} s" if value is not None else ""
    return text + (", stays evicting" if job.after_eviction == "stays-evicting" else "")


def _part(part: Part) -> str:
    together = _together(part.topology)
    name = "" if part.name in ("", "default") else f"{part.name} "
    if part.unit == "tasks":
        return f"{name}min {part.min}{together}"
    children = [_part(child) for child in part.children]
    if len(children) == 1 and not together:
        return children[0]
    return f"{name}{part.min} of ({'; '.join(children)}){together}"


def _together(topology: TopologyConstraint | None) -> str:
    if topology is None:
        return ""
    required = f" required {topology.required}" if topology.required else ""
    preferred = f" preferred {topology.preferred}" if topology.preferred else ""
    return f" [{topology.topology}{required}{preferred}]"


def _task(job: Job, task: Task) -> str:
    text = f"{task.state}" + (f" on {task.node}" if task.node else "")
    text += f" {_request(task.request)}"
    leaves = list(job.tree.leaves())
    text += f" of {task.subgroup}" if len(leaves) > 1 else ""
    text += f" priority {task.task_priority}" if task.task_priority is not None else ""
    text += f" GPU groups {','.join(task.gpu_groups)}" if task.gpu_groups else ""
    if task.affinity is not None:
        text += f" affinity {task.affinity.model_dump(exclude_defaults=True)}"
    return text


def _request(request: Request) -> str:
    parts = []
    if request.is_shared:
        amount = request.gpu_fraction or f"{request.gpu_memory_mib} MiB"
        devices = request.shared_devices or 1
        parts.append(f"{amount} of {'a GPU' if devices == 1 else f'{devices} GPUs'}")
    elif request.gpu or not request.claims:
        parts.append(f"{request.gpu} GPU")
    parts += request.claims
    if (request.cpu_milli, request.memory_bytes) != (1_000, 1_000_000_000):
        parts.append(f"{request.cpu_milli} mCPU {request.memory_bytes:,} B")
    return ", ".join(parts)


def _came(outcome: Outcome | None, task: Task, state: State | None) -> tuple[str, str]:
    expected = "anything"
    if outcome is not None:
        expected = str(outcome.status)
        if outcome.node and outcome.status is not Status.PENDING:
            expected += f" on {outcome.node}{'' if outcome.node_strict else ' (or other)'}"
    came = "" if state is None else f" | last {state.tasks[task.name]}"
    return expected, came


def _runs(items: Iterable[T], key: Callable[[T], object]) -> Iterator[tuple[T, int]]:
    for _, group in itertools.groupby(items, key):
        alike = list(group)
        yield alike[0], len(alike)
