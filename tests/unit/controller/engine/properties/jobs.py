"""Random jobs: a group, and what its pods need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    CapacityRequirements,
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
)
from controller.engine.model.group import Group, PodSet, SubGroup, SubGroups, TopologyConstraint
from controller.engine.model.pod import Pending, Pod, PodNeeds, PodState, Toleration
from tests.unit.controller.engine.properties.clusters import (
    GIB,
    LEVELS,
    LICENSE,
    NAMED,
    TAINT,
    TOPOLOGY,
)

NAMESPACE: Final = "jobs"


@dataclass(frozen=True, slots=True)
class Slot:
    """A pod of a job; when it is evicted, another one takes its place."""

    group: str
    pod_set: str
    index: int
    needs: PodNeeds
    wants: tuple[DeviceRequest, ...] = ()
    """Of a claim of its own."""
    shared: str | None = None
    """The key of a claim that it shares with other pods."""
    budgets: tuple[str, ...] = ()
    is_named: bool = False
    """Whether it asks for the devices by an extended resource, and so has no claim yet."""

    def pod(self, generation: int, created: float, state: PodState | None = None) -> Pod:
        """The pod that takes the place for the n-th time."""
        name = f"{self.group.partition('/')[2]}-{self.pod_set}-{self.index}-{generation}"
        key = f"{NAMESPACE}/{name}"
        claims = (f"{key}-devices",) if self.wants else ()
        needs = self.needs
        if self.is_named:
            needs = replace(needs, mapped=((NAMED, sum(map(_count, self.wants))),))
        return Pod(
            key,
            needs,
            Pending() if state is None else state,
            group=self.group,
            pod_set=self.pod_set,
            claims=claims if self.shared is None else (*claims, self.shared),
            rank=self.index,
            created=created,
            budgets=self.budgets,
            planned=((NAMED, f"{key}-devices"),) if self.is_named else (),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A group with its pods, and the claims that they share."""

    group: Group
    slots: tuple[Slot, ...]
    shared: tuple[ResourceClaim, ...] = ()
    budgets: dict[str, int] = field(default_factory=dict)
    """How many of its pods may be missing, by budget."""


def claim(key: str, wants: Sequence[DeviceRequest]) -> ResourceClaim:
    """A claim without devices."""
    namespace, _, name = key.partition("/")
    return ResourceClaim(
        ObjectMeta(name=name, namespace=namespace, uid=f"uid-{key}"),
        spec=ResourceClaimSpec(DeviceClaim(tuple(wants))),
    )


def _count(request: DeviceRequest) -> int:
    assert isinstance(request.wants, Exactly)
    assert isinstance(request.wants.request.mode, ExactCount)
    return request.wants.request.mode.count


def devices(device_class: str, count: int = 1) -> DeviceRequest:
    """A request for devices of a class."""
    return DeviceRequest(
        "devices", Exactly(ExactDeviceRequest(device_class, mode=ExactCount(count)))
    )


def simple_job(
    name: str,
    queue: str,
    *,
    pods: int = 1,
    least: int | None = None,
    gpus: int = 1,
    cpu: int = 0,
    created: float = 0,
    priority: int = 0,
    preemptible: bool = True,
) -> Job:
    """Alike pods with whole GPUs; all of them are needed unless `least` says otherwise."""
    key = f"{NAMESPACE}/{name}"
    root = PodSet("workers", pods if least is None else least)
    group = Group(key, queue, root, priority=priority, preemptible=preemptible, created=created)
    wants = (devices("gpu", gpus),) if gpus else ()
    slots = (Slot(key, "workers", index, PodNeeds(cpu=cpu), wants) for index in range(pods))
    return Job(group, tuple(slots))


def random_job(rng: Random, number: int, queues: Sequence[str], offered: Sequence[str]) -> Job:
    """A single pod, a gang, an elastic group, or a tree of sub-groups.

    Most ask for devices of the classes that are offered.
    """
    name = f"{NAMESPACE}/j{number}"
    root = _root(rng)
    sets = list(_pod_sets(root))
    budgets = {f"budget-{number}": rng.randint(0, 2)} if rng.random() < 0.2 else {}
    shared: list[ResourceClaim] = []
    slots: list[Slot] = []
    for one in sets:
        needs, wants = _needs(rng), _wants(rng, offered)
        together = None
        if wants and rng.random() < 0.15:
            together = f"{name}-{one.name}-shared"
            shared.append(claim(together, wants))
            wants = ()
        is_simple = all(isinstance(request.wants, Exactly) for request in wants)
        is_named = bool(wants) and is_simple and rng.random() < 0.25
        count = max(0, one.min_count + rng.choice((0, 0, 0, 1, 2, -1)))
        slots += [
            Slot(name, one.name, index, needs, wants, together, tuple(budgets), is_named)
            for index in range(count)
        ]
    group = Group(
        name,
        rng.choice(queues),
        root,
        priority=rng.choice((0, 0, 0, 5, 10)),
        preemptible=rng.random() < 0.75,
        preempts=rng.random() < 0.9,
        created=rng.randint(0, 3),
        staleness_grace=rng.choice((None, None, 0, 5, float("inf"))),
        preemption_delay=rng.choice((0, 0, 0, 4)),
    )
    return Job(group, tuple(slots), tuple(shared), budgets)


def _root(rng: Random) -> SubGroup:
    topology = _topology(rng)
    if rng.random() < 0.75:
        return PodSet("workers", rng.choice((1, 1, 1, 2, 2, 3, 4, 0)), topology)
    children: list[SubGroup] = [
        PodSet(f"part{index}", rng.choice((1, 1, 2, 2, 0)), _topology(rng))
        for index in range(rng.randint(1, 3))
    ]
    if rng.random() < 0.3:
        inner = SubGroups("inner", tuple(children), rng.randint(1, len(children)), _topology(rng))
        children = [PodSet("head", 1), inner]
    return SubGroups("root", tuple(children), rng.randint(1, len(children)), topology)


def _topology(rng: Random) -> TopologyConstraint | None:
    if rng.random() < 0.7:
        return None
    required = rng.choice((None, *LEVELS))
    preferred = rng.choice((None, *LEVELS))
    return TopologyConstraint(TOPOLOGY, required, preferred) if required or preferred else None


def _pod_sets(part: SubGroup) -> Iterator[PodSet]:
    match part:
        case PodSet():
            yield part
        case SubGroups(children=children):
            for child in children:
                yield from _pod_sets(child)


def _needs(rng: Random) -> PodNeeds:
    return PodNeeds(
        cpu=rng.choice((0, 500, 1000, 1000, 2000)),
        memory=rng.choice((0, 1, 1, 2, 4)) * GIB,
        extended=((LICENSE, 1),) if rng.random() < 0.04 else (),
        node_selector=(("disk", rng.choice(("ssd", "hdd"))),) if rng.random() < 0.1 else (),
        tolerations=(Toleration(TAINT.key, TAINT.value),) if rng.random() < 0.3 else (),
        host_ports=(("TCP", "0.0.0.0", rng.choice((80, 81))),) if rng.random() < 0.1 else (),
    )


def _wants(rng: Random, offered: Sequence[str]) -> tuple[DeviceRequest, ...]:
    kind = rng.choice((*offered, *offered, "gpu", "two", "first", "none"))
    match kind:
        case "gpu" | "half" | "quarter":
            return (devices(kind),)
        case "share":
            memory = Quantity.of(rng.choice((2, 4, 8, 12)) * GIB)
            asked = ExactDeviceRequest("share", capacity=CapacityRequirements({"memory": memory}))
            return (DeviceRequest("devices", Exactly(asked)),)
        case "two":
            return (devices(rng.choice(("gpu", "gpu", "half")), 2),)
        case "first":
            names = rng.sample(("gpu", "half", "quarter"), 2)
            alternatives = tuple(DeviceSubRequest(name, name) for name in names)
            return (DeviceRequest("devices", FirstAvailable(alternatives)),)
        case _:
            return ()
