"""Random clusters of up to four nodes on which one group waits and others run, in plain numbers.

A card has four units. A pod has whole cards, or units of one card: as a share, or as a partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from random import Random
from typing import Final, assert_never

from carina_dra.allocator.node import Node
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    CapacityRequirements,
    DeviceAllocation,
    DeviceRequest,
    DeviceResult,
    ExactDeviceRequest,
    Exactly,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceClaimStatus,
)
from controller.engine.model.group import Group, PodSet
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import CapacityOf
from controller.engine.model.snapshot import EngineSettings, Snapshot
from tests.unit.controller.engine.properties.clusters import (
    CARD_MEMORY,
    DRIVER,
    GIB,
    MEMORY,
    classes,
    devices_of,
)
from tests.unit.controller.engine.properties.jobs import NAMESPACE, claim, devices

UNITS: Final = 4
"""Of a card."""
_UNIT: Final = CARD_MEMORY // UNITS * GIB
ASKER: Final = "new"
_ASKS: Final = "q"
_PARTITION: Final = {1: "quarter", 2: "half"}
_MOST_PODS: Final = 9
_NAME: Final = "name"
"""The label of a node that is its name."""


class Kind(StrEnum):
    """How the cards of a cluster are used."""

    WHOLE = "whole"
    SHARED = "shared"
    DIVIDED = "divided"


@dataclass(frozen=True, slots=True)
class Size:
    """What a pod needs: units of each of some cards of one node."""

    cards: int
    units: int
    nodes: frozenset[int] | None = None
    """Where it may be; None for everywhere."""

    @property
    def total(self) -> int:
        """Its units together."""
        return self.cards * self.units


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that runs."""

    group: str
    size: Size
    node: int
    cards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A group that runs."""

    queue: str
    least: int
    priority: int
    created: int
    preemptible: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster with one group that waits, for which one action is tried."""

    action: Action
    kind: Kind
    cards: tuple[int, ...]
    """By node."""
    groups: dict[str, Work]
    pods: tuple[Running, ...]
    wanted: tuple[Size, ...]
    """The pods of the group that waits."""
    quotas: dict[str, int]
    """In units, of the queues that have to give what is beyond."""
    priority: int = 9
    """That of the group that waits."""

    def name(self, index: int) -> str:
        """The key of a pod."""
        return f"{NAMESPACE}/{self.pods[index].group}-{index}"

    def wanted_name(self, index: int) -> str:
        """The key of a pod that waits."""
        return f"{NAMESPACE}/{ASKER}-{index}"

    def snapshot(self) -> Snapshot:
        """The cluster for the engine."""
        nodes = [f"n{index}" for index in range(len(self.cards))]
        groups = [
            Group(
                f"{NAMESPACE}/{name}",
                work.queue,
                PodSet("workers", work.least),
                priority=work.priority,
                created=work.created,
                preemptible=work.preemptible,
            )
            for name, work in self.groups.items()
        ]
        asker = f"{NAMESPACE}/{ASKER}"
        root = PodSet("workers", len(self.wanted))
        groups.append(Group(asker, _ASKS, root, priority=self.priority, created=100))
        pods, claims = [], []
        for index, running in enumerate(self.pods):
            placed = Placed(f"n{running.node}")
            pods.append(self._pod(self.name(index), running.group, running.size, placed, index))
            claims.append(self._held(pods[-1], running))
        for index, size in enumerate(self.wanted):
            key = self.wanted_name(index)
            pods.append(self._pod(key, ASKER, size, Pending(), index))
            claims.append(self._claim(pods[-1], size))
        return Snapshot(
            now=1000,
            nodes=tuple(
                ClusterNode(Node(name, {_NAME: name}), cpu=64_000, memory=512 * GIB)
                for name in nodes
            ),
            slices=tuple(
                one
                for name, cards in zip(nodes, self.cards, strict=True)
                for one in devices_of(name, self.kind, cards)
            ),
            classes=classes(),
            claims=tuple(claims),
            queues=tuple(self._queues()),
            groups=tuple(groups),
            pods=tuple(pods),
            settings=EngineSettings(actions=(self.action,), search_steps=None),
        )

    def _queues(self) -> Iterator[Queue]:
        resource = CapacityOf(MEMORY)
        yield Queue(_ASKS, entitlements={resource: Entitlement(None, None, Fraction(1))})
        for name, quota in self.quotas.items():
            entitlement = Entitlement(quota * _UNIT, None, Fraction(0))
            yield Queue(name, entitlements={resource: entitlement})

    def _pod(self, key: str, group: str, size: Size, state: Placed | Pending, index: int) -> Pod:
        needs = PodNeeds()
        if size.nodes is not None:
            names = tuple(f"n{node}" for node in sorted(size.nodes))
            only = NodeSelectorRequirement(_NAME, NodeSelectorOperator.IN, names)
            needs = PodNeeds(affinity=NodeSelector((NodeSelectorTerm(match_expressions=(only,)),)))
        return Pod(
            key,
            needs,
            state,
            group=f"{NAMESPACE}/{group}",
            pod_set="workers",
            claims=(f"{key}-devices",),
            rank=index,
        )

    def _claim(self, pod: Pod, size: Size) -> ResourceClaim:
        return claim(pod.claims[0], (self._request(size),))

    def _request(self, size: Size) -> DeviceRequest:
        if size.units == UNITS:
            return devices("gpu", size.cards)
        if self.kind is Kind.DIVIDED:
            return devices(_PARTITION[size.units])
        memory = Quantity.of(size.units * _UNIT)
        asked = ExactDeviceRequest("share", capacity=CapacityRequirements({"memory": memory}))
        return DeviceRequest("devices", Exactly(asked))

    def _held(self, pod: Pod, running: Running) -> ResourceClaim:
        node = f"n{running.node}"
        results = tuple(self._result(pod, running, node, card) for card in running.cards)
        only = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node,))
        selector = NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        allocation = Allocation(DeviceAllocation(results), selector)
        wanted = self._claim(pod, running.size)
        return replace(wanted, status=ResourceClaimStatus(allocation))

    def _result(self, pod: Pod, running: Running, node: str, card: int) -> DeviceResult:
        units = running.size.units
        if units == UNITS:
            return DeviceResult("devices", DRIVER, node, f"gpu-{card}")
        if self.kind is Kind.SHARED:
            memory = {"memory": Quantity.of(units * _UNIT)}
            name = f"gpu-{card}-share"
            return DeviceResult(
                "devices", DRIVER, node, name, share_id=pod.key, consumed_capacity=memory
            )
        before = sum(
            (other.node, other.cards) == (running.node, (card,)) and other.size.units == units
            for other in self.pods[: pod.rank]
        )
        return DeviceResult("devices", DRIVER, node, f"gpu-{card}-{_PARTITION[units]}-{before}")


def random_case(rng: Random, action: Action, kind: Kind, *, alike: bool) -> Case:
    """A cluster that is nearly full."""
    most = 4 if kind is Kind.WHOLE else 2
    alike_cards = rng.randint(1, most)
    cards = tuple(alike_cards if alike else rng.randint(1, most) for _ in range(rng.randint(1, 4)))
    queues = ("a", "b") if action is Action.RECLAIM else (_ASKS,)
    groups: dict[str, Work] = {}
    pods: list[Running] = []
    free = [[UNITS] * count for count in cards]
    leave = rng.choice((0.2, 0.35, 0.5) if action is Action.CONSOLIDATE else (0, 0.1, 0.25))
    leave *= sum(cards) * UNITS
    while len(pods) < _MOST_PODS and sum(map(sum, free)) > leave and len(groups) < 12:
        name = f"j{len(groups)}"
        count = rng.choice((1, 1, 1, 2, 3))
        here = []
        for _ in range(min(count, _MOST_PODS - len(pods))):
            running = _placed(rng, name, _size(rng, kind, cards, alike=alike), free)
            if running is not None:
                here.append(running)
        pods += here
        least = rng.choice((len(here), len(here), max(0, len(here) - 1)))
        groups[name] = Work(
            rng.choice(queues),
            least,
            rng.choice((0, 0, 5)),
            rng.randint(1, 50),
            rng.random() < 0.9,
        )
    used = {pod.group for pod in pods}
    wanted = tuple(_size(rng, kind, cards, alike=alike) for _ in range(rng.choice((1, 1, 1, 2))))
    quotas = {name: rng.randint(1, 6) for name in queues} if action is Action.RECLAIM else {}
    return Case(
        action,
        kind,
        cards,
        {name: work for name, work in groups.items() if name in used},
        tuple(pods),
        wanted,
        quotas,
    )


def _size(rng: Random, kind: Kind, cards: tuple[int, ...], *, alike: bool) -> Size:
    nodes = None
    if not alike and rng.random() < 0.2:
        everywhere = range(len(cards))
        nodes = frozenset(rng.sample(everywhere, rng.randint(1, len(cards))))
    match kind:
        case Kind.WHOLE:
            return Size(rng.randint(1, min(3, max(cards))), UNITS, nodes)
        case Kind.SHARED:
            return Size(1, rng.choice((1, 2, 3, UNITS)), nodes)
        case Kind.DIVIDED:
            return Size(1, rng.choice((1, 2, 2, UNITS)), nodes)
    assert_never(kind)


def _placed(rng: Random, group: str, size: Size, free: list[list[int]]) -> Running | None:
    """A pod on a random node and random cards where it has room."""
    nodes = [node for node in range(len(free)) if size.nodes is None or node in size.nodes]
    rng.shuffle(nodes)
    for node in nodes:
        cards = [card for card, left in enumerate(free[node]) if left >= size.units]
        if len(cards) >= size.cards:
            chosen = tuple(sorted(rng.sample(cards, size.cards)))
            for card in chosen:
                free[node][card] -= size.units
            return Running(group, size, node, chosen)
    return None
