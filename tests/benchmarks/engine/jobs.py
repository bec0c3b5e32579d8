"""Jobs: groups of pods, each pod with a ResourceClaim of its own, as made from a template."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    decode,
)
from controller.engine.model.group import Group, PodSet, TopologyConstraint
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import DevicesOf, Resource
from controller.engine.model.snapshot import Snapshot
from tests.benchmarks.claims import claim
from tests.benchmarks.engine.hardware import CLASS_VALUES, Hardware, Site, Use
from tests.benchmarks.fleet import Object
from tests.benchmarks.pool import node_name

NOW: Final = 1_000_000.0
GPUS: Final = DevicesOf("gpu")
_NAMESPACE: Final = "team"
_NEEDS: Final = PodNeeds(cpu=1_000, memory=1 << 30)


@dataclass(frozen=True, slots=True)
class Job:
    """A group with its pods and their claims."""

    group: Group
    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...]


def queue(name: str, *, quota: int | None = 0, limit: int | None = None, weight: int = 1) -> Queue:
    """A queue that is entitled to devices of the class `gpu`."""
    entitlements: Mapping[Resource, Entitlement] = {
        GPUS: Entitlement(quota, limit, Fraction(weight))
    }
    return Queue(name, entitlements=entitlements)


def waiting(
    prefix: str,
    of_queue: str,
    asked: Object,
    *,
    jobs: int = 1,
    pods: int = 1,
    topology: TopologyConstraint | None = None,
) -> list[Job]:
    """Jobs that wait, of so many pods each, the first one the oldest."""
    template = decode(ResourceClaim, claim(asked))
    return [
        _job(f"{prefix}-{number:06}", of_queue, [template] * pods, number, topology)
        for number in range(jobs)
    ]


def filling(hardware: Hardware, of_queue: str, nodes: Iterable[int], each: int = 1) -> list[Job]:
    """Jobs of one pod that run, and together fill nodes; `each` uses so many devices."""
    jobs: list[Job] = []
    for node in nodes:
        uses = list(hardware.full(node))
        for first in range(0, len(uses), each):
            name = f"running-{node:05}-{first:03}"
            jobs.append(_running(name, of_queue, node, uses[first : first + each], len(jobs)))
    return jobs


def snapshot(site: Site, queues: Iterable[Queue], jobs: Iterable[Job]) -> Snapshot:
    """The cluster with the jobs."""
    jobs = list(jobs)
    return Snapshot(
        now=NOW,
        nodes=site.nodes,
        slices=site.slices,
        classes=CLASS_VALUES,
        queues=tuple(queues),
        groups=tuple(job.group for job in jobs),
        pods=tuple(pod for job in jobs for pod in job.pods),
        claims=tuple(claim for job in jobs for claim in job.claims),
        topologies=site.topologies,
    )


def _job(
    name: str,
    of_queue: str,
    templates: list[ResourceClaim],
    age: int,
    topology: TopologyConstraint | None = None,
) -> Job:
    key = f"{_NAMESPACE}/{name}"
    claims, pods = [], []
    for index, template in enumerate(templates):
        pod = f"{name}-{index}"
        metadata = ObjectMeta(name=f"{pod}-gpus", namespace=_NAMESPACE, uid=f"uid-{pod}")
        claims.append(replace(template, metadata=metadata))
        pods.append(
            Pod(
                f"{_NAMESPACE}/{pod}",
                _NEEDS,
                Pending(),
                group=key,
                claims=(claims[-1].key,),
                rank=index,
                created=float(age),
            )
        )
    root = PodSet("", len(pods), topology)
    return Job(Group(key, of_queue, root, created=float(age)), tuple(pods), tuple(claims))


def _running(name: str, of_queue: str, node: int, uses: list[Use], age: int) -> Job:
    asked = uses[0].request
    if len(uses) > 1:
        asked = {**asked, "exactly": {**asked["exactly"], "count": len(uses)}}
    job = _job(name, of_queue, [decode(ResourceClaim, claim(asked))], age)
    results = tuple(use.result for use in uses)
    allocation = Allocation(DeviceAllocation(results), node_selector=_only(node_name(node)))
    (wanted,) = job.claims
    held = replace(wanted, status=ResourceClaimStatus(allocation))
    (pod,) = job.pods
    return Job(job.group, (replace(pod, state=Placed(node_name(node))),), (held,))


def _only(node: str) -> NodeSelector:
    requirement = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node,))
    return NodeSelector((NodeSelectorTerm(match_fields=(requirement,)),))
