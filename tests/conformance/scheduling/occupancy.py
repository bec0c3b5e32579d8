"""Whether nodes and devices have room for those who hold them, without the engine's own books."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from carina_dra.resource import DeviceResult, ExactCount, Exactly, ResourceClaim
from controller.engine.model.plan import Plan
from tests.conformance.scheduling.devices import DRIVER, Gpus, with_status
from tests.conformance.scheduling.state import (
    HOLDING,
    State,
    claims_of,
    pod_key,
    release,
    state_after,
    tasks_of,
)
from tests.conformance.scheduling.vector import Status, Vector


def violations(vector: Vector, gpus: Gpus, before: State, plan: Plan) -> list[str]:
    """What a plan does that it must not: messages, empty for a sound plan.

    What starts must fit beside all that holds something still. What is nominated must fit, with
    what starts and what stays, once all that leaves has left.
    """
    found = list(_misplaced(vector, before, plan))
    if found:
        return found
    after = state_after(vector, before, plan)
    known = set(overuse(vector, gpus, before.places(), before.claims))
    moved = {step.pod for step in plan.nominations}
    evicted = {step.pod for step in plan.evictions}
    now = before.places()
    later: dict[str, str] = {}
    claims = dict(after.claims)
    for job, task in tasks_of(vector):
        key, status = pod_key(job, task), after.tasks[task.name].status
        node = after.tasks[task.name].node or ""
        if status is Status.ALLOCATED:
            now[task.name] = node
        if key in evicted or status is Status.EVICTING:
            release(claims, job, task)
        elif status in HOLDING:
            later[task.name] = node
        if key in moved:
            later[task.name] = node
    for step in plan.nominations:
        for key, allocation in step.allocations:
            claims[key] = with_status(claims[key], allocation, ())
    found += sorted(set(overuse(vector, gpus, now, after.claims)) - known)
    if not found:
        waiting = sorted(set(overuse(vector, gpus, later, claims)) - known)
        found += [f"with what is nominated: {each}" for each in waiting]
    return found


def _misplaced(vector: Vector, before: State, plan: Plan) -> Iterator[str]:
    """Steps for pods that are not in a state for them."""
    states = {pod_key(job, task): before.tasks[task.name] for job, task in tasks_of(vector)}
    evicted = {step.pod for step in plan.evictions}
    placed = [step.pod for step in plan.starts] + [step.pod for step in plan.nominations]
    for pods in (placed, [step.pod for step in plan.evictions]):
        yield from (f"{pod} is decided on twice" for pod in {*pods} if pods.count(pod) > 1)
    missing = {*placed, *evicted} - states.keys()
    yield from (f"{pod} does not exist" for pod in missing)
    if missing:
        return
    for eviction in plan.evictions:
        state = states[eviction.pod]
        if state.status not in {Status.ALLOCATED, Status.BOUND, Status.RUNNING}:
            yield f"{eviction.pod} is evicted, and is {state}"
        elif state.node != eviction.node:
            yield f"{eviction.pod} is evicted from {eviction.node}, and is {state}"
    for pod in placed:
        if states[pod].status is not Status.PENDING and pod not in evicted:
            yield f"{pod} is placed, and is {states[pod]}"
    for start in plan.starts:
        if start.pod in evicted:
            yield f"{start.pod} starts and is evicted"


def overuse(
    vector: Vector, gpus: Gpus, places: Mapping[str, str], claims: Mapping[str, ResourceClaim]
) -> Iterator[str]:
    """Where tasks at these places, with the devices of these claims, have more than there is."""
    cpu: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = defaultdict(int)
    pods: dict[str, int] = defaultdict(int)
    for job, task in tasks_of(vector):
        node = places.get(task.name)
        if node is None:
            continue
        cpu[node] += task.request.cpu_milli
        memory[node] += task.request.memory_bytes
        pods[node] += 1
        for key in claims_of(job, task):
            yield from _misallocated(vector, task.name, node, claims.get(key), key)
    for each in vector.cluster.nodes:
        for what, used, of in (
            ("milli-CPU", cpu[each.name], each.cpu_milli),
            ("bytes of memory", memory[each.name], each.memory_bytes),
            ("pods", pods[each.name], each.max_pods),
        ):
            if used > of:
                yield f"node {each.name} has {of} {what}, and {used} are in use"
    yield from _overused_devices(vector, gpus, claims)


def _misallocated(
    vector: Vector, task: str, node: str, claim: ResourceClaim | None, key: str
) -> Iterator[str]:
    if claim is None or claim.status.allocation is None:
        yield f"{task} is on {node}, and its claim {key} has no devices"
        return
    pools = {(each.driver, each.pool): each.node for each in vector.cluster.resource_slices}
    results = claim.status.allocation.devices.results
    for result in results:
        at = result.pool if result.driver == DRIVER else pools.get((result.driver, result.pool))
        if at != node:
            yield f"{task} is on {node}, and its claim {key} has {result.device} of {at}"
    for request in claim.spec.devices.requests:
        match request.wants:
            case Exactly(request=asked):
                count = asked.mode.count if isinstance(asked.mode, ExactCount) else 0
                if len(results) != count:
                    yield f"claim {key} asks for {count} devices, and has {len(results)}"
            case _:
                raise AssertionError(request)


def _overused_devices(
    vector: Vector, gpus: Gpus, claims: Mapping[str, ResourceClaim]
) -> Iterator[str]:
    holders: dict[tuple[str, str, str], list[DeviceResult]] = defaultdict(list)
    for claim in claims.values():
        if claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
                holders[result.driver, result.pool, result.device].append(result)
    given = {
        (each.driver, each.pool, device)
        for each in vector.cluster.resource_slices
        for device in each.devices
    }
    own = {
        (DRIVER, node.name, name): gpus.memory(node)
        for node in vector.cluster.nodes
        for index in range(node.gpus)
        for name in (f"gpu-{index}", f"gpu-{index}-share")
    }
    for device, results in holders.items():
        driver, pool, name = device
        where = f"{name} of {pool}"
        if device not in given and device not in own:
            yield f"{where} does not exist"
        elif device in given or not name.endswith("-share"):
            if len(results) > 1:
                yield f"{where} is allocated {len(results)} times"
        else:
            if (driver, pool, name.removesuffix("-share")) in holders:
                yield f"{where} is shared, and allocated whole"
            used = sum(result.consumed_capacity["memory"].value() for result in results)
            if used > own[device].value():
                yield f"{where} has {own[device]}, and {used} are in use"
