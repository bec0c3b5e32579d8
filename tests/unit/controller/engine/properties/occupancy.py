"""Whether nodes and devices have room for those who hold them, without the engine's own books."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from carina_dra.resource import (
    Allocation,
    Device,
    DeviceResult,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    StringAttribute,
)
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Nomination, Plan, Start
from controller.engine.model.pod import Evicting, Pending, Placed, Pod
from tests.unit.controller.engine.properties.running_cluster import RunningCluster


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Who is on which node, and what claims have."""

    nodes: Mapping[str, str]
    """By pod."""
    claims: Mapping[str, Allocation]


def placements(plan: Plan) -> tuple[Start | Nomination, ...]:
    """The pods that get a place, now or later."""
    return *plan.starts, *plan.nominations


def occupancy_now(cluster: RunningCluster, plan: Plan) -> Occupancy:
    """Everything that is held once the plan's pods have started, and nobody has left."""
    nodes = {
        pod.key: pod.state.node
        for pod in cluster.pods.values()
        if isinstance(pod.state, Placed | Evicting)
    }
    claims = {
        key: claim.status.allocation
        for key, claim in cluster.claims.items()
        if claim.status.allocation is not None
    }
    for start in plan.starts:
        nodes[start.pod] = start.node
        claims |= start.allocations
    return Occupancy(nodes, claims)


def occupancy_later(cluster: RunningCluster, plan: Plan) -> Occupancy:
    """Everything that is held when all who leave have left, and all who are nominated run.

    Pods that are stuck stay.
    """
    evicted = {step.pod for step in plan.evictions}
    nodes: dict[str, str] = {}
    for pod in cluster.pods.values():
        match pod.state:
            case Placed(node=node) if pod.key not in evicted:
                nodes[pod.key] = node
            case Evicting(node=node, stuck=True):
                nodes[pod.key] = node
            case _:
                pass
    given: dict[str, Allocation] = {}
    for step in placements(plan):
        nodes[step.pod] = step.node
        given |= step.allocations
    claims: dict[str, Allocation] = {}
    for key in nodes:
        for name in cluster.pods[key].claims:
            allocation = given.get(name) or cluster.claims[name].status.allocation
            if allocation is not None:
                claims[name] = allocation
    return Occupancy(nodes, claims)


def overuse(cluster: RunningCluster, held: Occupancy) -> Iterator[str]:
    """Where pods or claims have more than there is, or what they did not ask for."""
    for node in cluster.nodes:
        pods = [cluster.pods[key] for key, name in held.nodes.items() if name == node.name]
        yield from _overused_node(node, pods)
    for key, name in held.nodes.items():
        for claim in _needed(cluster, cluster.pods[key], name):
            yield from _misallocated(cluster, key, name, cluster.claims[claim], held.claims)
    yield from _overused_devices(cluster, held.claims)


def _needed(cluster: RunningCluster, pod: Pod, node: str) -> tuple[str, ...]:
    """The claims that a pod needs: where a device plugin serves it, none is made."""
    served = [one for one in cluster.nodes if one.name == node]
    return pod.claims_where(served[0].offered) if served else pod.claims


def misplaced(cluster: RunningCluster, pod: Pod, node: str) -> Iterator[str]:
    """Why a pod must not be on a node, whatever else is there."""
    at = next(one for one in cluster.nodes if one.name == node)
    if at.unschedulable:
        yield f"{pod.key} is placed on {node}, which is cordoned"
    for taint in at.taints:
        tolerated = [(one.key, one.value) for one in pod.needs.tolerations]
        if (taint.key, taint.value) not in tolerated:
            yield f"{pod.key} does not tolerate {taint} of {node}"
    for key, value in pod.needs.node_selector:
        if at.node.labels.get(key) != value:
            yield f"{pod.key} wants {key}={value}, and is placed on {node}"


def _overused_node(node: ClusterNode, pods: list[Pod]) -> Iterator[str]:
    used: dict[str, int] = defaultdict(int)
    ports: list[tuple[str, str, int]] = []
    for pod in pods:
        used["cpu"] += pod.needs.cpu
        used["memory"] += pod.needs.memory
        used["pods"] += 1
        for name, amount in pod.needs.served_by(node.offered).extended:
            used[name] += amount
        ports += pod.needs.host_ports
    has = {"cpu": node.cpu, "memory": node.memory, "pods": node.pods, **node.extended}
    for name, amount in used.items():
        if amount > has.get(name, 0):
            yield f"{node.name} has {has.get(name, 0)} of {name}, and {amount} are in use"
    if len(set(ports)) < len(ports):
        yield f"host ports of {node.name} are in use twice: {ports}"


def _misallocated(
    cluster: RunningCluster,
    pod: str,
    node: str,
    claim: ResourceClaim,
    given: Mapping[str, Allocation],
) -> Iterator[str]:
    allocation = given.get(claim.key)
    if allocation is None:
        yield f"{pod} is on {node}, and its claim {claim.key} has no devices"
        return
    published = _published(cluster)
    for request in claim.spec.devices.requests:
        results = [
            one for one in allocation.devices.results if one.request.split("/")[0] == request.name
        ]
        asked = dict(_alternatives(request.name, request.wants))
        chosen = {one.request for one in results}
        if len(chosen) != 1 or not chosen <= asked.keys():
            yield f"{claim.key} has devices for {chosen}, and asks for {asked.keys()}"
            return
        wanted = asked[chosen.pop()]
        count = wanted.mode.count if isinstance(wanted.mode, ExactCount) else 0
        if len(results) != count:
            yield f"{claim.key} has {len(results)} devices, and asks for {count}"
        for result in results:
            if result.pool != node:
                yield f"{pod} is on {node}, and {claim.key} has {result.device} of {result.pool}"
            device = published[result.pool, result.device]
            if device.attributes["type"] != StringAttribute(wanted.device_class_name):
                yield f"{claim.key} has {result.device}, not a {wanted.device_class_name}"
            for name, amount in (wanted.capacity.requests if wanted.capacity else {}).items():
                if result.consumed_capacity[name] < amount:
                    yield f"{claim.key} has too little {name} of {result.device}"


def _alternatives(
    name: str, wants: Exactly | FirstAvailable | None
) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    match wants:
        case Exactly(request=request):
            yield name, request
        case FirstAvailable(alternatives=alternatives):
            for one in alternatives:
                yield f"{name}/{one.name}", one
        case None:
            raise AssertionError(name)


def _published(cluster: RunningCluster) -> Mapping[tuple[str, str], Device]:
    return {
        (one.spec.pool.name, device.name): device
        for one in cluster.slices
        for device in one.spec.devices
    }


def _overused_devices(cluster: RunningCluster, claims: Mapping[str, Allocation]) -> Iterator[str]:
    holders: dict[tuple[str, str], list[DeviceResult]] = defaultdict(list)
    for allocation in claims.values():
        for result in allocation.devices.results:
            holders[result.pool, result.device].append(result)
    published = _published(cluster)
    for (pool, name), results in holders.items():
        device = published[pool, name]
        if not device.allow_multiple_allocations:
            if len(results) > 1:
                yield f"{name} of {pool} is allocated {len(results)} times"
            continue
        for of, capacity in device.capacity.items():
            used = sum(one.consumed_capacity[of].value() for one in results)
            if used > capacity.value.value():
                yield f"{name} of {pool} has {capacity.value} of {of}, and {used} are in use"
    yield from _overused_counters(cluster, holders.keys())


def _overused_counters(cluster: RunningCluster, in_use: Iterable[tuple[str, str]]) -> Iterator[str]:
    published = _published(cluster)
    consumed: dict[tuple[str, str, str], int] = defaultdict(int)
    for pool, name in in_use:
        for one in published[pool, name].consumes_counters:
            for counter, amount in one.counters.items():
                consumed[pool, one.counter_set, counter] += amount.value.value()
    for each in cluster.slices:
        for counters in each.spec.shared_counters:
            for counter, has in counters.counters.items():
                used = consumed[each.spec.pool.name, counters.name, counter]
                if used > has.value.value():
                    yield f"{counters.name} has {has.value} {counter}, and {used} are in use"


def wrong_steps(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    """Steps for pods that are not in a state for them."""
    nominations = [step.pod for step in plan.nominations]
    placed = [step.pod for step in plan.starts] + nominations
    evictions = [step.pod for step in plan.evictions]
    for pods in (placed, evictions):
        yield from (f"{pod} is decided on twice" for pod in {*pods} if pods.count(pod) > 1)
    for eviction in plan.evictions:
        state = cluster.pods[eviction.pod].state
        if state != Placed(eviction.node):
            yield f"{eviction.pod} is evicted from {eviction.node}, and is {state}"
    moved = {*nominations} & {*evictions}
    for key in placed:
        if not isinstance(cluster.pods[key].state, Pending) and key not in moved:
            yield f"{key} is placed, and is {cluster.pods[key].state}"
    for step in placements(plan):
        yield from misplaced(cluster, cluster.pods[step.pod], step.node)
    for start in plan.starts:
        for key, _ in start.allocations:
            if cluster.claims[key].status.allocation is not None:
                yield f"{start.pod} brings devices for {key}, which has some"
