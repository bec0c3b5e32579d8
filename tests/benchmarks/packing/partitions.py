"""Streams of MIG partitions of random profiles, more than there is room for; none ends."""

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from statistics import mean
from typing import Final

from carina_dra.allocator.preference import DEFAULT, UPSTREAM, Policy
from carina_dra.resource import ResourceClaim, decode
from controller.engine.model.group import Group, PodSet
from controller.engine.model.pod import Pending, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Gpus
from controller.engine.model.snapshot import EngineSettings, Snapshot
from controller.engine.simulate.fleet import DRIVER, GpuUse, NodeTemplate, device_classes
from tests.benchmarks.claims import claim, request
from tests.benchmarks.engine.jobs import NOW, Job
from tests.benchmarks.engine.rehearsal import Rehearsal
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.subject import Hear

_WORTH: Final = {
    "1g.10gb": Fraction(1, 7),
    "1g.20gb": Fraction(1, 4),
    "2g.20gb": Fraction(2, 7),
    "3g.40gb": Fraction(1, 2),
    "4g.40gb": Fraction(4, 7),
}
"""By profile: the largest of its parts of an H100."""
_ASKED: Final = Fraction(7, 5)
"""How many times as much as there is arrives."""
_GPUS: Final = 8
_NODES: Final = 12
_STREAMS: Final = range(6)


def measure(name: str, hear: Hear, *, scale: float = 1) -> None:
    """Measures what is not given out of the streams, beside the devices that upstream takes."""
    nodes = max(1, round(_NODES * scale))
    left, beside = (
        [refused(nodes, policy, seed) for seed in _STREAMS] for policy in (DEFAULT, UPSTREAM)
    )
    worse = sum(ours > theirs for ours, theirs in zip(left, beside, strict=True))
    hear(
        Measurement(
            name,
            f"partitions worth {float(_ASKED):.0%} of {nodes * _GPUS} H100: what is not given out",
            mean(left),
            "%",
            max(left),
            mean(beside),
            note=f"the goal is upstream's order, which refuses less of {worse} streams",
        )
    )


def refused(nodes: int, policy: Policy, seed: int) -> float:
    """Returns what is not given out of a stream, in percent of all GPUs."""
    rehearsal = Rehearsal(_snapshot(nodes, policy))
    lost = Fraction(0)
    for number, profile in enumerate(_stream(nodes * _GPUS, seed)):
        job = _job(profile, number)
        rehearsal.submit([job])
        rehearsal.carry_out(rehearsal.decide())
        if job.pods[0].key not in rehearsal.started:
            rehearsal.withdraw([job])
            lost += _WORTH[profile]
    return float(100 * lost / (nodes * _GPUS))


def _stream(gpus: int, seed: int) -> Iterator[str]:
    draw, arrived = Random(seed), Fraction(0)
    while arrived < gpus * _ASKED:
        profile = draw.choice([*_WORTH])
        arrived += _WORTH[profile]
        yield profile


def _snapshot(nodes: int, policy: Policy) -> Snapshot:
    ways = GpuUse.GPU, GpuUse.MIG
    template = NodeTemplate("h", 192_000, 1 << 40, nodes, gpus=_GPUS, devices=ways)
    made = tuple(template.nodes())
    return Snapshot(
        now=NOW,
        nodes=made,
        slices=tuple(published for node in made for published in template.slices(node.name)),
        classes=device_classes(),
        queues=(Queue("queue", entitlements={Gpus(): Entitlement(None)}),),
        settings=EngineSettings(actions=(), placement=policy),
    )


def _job(profile: str, number: int) -> Job:
    selector = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    asked = {"metadata": {"name": f"c{number}", "namespace": "team", "uid": f"uid-{number}"}}
    wanted = claim(request(selector, device_class=GpuUse.MIG.device_class))
    made: ResourceClaim = decode(ResourceClaim, wanted | asked)
    key = f"team/job-{number}"
    pod = Pod(
        f"team/pod-{number}",
        PodNeeds(cpu=100, memory=1 << 20),
        Pending(),
        group=key,
        claims=(made.key,),
        created=float(number),
    )
    return Job(Group(key, "queue", PodSet("", 1), created=float(number)), (pod,), (made,))
