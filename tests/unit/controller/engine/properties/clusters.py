"""Small random clusters: nodes with devices of several kinds, and queues."""

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Final

from carina_dra.allocator.node import Node
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    CapacityRange,
    CapacityRequestPolicy,
    CelSelector,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceCounterConsumption,
    DeviceSelector,
    ObjectMeta,
    OnNode,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    StringAttribute,
    ValidRange,
)
from controller.engine.model.node import ClusterNode, Taint
from controller.engine.model.queue import Entitlement, Hold, Queue
from controller.engine.model.resource import CapacityOf, Cpu, DevicesOf, Memory, Pods, Resource

DRIVER: Final = "gpu.carina.dev"
MEMORY: Final = f"{DRIVER}/memory"
GIB: Final = 1 << 30
CARD_MEMORY: Final = 16
"""GiB of device memory that a card has."""
SLICES: Final = 4
"""What a card can be divided into."""
TOPOLOGY: Final = "place"
LEVELS: Final = ("zone", "rack")
CLASSES: Final = ("gpu", "share", "half", "quarter")
LICENSE: Final = "example.com/license"
NAMED: Final = "example.com/device"
"""The extended resource of a DeviceClass, which device plugins offer on some nodes."""
TAINT: Final = Taint("dedicated", "batch")


def classes() -> tuple[DeviceClass, ...]:
    """One class for each type of device."""
    return tuple(map(_class, CLASSES))


def random_nodes(rng: Random) -> tuple[ClusterNode, ...]:
    """One to six nodes in up to four racks of up to two zones; some tainted, rarely cordoned."""
    return tuple(_node(rng, index) for index in range(rng.randint(1, 6)))


def random_devices(rng: Random, nodes: tuple[ClusterNode, ...]) -> tuple[ResourceSlice, ...]:
    """The devices of each node: whole cards, cards to share, cards to divide, or none."""
    kinds = rng.sample(("whole", "whole", "shared", "divided"), rng.randint(1, 3))
    if rng.random() < 0.3:
        kinds.append("none")
    return tuple(
        published
        for node in nodes
        for published in devices_of(node.name, rng.choice(kinds), rng.randint(1, 4))
    )


def offered(slices: tuple[ResourceSlice, ...]) -> list[str]:
    """The classes of which there are devices."""
    found = (device.attributes["type"] for one in slices for device in one.spec.devices)
    return sorted({one.value for one in found if isinstance(one, StringAttribute)})


def random_queues(rng: Random) -> tuple[Queue, ...]:
    """A tree of one to three levels, whose leaves take work."""
    resources: list[Resource] = [Cpu(), Memory(), Pods(), CapacityOf(MEMORY)]
    resources += [DevicesOf(name) for name in ("gpu", "gpu", "half")]
    named = {rng.choice(resources) for _ in range(rng.choice((0, 1, 1, 2, 3)))}
    found: list[Queue] = []
    parents: list[str | None] = [None]
    for level in range(rng.randint(1, 3)):
        names = [f"q{level}{index}" for index in range(rng.randint(1, 3))]
        found += [_queue(rng, name, rng.choice(parents), sorted(named, key=str)) for name in names]
        parents = [*names]
    return tuple(found)


def leaves(queues: tuple[Queue, ...]) -> list[str]:
    """The queues that take work."""
    parents = {queue.parent for queue in queues}
    return [queue.name for queue in queues if queue.name not in parents]


def devices_of(node: str, kind: str, cards: int) -> Iterator[ResourceSlice]:
    """The slices of a node with so many cards of a kind."""
    match kind:
        case "whole":
            yield _slice(node, 1, tuple(_whole(f"gpu-{index}") for index in range(cards)))
        case "shared" | "divided":
            own = _shared if kind == "shared" else _divided
            devices = tuple(device for index in range(cards) for device in own(f"gpu-{index}"))
            counters = {"slices": Counter(Quantity.of(SLICES))}
            sets = tuple(CounterSet(f"gpu-{index}", counters) for index in range(cards))
            yield _slice(node, 2, devices)
            yield ResourceSlice(
                ObjectMeta(name=f"{node}-counters"),
                spec=ResourceSliceSpec(
                    DRIVER, ResourcePool(node, 1, 2), OnNode(node), shared_counters=sets
                ),
            )
        case _:
            pass  # a node without devices


def _node(rng: Random, index: int) -> ClusterNode:
    zone, rack = rng.choice("ab"), rng.choice("12")
    labels = {"zone": zone, "rack": rack, "disk": rng.choice(("ssd", "hdd"))}
    if rng.random() < 0.1:
        del labels["rack"]
    return ClusterNode(
        Node(f"n{index}", labels),
        cpu=rng.randint(2, 16) * 1000,
        memory=rng.randint(4, 32) * GIB,
        pods=rng.choice((3, 5, 110, 110)),
        extended=({LICENSE: rng.randint(1, 3)} if rng.random() < 0.3 else {})
        | ({NAMED: rng.randint(0, 3)} if rng.random() < 0.3 else {}),
        taints=(TAINT,) if rng.random() < 0.1 else (),
        unschedulable=rng.random() < 0.05,
    )


def _queue(rng: Random, name: str, parent: str | None, named: list[Resource]) -> Queue:
    return Queue(
        name,
        parent,
        priority=rng.choice((50, 100, 100)),
        created=rng.randint(0, 2),
        entitlements={
            resource: _entitlement(rng, resource) for resource in named if rng.random() < 0.8
        },
        preempt_min_runtime=rng.choice((None, None, 0, 6, 1000)),
        reclaim_min_runtime=rng.choice((None, None, 0, 6, 1000)),
        deleted=rng.choice((None,) * 15 + (3,)),
        hold=rng.choices(list(Hold), (18, 1, 1))[0],
    )


def _entitlement(rng: Random, resource: Resource) -> Entitlement:
    unit = _UNITS.get(type(resource), 1)
    quota = rng.choice((None, 0, 1, 2, 4, 8))
    limit = rng.choice((None, None, None, None, None, 1, 3, 6, 12))
    weight = rng.choice((Fraction(1), Fraction(1), Fraction(0), Fraction(1, 3), Fraction(2)))
    return Entitlement(
        None if quota is None else quota * unit, None if limit is None else limit * unit, weight
    )


_UNITS: Final = {Cpu: 1000, Memory: 2 * GIB, CapacityOf: CARD_MEMORY // 2 * GIB}


def _class(name: str) -> DeviceClass:
    matches = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{name}"'
    selectors = (DeviceSelector(CelSelector(matches)),)
    return DeviceClass(ObjectMeta(name=name), DeviceClassSpec(selectors))


def _slice(node: str, slices: int, devices: tuple[Device, ...]) -> ResourceSlice:
    pool = ResourcePool(node, 1, slices)
    return ResourceSlice(
        ObjectMeta(name=f"{node}-devices"),
        spec=ResourceSliceSpec(DRIVER, pool, OnNode(node), devices),
    )


def _whole(name: str, consumed: tuple[DeviceCounterConsumption, ...] = ()) -> Device:
    memory = DeviceCapacity(Quantity.of(CARD_MEMORY * GIB))
    return Device(name, {"type": StringAttribute("gpu")}, {"memory": memory}, consumed)


def _shared(card: str) -> Iterator[Device]:
    """A card that one claim has, or several have parts of."""
    all_of_it = _consumes(card, SLICES)
    yield _whole(card, all_of_it)
    gib = Quantity.of(GIB)
    policy = CapacityRequestPolicy(default=gib, valid=ValidRange(CapacityRange(min=gib, step=gib)))
    yield Device(
        f"{card}-share",
        {"type": StringAttribute("share")},
        {"memory": DeviceCapacity(Quantity.of(CARD_MEMORY * GIB), policy)},
        all_of_it,
        allow_multiple_allocations=True,
    )


def _divided(card: str) -> Iterator[Device]:
    """A card, and the parts into which it can be divided instead."""
    yield _whole(card, _consumes(card, SLICES))
    for name, count in (("half", 2), ("quarter", 4)):
        memory = DeviceCapacity(Quantity.of(CARD_MEMORY // count * GIB))
        for index in range(count):
            yield Device(
                f"{card}-{name}-{index}",
                {"type": StringAttribute(name)},
                {"memory": memory},
                _consumes(card, SLICES // count),
            )


def _consumes(card: str, slices: int) -> tuple[DeviceCounterConsumption, ...]:
    return (DeviceCounterConsumption(card, {"slices": Counter(Quantity.of(slices))}),)
