"""What is free: how many claims for one device of a class get one now, and where.

Devices of a node that do not exclude each other are counted. For others, the number is found by
allocating such claims until no node has a device, as kube-scheduler would. So devices that exclude
each other, such as a GPU and its partitions, count as many as fit together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import Policy
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.bounds.demand import Demand, Short
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.feed import Feed, WatchedObject
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.resource import (
    Allocation,
    Device,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    Exactly,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
    StringAttribute,
)
from controller.engine.model.snapshot import Snapshot

_MODEL: Final = "productName"
_MOST: Final = 100_000
"""So many claims are allocated at most: of a device that can be shared without end."""
_MAX_STEPS: Final = 100_000
"""Of a search for devices on one node."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How many claims for one device get one: now, and if no claim had any."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Domain:
    """A part of the cluster: the nodes with one value of a label."""

    level: str
    """The key of the label."""
    name: str
    """The value."""
    free: int


@dataclass(frozen=True, slots=True)
class FreeDevices:
    """What is free of a DeviceClass on the nodes that take pods."""

    device_class: str
    amount: Amount
    by_model: Mapping[str, Amount]
    """By the attribute `productName`; empty for devices without it."""
    by_node: Mapping[str, Amount]
    """The nodes with devices of the class."""
    best_domains: tuple[Domain, ...]
    """Of each level of each topology, the domain with most that is free."""

    @property
    def best_node(self) -> int:
        """How many claims get a device on one node."""
        return max((amount.free for amount in self.by_node.values()), default=0)


def free_devices(snapshot: Snapshot, classes: Iterable[str] = ()) -> tuple[FreeDevices, ...]:
    """What is free of each of the classes, or of all classes with devices.

    Nodes that are cordoned or not ready are left out. What the engine has nominated is not free.

    Raises:
        ValueError: there is no such class.
    """
    known = {device_class.metadata.name for device_class in snapshot.classes}
    for name in (chosen := tuple(classes)):
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ValueError(f"there is no DeviceClass {name!r}; the classes are: {names}")
    found = (_of_class(snapshot, name) for name in chosen or sorted(known))
    return tuple(free for free in found if chosen or free.amount.total)


def _of_class(snapshot: Snapshot, device_class: str) -> FreeDevices:
    free = list(_filled(snapshot, device_class, with_claims=True))
    total = list(_filled(snapshot, device_class, with_claims=False))
    by_node = _amounts((node for node, _ in free), (node for node, _ in total))
    return FreeDevices(
        device_class=device_class,
        amount=Amount(len(free), len(total)),
        by_model=_amounts((model for _, model in free), (model for _, model in total)),
        by_node=by_node,
        best_domains=tuple(_best_domains(snapshot, by_node)),
    )


def _amounts(free: Iterable[str], total: Iterable[str]) -> Mapping[str, Amount]:
    of_free, of_total = Counter(free), Counter(total)
    return {key: Amount(of_free[key], of_total[key]) for key in sorted(of_free | of_total)}


def _filled(
    snapshot: Snapshot, device_class: str, *, with_claims: bool
) -> Iterator[tuple[str, str]]:
    """Node and model of each device, as claims for one device take all that they get."""
    cluster, feed = _cluster(snapshot, with_claims=with_claims)
    request = Exactly(ExactDeviceRequest(device_class))
    spec = ResourceClaimSpec(DeviceClaim((DeviceRequest("device", request),)))
    claim = ResourceClaim(ObjectMeta(name="one", namespace="free"), spec=spec)
    placer = Placer(
        cluster,
        Policy.parse("binpack"),
        new_share_id=map(str, count()).__next__,
        max_steps=_MAX_STEPS,
    )
    try:
        wanted = PlacementRequest.of([claim], feed.classes, cluster.features)
        demand = Demand(wanted.claims, cluster.features)
        others = set()
        for node in sorted(cluster.nodes):
            devices = _counted(cluster, demand, node)
            if devices is None:
                others.add(node)
            else:
                yield from ((node, _model_of(free.device)) for free in devices)
        for number in range(_MOST if others else 0):
            placement = placer.place(wanted, others)
            if not isinstance(placement, PlacedClaims):
                return
            (allocation,) = placement.allocated.allocations
            yield placement.node, _model(cluster, allocation)
            cluster.allocate(f"free/{number}", allocation)
    except AllocationError:  # a selector that does not compile: no claim gets a device
        return


def _cluster(snapshot: Snapshot, *, with_claims: bool) -> tuple[Cluster, Feed]:
    cluster = Cluster(snapshot.features)
    feed = Feed(cluster)
    nodes = (node.node for node in snapshot.nodes if not node.unschedulable)
    claims = snapshot.claims if with_claims else ()
    objects = chain[WatchedObject](nodes, snapshot.classes, snapshot.rules, snapshot.slices, claims)
    for watched in objects:
        feed.put(watched)
    if with_claims:
        for nomination in snapshot.memory.nominations:
            for claim, allocation in nomination.allocations:
                if cluster.allocation(claim) is None:
                    cluster.allocate(claim, allocation)
    return cluster, feed


def _counted(cluster: Cluster, demand: Demand, node: str) -> Sequence[Candidate] | None:
    """The devices of a node that claims for one get; None if only a search can tell."""
    try:
        offer = cluster.offer(node)
    except AllocationError:
        return None
    if len(offer.ready) < len(offer.pools) or not all(map(_is_plain, offer.ready)):
        return None
    states = [cluster.pool_state(offered) for offered in offer.ready]
    bound = demand.bound(offer, states, is_whole=True, wish=False)
    if isinstance(bound, Short):
        return None if bound.error else ()
    if bound.among is None:
        return None
    devices = chain.from_iterable(state.offered.devices for state in states)
    return [device for index, device in enumerate(devices) if bound.among >> index & 1]


def _is_plain(offered: OfferedPool) -> bool:
    """Whether the devices of a pool are a node's own, and use of one leaves the others free."""
    return (
        not offered.shareable
        and all(group.is_own for group in offered.groups)
        and all(len(group.members) + len(group.elsewhere) == 1 for group in offered.groups)
    )


def _model(cluster: Cluster, allocation: Allocation) -> str:
    """The model of the allocated device; empty if it does not say."""
    result = allocation.devices.results[0]
    device = cluster.published(DeviceId(result.driver, result.pool, result.device))
    return "" if device is None else _model_of(device)


def _model_of(device: Device) -> str:
    for name, value in device.attributes.items():
        if name.rpartition("/")[2] == _MODEL and isinstance(value, StringAttribute):
            return value.value
    return ""


def _best_domains(snapshot: Snapshot, by_node: Mapping[str, Amount]) -> Iterator[Domain]:
    labels = {node.name: node.node.labels for node in snapshot.nodes}
    levels = dict.fromkeys(chain.from_iterable(snapshot.topologies.values()))
    for level in levels:
        domains = Counter[str]()
        for node, amount in by_node.items():
            if level in labels[node]:
                domains[labels[node][level]] += amount.free
        if domains:
            name = min(domains, key=lambda domain: (-domains[domain], domain))
            yield Domain(level, name, domains[name])
