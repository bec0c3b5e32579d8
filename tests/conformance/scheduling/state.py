"""The state of a vector's tasks and claims, and how it goes from round to round."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from carina_dra.resource import ResourceClaim
from controller.engine.model.plan import Plan
from tests.conformance.scheduling.devices import Gpus, claim_key, users_of, with_status
from tests.conformance.scheduling.vector import ACTIVE, LEAVING, Job, Status, Task, Vector

HOLDING: Final = ACTIVE | LEAVING
"""It has what its claims have, and its part of the node."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of a task, and its node if it has one."""

    status: Status
    node: str | None

    def __str__(self) -> str:
        return f"{self.status} on {self.node}" if self.node else self.status


WAITING: Final = TaskState(Status.PENDING, None)


@dataclass(frozen=True, slots=True)
class State:
    """Tasks by name, and claims by key."""

    tasks: Mapping[str, TaskState]
    claims: Mapping[str, ResourceClaim]

    def places(self) -> dict[str, str]:
        """The node of each task that holds something."""
        return {
            name: task.node
            for name, task in self.tasks.items()
            if task.status in HOLDING and task.node is not None
        }


def tasks_of(vector: Vector) -> Iterator[tuple[Job, Task]]:
    """All tasks, with their jobs."""
    for job in vector.jobs:
        for task in job.tasks:
            yield job, task


def pod_key(job: Job, task: Task) -> str:
    """The key of the pod that stands for a task."""
    return f"{job.namespace}/{task.name}"


def claims_of(job: Job, task: Task) -> tuple[str, ...]:
    """The keys of the claims of a task: the given ones, and the one for its own GPUs."""
    request = task.request
    given = tuple(f"{job.namespace}/{name}" for name in request.claims)
    return (*given, claim_key(job, task)) if request.gpu or request.is_shared else given


def state_at_start(vector: Vector, gpus: Gpus) -> State:
    """The state that a vector begins with.

    Raises:
        VectorError: more devices are in use on a node than it has.
    """
    claims = {each.key: each for each in map(gpus.given_claim, vector.cluster.claims)}
    for job, task in tasks_of(vector):
        claim = gpus.claim(job, task)
        if claim is not None:
            claims[claim.key] = claim
        if task.state in HOLDING:
            _reserve(claims, job, task)
    for node in vector.cluster.nodes:
        here = [each for each in tasks_of(vector) if each[1].node == node.name]
        claims |= {claim.key: claim for claim in gpus.held(node, here)}
    tasks = {task.name: TaskState(task.state, task.node) for _, task in tasks_of(vector)}
    return _without_nominations(State(tasks, claims))


def state_after(vector: Vector, before: State, plan: Plan) -> State:
    """The state after the actions of a round: what is decided, and nothing done yet.

    A task that moves is nominated, and has its new node.
    """
    named = {pod_key(job, task): (job, task) for job, task in tasks_of(vector)}
    tasks, claims = dict(before.tasks), dict(before.claims)
    for eviction in plan.evictions:
        tasks[named[eviction.pod][1].name] = TaskState(Status.EVICTING, eviction.node)
    for start in plan.starts:
        job, task = named[start.pod]
        tasks[task.name] = TaskState(Status.ALLOCATED, start.node)
        for key, allocation in start.allocations:
            claims[key] = with_status(claims[key], allocation, users_of(claims[key]))
        _reserve(claims, job, task)
    for nomination in plan.nominations:
        tasks[named[nomination.pod][1].name] = TaskState(Status.NOMINATED, nomination.node)
    return State(tasks, claims)


def settle(vector: Vector, after: State) -> State:
    """The state in which the next round begins: who starts runs, and who is evicted waits.

    What evicted tasks have had is free, unless others use their claims too.
    """
    tasks, claims = dict(after.tasks), dict(after.claims)
    for job, task in tasks_of(vector):
        match after.tasks[task.name].status:
            case Status.ALLOCATED:
                tasks[task.name] = replace(after.tasks[task.name], status=Status.RUNNING)
            case Status.EVICTING if job.after_eviction == "stays-evicting":
                pass
            case Status.EVICTING | Status.NOMINATED:
                tasks[task.name] = WAITING
                release(claims, job, task)
            case _:
                pass
    return State(tasks, claims)


def release(claims: dict[str, ResourceClaim], job: Job, task: Task) -> None:
    """Takes the task from the users of its claims; one that loses its last user is free."""
    for key in claims_of(job, task):
        claim = claims.get(key)
        if claim is not None and task.name in (users := users_of(claim)):
            left = tuple(user for user in users if user != task.name)
            claims[key] = with_status(claim, claim.status.allocation if left else None, left)


def _reserve(claims: dict[str, ResourceClaim], job: Job, task: Task) -> None:
    for key in claims_of(job, task):
        claim = claims.get(key)
        if claim is not None and task.name not in (users := users_of(claim)):
            claims[key] = with_status(claim, claim.status.allocation, (*users, task.name))


def _without_nominations(state: State) -> State:
    # Nothing keeps a nomination from one round to the next.
    tasks = {
        name: WAITING if task.status is Status.NOMINATED else task
        for name, task in state.tasks.items()
    }
    return replace(state, tasks=tasks)
