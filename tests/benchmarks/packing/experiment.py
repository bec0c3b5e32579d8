"""Pods arrive one by one and none ends; one without a place is dropped."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from carina_dra.allocator.group import WHOLE
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.resource import ObjectMeta, ResourceClaim, ResourceSlice, decode
from controller.engine.model.group import Group, PodSet
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Pending, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Gpus
from controller.engine.model.snapshot import EngineSettings, Snapshot
from tests.benchmarks.claims import ATTRIBUTES, claim, request
from tests.benchmarks.engine.hardware import CLASS_VALUES
from tests.benchmarks.engine.jobs import NOW, Job
from tests.benchmarks.engine.rehearsal import Rehearsal
from tests.benchmarks.fleet import Object
from tests.benchmarks.packing.trace import MILLI, NodeKind, PodKind
from tests.benchmarks.pool import node_name, slices_of

_MIB: Final = 1 << 20
_QUEUE: Final = "queue"
_NAMESPACE: Final = "team"
_BATCH: Final = 64
"""So many pods are asked in a cycle, in their order."""
_FEW_CORES: Final = 4_000
_PODS: Final = 256
"""Of a node: the trace has no such limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has been given out at the end."""

    given: float
    """Percent of all GPUs."""
    without_cpu: float
    """Percent of all GPUs that are free, on nodes with less than four free cores."""
    placed: int
    dropped: int
    decide_s: float


def scaled(kinds: Iterable[NodeKind], scale: float) -> Iterator[NodeKind]:
    """So many nodes in proportion, at least one of each kind."""
    for kind in kinds:
        count = max(1, round(kind.count * scale))
        yield NodeKind(count, kind.cpu_milli, kind.memory_mib, kind.gpus, kind.model)


def run(nodes: Sequence[NodeKind], pods: Iterable[PodKind], policy: Policy) -> Outcome:
    """Has the pods arrive on free nodes."""
    rehearsal = Rehearsal(_snapshot(nodes, policy))
    milli = placed = dropped = 0
    for number, batch in enumerate(_batches(pods)):
        jobs = [(_job(kind, number * _BATCH + at), kind) for at, kind in enumerate(batch)]
        rehearsal.submit(job for job, _ in jobs)
        rehearsal.carry_out(rehearsal.decide())
        for job, kind in jobs:
            if job.pods[0].key in rehearsal.started:
                milli += kind.milli
                placed += 1
            else:
                rehearsal.withdraw([job])
                dropped += 1
    total = sum(kind.count * kind.gpus for kind in nodes)
    state = rehearsal.state
    lost = sum(
        sum(state.occupancy.devices.free_parts(name))
        for name, room in state.occupancy.rooms.items()
        if room.cpu < _FEW_CORES
    )
    return Outcome(
        100 * milli / (total * MILLI),
        100 * lost / (total * WHOLE),
        placed,
        dropped,
        rehearsal.decide_ms / 1_000,
    )


def _batches(pods: Iterable[PodKind]) -> Iterator[tuple[PodKind, ...]]:
    remaining = iter(pods)
    while batch := tuple(islice(remaining, _BATCH)):
        yield batch


def _snapshot(kinds: Iterable[NodeKind], policy: Policy) -> Snapshot:
    nodes: list[ClusterNode] = []
    slices: list[ResourceSlice] = []
    for kind in kinds:
        for _ in range(kind.count):
            index = len(nodes)
            node = Node(node_name(index), {})
            nodes.append(ClusterNode(node, kind.cpu_milli, kind.memory_mib * _MIB, _PODS))
            slices += (decode(ResourceSlice, one) for one in _slices(index, kind))
    return Snapshot(
        now=NOW,
        nodes=tuple(nodes),
        slices=tuple(slices),
        classes=CLASS_VALUES,
        queues=(Queue(_QUEUE, entitlements={Gpus(): Entitlement(None)}),),
        settings=EngineSettings(actions=(), placement=policy),
    )


def _slices(node: int, kind: NodeKind) -> Iterator[Object]:
    """Each GPU as a whole, and to be shared, as the kubelet plugin publishes it."""
    devices = [device for gpu in range(kind.gpus) for device in _devices(gpu, kind.model)]
    counters = [
        {"name": f"gpu-{gpu}", "counters": {"gpu": {"value": "1"}}} for gpu in range(kind.gpus)
    ]
    yield from slices_of(node, devices, counters)


def _devices(gpu: int, model: str) -> Iterator[Object]:
    draws = [{"counterSet": f"gpu-{gpu}", "counters": {"gpu": {"value": "1"}}}]
    for suffix, kind in (("", "gpu"), ("-share", "share")):
        device: Object = {
            "name": f"gpu-{gpu}{suffix}",
            "attributes": {"type": {"string": kind}, "productName": {"string": model}},
            "consumesCounters": draws,
        }
        if kind == "share":
            policy = {"validRange": {"min": "1", "step": "1"}, "default": "1"}
            device["allowMultipleAllocations"] = True
            device["capacity"] = {"cores": {"value": str(MILLI), "requestPolicy": policy}}
            device["attributes"]["leastShare"] = {"string": "1/1000"}
        yield device


@lru_cache(maxsize=1_024)
def _template(kind: PodKind) -> ResourceClaim:
    is_share = kind.gpu_milli < MILLI
    selector = f'{ATTRIBUTES}.type == "{"share" if is_share else "gpu"}"'
    if kind.models:
        models = ", ".join(f'"{model}"' for model in kind.models)
        selector += f" && {ATTRIBUTES}.productName in [{models}]"
    amounts = {"cores": str(kind.gpu_milli)} if is_share else None
    return decode(ResourceClaim, claim(request(selector, kind.num_gpu, amounts=amounts)))


def _job(kind: PodKind, number: int) -> Job:
    key = f"{_NAMESPACE}/job-{number:06}"
    claims = []
    if kind.num_gpu:
        metadata = ObjectMeta(name=f"gpus-{number:06}", namespace=_NAMESPACE, uid=f"uid-{number}")
        claims.append(
            ResourceClaim(metadata, spec=_template(kind).spec),
        )
    pod = Pod(
        f"{_NAMESPACE}/pod-{number:06}",
        PodNeeds(cpu=kind.cpu_milli, memory=kind.memory_mib * _MIB),
        Pending(),
        group=key,
        claims=tuple(one.key for one in claims),
        created=float(number),
    )
    group = Group(key, _QUEUE, PodSet("", 1), created=float(number))
    return Job(group, (pod,), tuple(claims))
