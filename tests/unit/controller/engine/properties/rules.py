"""Whether a plan keeps the rules of groups, queues, budgets and victims."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from carina_dra.resource import (
    Allocation,
    Exactly,
    FirstAvailable,
    ResourceClaim,
)
from controller.engine.model.group import Group, PodSet, SubGroup, SubGroups
from controller.engine.model.plan import Action, Eviction, Plan
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.model.queue import Entitlement, Hold, Queue
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
)
from tests.unit.controller.engine.properties.clusters import DRIVER, LEVELS
from tests.unit.controller.engine.properties.occupancy import (
    Occupancy,
    occupancy_later,
    occupancy_now,
    overuse,
    placements,
    wrong_steps,
)
from tests.unit.controller.engine.properties.running_cluster import (
    RunningCluster,
    is_satisfied,
    pods_by_set,
)

Sums: TypeAlias = Mapping[str, Mapping[Resource, int]]
"""By queue: what it has."""


def violations(cluster: RunningCluster, plan: Plan) -> list[str]:
    """What a plan does that no plan may do; empty for a sound plan."""
    return [
        *wrong_steps(cluster, plan),
        *overuse(cluster, occupancy_now(cluster, plan)),
        *(f"later: {one}" for one in overuse(cluster, occupancy_later(cluster, plan))),
        *_split_groups(cluster, plan),
        *_scattered_groups(cluster, plan),
        *_exceeded_queues(cluster, plan),
        *_wrong_victims(cluster, plan),
        *_exceeded_budgets(cluster, plan),
    ]


# Groups.


def _split_groups(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    """Groups that start in part, or keep a part of what they need."""
    evicted = {step.pod for step in plan.evictions}
    placed = {key for key, pod in cluster.pods.items() if isinstance(pod.state, Placed)}
    started = {step.pod for step in plan.starts}
    nominated = {step.pod for step in plan.nominations}
    for group in cluster.groups.values():
        pods = [pod for pod in cluster.pods.values() if pod.group == group.key]
        before = _has_minimum(group, pods, placed)
        if any(pod.key in started for pod in pods) and not _has_minimum(
            group, pods, placed - evicted | started
        ):
            yield f"{group.key} starts, and has less than it needs"
        if any(pod.key in nominated for pod in pods) and not _has_minimum(
            group, pods, placed - evicted | started | nominated
        ):
            yield f"{group.key} is nominated, and has less than it needs"
        keeps = placed - evicted | started
        if (
            before
            and any(pod.key in evicted for pod in pods)
            and any(pod.key in keeps for pod in pods)
            and not _has_minimum(group, pods, keeps | nominated)  # a pod may move by itself
        ):
            yield f"{group.key} keeps a part of what it needs"


def _has_minimum(group: Group, pods: Iterable[Pod], active: set[str]) -> bool:
    return is_satisfied(group.root, pods_by_set(pod for pod in pods if pod.key in active))


def _scattered_groups(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    """Groups that get a place outside of the domain where they have to be together."""
    later = occupancy_later(cluster, plan).nodes
    decided = {step.pod for step in placements(plan)}
    labels = {node.name: node.node.labels for node in cluster.nodes}
    for group in cluster.groups.values():
        for part in _parts(group.root):
            level = part.topology.required if part.topology else None
            if level is None:
                continue
            names = {one.name for one in _parts(part)}
            pods = [
                pod
                for pod in cluster.pods.values()
                if pod.group == group.key
                and pod.pod_set in names
                and pod.key in later
                and not isinstance(pod.state, Evicting)
            ]
            if not any(pod.key in decided for pod in pods):
                continue
            keys = LEVELS[: LEVELS.index(level) + 1]
            domains = {tuple(labels[later[pod.key]].get(key) for key in keys) for pod in pods}
            if len(domains) > 1 or any(None in domain for domain in domains):
                yield f"{part.name} of {group.key} is in {domains}, and must be in one {level}"


def _parts(part: SubGroup) -> Iterator[SubGroup]:
    yield part
    match part:
        case PodSet():
            pass
        case SubGroups(children=children):
            for child in children:
                yield from _parts(child)


# Queues.


def _exceeded_queues(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    """Limits, and quotas for what is not preemptible, that are exceeded by what is decided."""
    before = Occupancy(
        {key: node for key, pod in cluster.pods.items() if (node := _charged_on(pod)) is not None},
        {
            key: claim.status.allocation
            for key, claim in cluster.claims.items()
            if claim.status.allocation is not None
        },
    )
    after = occupancy_later(cluster, plan)
    queues = {queue.name: queue for queue in cluster.queues}
    for one in placements(plan):
        queue = cluster.groups[cluster.pods[one.pod].group or ""].queue
        if not all(queues[name].admits for name in _path(queues, queue)):
            yield f"{one.pod} gets a place in queue {queue}, which admits nothing"
    for firm in (False, True):
        had, has = sums(cluster, before, firm=firm), sums(cluster, after, firm=firm)
        for name, of_queue in has.items():
            for resource, amount in of_queue.items():
                if amount <= had[name][resource]:
                    continue
                entitlement = entitlement_of(queues, name, resource)
                if entitlement.limit is not None and amount > entitlement.limit:
                    yield f"{name} has {amount} of {resource}, and its limit is {entitlement.limit}"
                if firm and entitlement.quota is not None and amount > entitlement.quota:
                    yield f"{name} has {amount} firm of {resource}, its quota {entitlement.quota}"


def _charged_on(pod: Pod) -> str | None:
    """The node on which a pod has what its queue is charged for; None for nothing."""
    match pod.state:
        case (
            Placed(node=node) | Evicting(node=node, stuck=True) | Evicting(node=node, charged=True)
        ):
            return node
        case _:
            return None


def sums(cluster: RunningCluster, held: Occupancy, *, firm: bool = False) -> Sums:
    """What each queue has, with all below it; `firm`: only of what is not preemptible."""
    queues = {queue.name: queue for queue in cluster.queues}
    named = {resource for queue in cluster.queues for resource in queue.entitlements}
    found: dict[str, dict[Resource, int]] = {name: dict.fromkeys(named, 0) for name in queues}
    counted: set[str] = set()
    for key in held.nodes:
        pod = cluster.pods[key]
        group = cluster.groups[pod.group or ""]
        if firm and group.preemptible:
            continue
        claims = [name for name in pod.claims if name not in counted]
        counted.update(claims)
        for resource in named:
            amount = _of_pod(pod, resource) + sum(
                _of_claim(cluster, cluster.claims[name], held.claims[name], resource)
                for name in claims
                if name in held.claims
            )
            above: str | None = group.queue
            while above is not None:
                found[above][resource] += amount
                above = queues[above].parent
    return found


def entitlement_of(queues: Mapping[str, Queue], name: str, resource: Resource) -> Entitlement:
    """What a queue may have; of devices that it does not name, what those below it may have."""
    named = queues[name].entitlements.get(resource)
    if queues[name].ends:
        return Entitlement(0, None if named is None else named.limit, Fraction(0))
    if named is not None:
        return named
    if isinstance(resource, Cpu | Memory | Pods):
        return Entitlement(quota=None)
    below = [one.name for one in queues.values() if one.parent == name]
    quotas = [entitlement_of(queues, one, resource).quota for one in below]
    known = [quota for quota in quotas if quota is not None]
    return Entitlement(quota=sum(known) if len(known) == len(quotas) else None)


def _of_pod(pod: Pod, resource: Resource) -> int:
    match resource:
        case Cpu():
            return pod.needs.cpu
        case Memory():
            return pod.needs.memory
        case Pods():
            return 1
        case Gpus() | DevicesOf() | CapacityOf():
            return 0


def _of_claim(
    cluster: RunningCluster, claim: ResourceClaim, allocation: Allocation, resource: Resource
) -> int:
    match resource:
        case DevicesOf(device_class=name):
            classes = dict(_classes(claim))
            return sum(classes[one.request] == name for one in allocation.devices.results)
        case CapacityOf(name=name):
            short = name.removeprefix(f"{DRIVER}/")
            amount = 0
            for result in allocation.devices.results:
                if result.share_id is not None:
                    amount += result.consumed_capacity[short].value()
                else:
                    amount += _capacity(cluster, result.pool, result.device, short)
            return amount
        case Gpus() | Cpu() | Memory() | Pods():  # `test_gpu_quotas` counts GPUs
            return 0


def _capacity(cluster: RunningCluster, pool: str, name: str, capacity: str) -> int:
    for published in cluster.slices:
        if published.spec.pool.name == pool:
            for device in published.spec.devices:
                if device.name == name:
                    return device.capacity[capacity].value.value()
    raise AssertionError(name)


def _classes(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    for request in claim.spec.devices.requests:
        match request.wants:
            case Exactly(request=exact):
                yield request.name, exact.device_class_name
            case FirstAvailable(alternatives=alternatives):
                for one in alternatives:
                    yield f"{request.name}/{one.name}", one.device_class_name
            case None:
                raise AssertionError(request)


# Victims.


def _wrong_victims(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    """Evictions that nobody may ask for, or that nobody gets a place for."""
    queues = {queue.name: queue for queue in cluster.queues}
    served = {cluster.pods[one.pod].group for one in placements(plan)}
    moved = {one.pod for one in plan.nominations}
    evicted = {one.pod for one in plan.evictions}
    for one in plan.evictions:
        group = cluster.groups[cluster.pods[one.pod].group or ""]
        if one.action in (Action.STALE, Action.DRAIN, Action.RELEASE, Action.REPLACE):
            if one.group != group.key:
                yield f"{one.pod} is evicted by {one.action}, for {one.group}"
            is_emptied = any(queues[name].hold is Hold.DRAIN for name in _path(queues, group.queue))
            if one.action is Action.DRAIN and not is_emptied:
                yield f"{one.pod} is evicted, and queue {group.queue} is not emptied"
            continue
        taker = cluster.groups[one.group]
        if taker.key not in served:
            yield f"{one.pod} is evicted for {taker.key}, which gets nothing"
        if not group.preemptible:
            yield f"{one.pod} is evicted, and is not preemptible"
        yield from _wrong_victim(one, group, taker, moves=one.pod in moved)
        pods = [pod for pod in cluster.pods.values() if pod.group == group.key]
        keeps = {
            pod.key for pod in pods if isinstance(pod.state, Placed) and pod.key not in evicted
        } | {step.pod for step in plan.starts}
        placed = {pod.key for pod in pods if isinstance(pod.state, Placed)}
        if _has_minimum(group, pods, placed) and not _has_minimum(group, pods, keeps):
            safe = _safe_until(cluster, group, taker, one.action)
            if safe > cluster.now:
                yield f"{group.key} falls at {cluster.now}, and is safe until {safe}"


def _wrong_victim(one: Eviction, group: Group, taker: Group, *, moves: bool) -> Iterator[str]:
    match one.action:
        case Action.PREEMPT:
            if group.queue != taker.queue or group.priority >= taker.priority:
                yield f"{one.pod} of {group} is preempted for {taker}"
        case Action.RECLAIM:
            if group.queue == taker.queue:
                yield f"{one.pod} is reclaimed for {taker.key}, of the same queue"
        case Action.CONSOLIDATE:
            if not moves:
                yield f"{one.pod} is consolidated, and does not move"
        case Action.STALE | Action.DRAIN | Action.RELEASE | Action.REPLACE:
            pass


def _safe_until(cluster: RunningCluster, group: Group, taker: Group, action: Action) -> float:
    """Until when a group is safe as a whole."""
    queues = {queue.name: queue for queue in cluster.queues}
    path = _path(queues, group.queue)
    least: float | None = None
    match action:
        case Action.PREEMPT:
            values = [queues[name].preempt_min_runtime for name in path]
            default = cluster.settings.preempt_min_runtime
        case Action.RECLAIM:
            common = _path(queues, taker.queue)
            below = [name for name in path if name not in common]
            values = [queues[name].reclaim_min_runtime for name in path[len(below) - 1 :]]
            default = cluster.settings.reclaim_min_runtime
        case _:
            return 0
    least = next((value for value in values if value is not None), default)
    return least if group.started is None else group.started + least


def _path(queues: Mapping[str, Queue], name: str) -> list[str]:
    path = [name]
    while (parent := queues[path[-1]].parent) is not None:
        path.append(parent)
    return path


def _exceeded_budgets(cluster: RunningCluster, plan: Plan) -> Iterator[str]:
    spent: dict[str, int] = defaultdict(int)
    for one in plan.evictions:
        for name in cluster.pods[one.pod].budgets:
            spent[name] += 1
    for name, count in spent.items():
        if count > cluster.budgets()[name]:
            yield f"{count} pods of {name} are evicted, which allows {cluster.budgets()[name]}"
