"""What differs between the state that came and the one that a vector expects.

Where a vector picks among equal jobs, tasks or queues by a tie-break, any of the equal ones may be
picked: it is compared how many of them got each status.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from carina_dra.placement.bounds.bipartite import has_matching
from tests.conformance.scheduling.devices import DRIVER, Gpus
from tests.conformance.scheduling.state import State, TaskState, tasks_of
from tests.conformance.scheduling.vector import (
    LEAVING,
    DistinctDomains,
    Domain,
    Job,
    NodeSet,
    Outcome,
    Part,
    Queue,
    Status,
    Task,
    Vector,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as expected."""

    what: str
    expected: str
    came: str

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, came {self.came}"


def outcome_of(vector: Vector, job: Job, task: Task) -> Outcome | None:
    """What is expected of a task; None if any outcome is right."""
    if task.name in vector.expect.unconstrained_tasks:
        return None
    return vector.expect.tasks.get(task.name) or vector.expect.jobs.get(job.name)


def differences(vector: Vector, gpus: Gpus, state: State) -> list[Difference]:
    """What is not as the vector expects, apart from what is policy."""
    return [
        *_of_tasks(vector, state),
        *_of_nodes(vector, gpus, state),
        *_of_constraints(vector, state),
    ]


def _of_tasks(vector: Vector, state: State) -> Iterator[Difference]:
    classes: dict[Hashable, list[Job]] = defaultdict(list)
    for job in vector.jobs:
        classes[_job_class(vector, job)].append(job)
    for jobs in classes.values():
        expected = [_pattern(vector, job) for job in jobs]
        if all(pattern == expected[0] for pattern in expected):
            for job in jobs:
                yield from _of_job(vector, state, job)
        else:
            yield from _of_equal_jobs(vector, state, jobs)


def _of_job(vector: Vector, state: State, job: Job) -> Iterator[Difference]:
    """The tasks of a job; those that are equal, and of which some are picked, are counted."""
    for tasks in _task_classes(vector, job).values():
        outcomes = [outcome_of(vector, job, task) for task in tasks]
        came = [state.tasks[task.name] for task in tasks]
        expected = [_status(outcome) for outcome in outcomes]
        if all(status == expected[0] for status in expected):
            for task, outcome, result in zip(tasks, outcomes, came, strict=True):
                if outcome is not None and not _is_as(outcome, result):
                    yield Difference(task.name, _written(outcome), str(result))
        elif not _match(expected, [each.status for each in came]):
            names = ", ".join(task.name for task in tasks)
            yield Difference(
                f"of {names}", _counted(expected), _counted([each.status for each in came])
            )


def _of_equal_jobs(vector: Vector, state: State, jobs: Sequence[Job]) -> Iterator[Difference]:
    """Jobs of which some are picked: each expectation must be met by another one."""
    fitting = {
        wanted: [given for given, job in enumerate(jobs) if _fits(vector, state, jobs[wanted], job)]
        for wanted in range(len(jobs))
    }
    if not has_matching(fitting, len(jobs)):
        names = ", ".join(job.name for job in jobs)
        expected = [status for job in jobs for status in _pattern(vector, job)]
        came = [state.tasks[task.name].status for job in jobs for task in job.tasks]
        yield Difference(f"of {names}", _counted(expected), _counted(came))


def _fits(vector: Vector, state: State, wanted: Job, given: Job) -> bool:
    """Whether what became of one job is what is expected of an equal one."""
    of_wanted = _task_classes(vector, wanted).values()
    of_given = _task_classes(vector, given).values()
    return all(
        _match(
            [_status(outcome_of(vector, wanted, task)) for task in expected],
            [state.tasks[task.name].status for task in came],
        )
        for expected, came in zip(of_wanted, of_given, strict=True)
    )


def _match(expected: Sequence[Status | None], came: Sequence[Status]) -> bool:
    """Whether each expected status is that of another one of these; None is any."""
    fitting = {
        index: [at for at, status in enumerate(came) if wanted in (None, status)]
        for index, wanted in enumerate(expected)
    }
    return has_matching(fitting, len(expected))


def _pattern(vector: Vector, job: Job) -> list[Status | None]:
    return [_status(outcome_of(vector, job, task)) for task in job.tasks]


def _status(outcome: Outcome | None) -> Status | None:
    return None if outcome is None else outcome.status


def _is_as(outcome: Outcome, came: TaskState) -> bool:
    """Whether a task has the status, and the node if there is one and it is not a matter of policy.

    The source names nodes of waiting tasks too, which have none.
    """
    if came.status is not outcome.status:
        return False
    matters = outcome.node_strict and outcome.status is not Status.PENDING
    return not matters or came.node == outcome.node


def _job_class(vector: Vector, job: Job) -> Hashable:
    """What jobs have in common of which the vector picks some; each is one of its own without."""
    strict = vector.strict
    if not (strict.age_tie_break or strict.queue_tie_break):
        return job.name
    queue: Hashable = job.queue
    place: Hashable = None
    if strict.queue_tie_break:
        queue = _queue_class(next(q for q in vector.cluster.queues if q.name == job.queue))
    if not strict.age_tie_break:
        ages = sorted(other.age_rank for other in vector.jobs if other.queue == job.queue)
        place = ages.index(job.age_rank)
    tasks = tuple((_task_class(task), task.state) for task in job.tasks)
    return (queue, place, job.priority, job.preemptible, _shape(job.tree), tasks)


def _queue_class(queue: Queue) -> Hashable:
    return (
        queue.parent,
        queue.priority,
        *(getattr(queue.quota, each) for each in ("gpu", "cpu_milli", "memory_bytes")),
        *(getattr(queue.limit, each) for each in ("gpu", "cpu_milli", "memory_bytes")),
        *(getattr(queue.weight, each) for each in ("gpu", "cpu", "memory")),
    )


def _shape(part: Part) -> Hashable:
    return (part.name, part.unit, part.min, tuple(map(_shape, part.children)))


def _task_classes(vector: Vector, job: Job) -> Mapping[Hashable, list[Task]]:
    """Tasks of which the vector picks some, together; each is one of its own without a pick."""
    classes: dict[Hashable, list[Task]] = defaultdict(list)
    for index, task in enumerate(job.tasks):
        picks = vector.strict.task_tie_break
        classes[(_task_class(task), task.state) if picks else index].append(task)
    return classes


def _task_class(task: Task) -> Hashable:
    request = task.request
    return (
        task.subgroup,
        task.task_priority,
        request.gpu,
        request.gpu_fraction,
        request.gpu_memory_mib,
        request.shared_devices,
        request.cpu_milli,
        request.memory_bytes,
        len(request.claims),
        repr(task.affinity),
    )


def _of_nodes(vector: Vector, gpus: Gpus, state: State) -> Iterator[Difference]:
    """GPUs that nobody has, and those whose users all leave."""
    for node in vector.cluster.nodes:
        wanted = vector.expect.nodes.get(node.name)
        if wanted is None:
            continue
        users: dict[str, set[str]] = defaultdict(set)
        for claim in state.claims.values():
            if claim.status.allocation is not None:
                for result in claim.status.allocation.devices.results:
                    if (result.driver, result.pool) == (DRIVER, node.name):
                        gpu = result.device.removesuffix("-share")
                        users[gpu] |= {each.name for each in claim.status.reserved_for}
        leaving = {name for name, task in state.tasks.items() if task.status in LEAVING}
        idle = node.gpus - len(users)
        evicting = sum(of_gpu <= leaving for of_gpu in users.values())
        for what, expected, came in (
            ("idle GPUs", wanted.idle_gpus, idle),
            ("GPUs that are being freed", wanted.evicting_gpus, evicting),
        ):
            if expected != came:
                yield Difference(f"{what} of {node.name}", str(expected), str(came))


def _of_constraints(vector: Vector, state: State) -> Iterator[Difference]:
    labels = {node.name: node.labels for node in vector.cluster.nodes}

    def nodes(job_name: str, subgroup: str | None) -> list[str]:
        return [
            state.tasks[task.name].node or ""
            for job, task in tasks_of(vector)
            if job.name == job_name and subgroup in (None, task.subgroup)
            if state.tasks[task.name].node is not None
        ]

    def values(job: str, subgroup: str, label: str) -> set[str]:
        return {labels[node].get(label, "") for node in nodes(job, subgroup)}

    for each in vector.expect.constraints:
        what = f"{each.type} of {each.job}"
        match each:
            case Domain():
                found = values(each.job, each.subgroup, each.label)
                count = len(nodes(each.job, each.subgroup))
                if found != {each.value} or count != each.tasks:
                    wanted = f"{each.tasks} tasks of {each.subgroup} in {each.label}={each.value}"
                    yield Difference(what, wanted, f"{count} in {sorted(found)}")
            case NodeSet():
                on = nodes(each.job, each.subgroup)
                if {*on} != {*each.nodes} or each.tasks not in (None, len(on)):
                    yield Difference(what, ", ".join(each.nodes), ", ".join(on))
            case DistinctDomains():
                domains = [values(each.job, name, each.label) for name in each.subgroups]
                union = set[str]().union(*domains)
                is_distinct = len(union) == sum(map(len, domains))
                if not is_distinct or (each.values is not None and union != {*each.values}):
                    wanted = f"{', '.join(each.subgroups)} in domains of {each.label} of their own"
                    yield Difference(what, wanted, str([sorted(names) for names in domains]))
            case _:
                assert_never(each)


def _written(outcome: Outcome) -> str:
    if outcome.node and outcome.node_strict and outcome.status is not Status.PENDING:
        return f"{outcome.status} on {outcome.node}"
    return outcome.status


def _counted(statuses: Sequence[Status | None]) -> str:
    counts: dict[str, int] = defaultdict(int)
    for status in statuses:
        counts[status or "any"] += 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
