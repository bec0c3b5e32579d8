"""The preference among possible allocations, on a node and among nodes.

On a node, devices that are close to each other come first, then devices whose use leaves the most
to other claims. A preference never makes a claim fail: it orders what the search tries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from carina_dra.allocator.group import Uses
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.search import Choice
from carina_dra.allocator.usage import DeviceId
from carina_dra.resource import DeviceAttribute, lookup
from carina_dra.resource.limits import ALTERNATIVES_PER_REQUEST

NVLINK_DOMAIN: Final = "gpu.carina.dev/nvlinkDomain"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

_CLOSENESS: Final = (
    (NVLINK_DOMAIN, PCIE_ROOT),
    (NVLINK_DOMAIN, NUMA_NODE),
    (NVLINK_DOMAIN,),
    (PCIE_ROOT,),
    (NUMA_NODE,),
)
"""The attributes that devices allocated together should share, the best first."""
FAR: Final = len(_CLOSENESS)
"""The distance of devices that share none of these attributes."""


class Order(StrEnum):
    """Which nodes or devices come first."""

    BINPACK = "binpack"
    """Those used most, so that the others stay entirely free."""
    SPREAD = "spread"
    """Those used least, so that the load is even."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The preference among nodes, and among the devices of a node."""

    nodes: Order = Order.BINPACK
    devices: Order | None = Order.BINPACK
    """None for the devices that kube-scheduler chooses: the first that fit."""

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """Reads `binpack`, `spread`, `upstream`, or `NODES/DEVICES` such as `spread/binpack`.

        Raises:
            ValueError: the text is none of these.
        """
        nodes, _, devices = text.partition("/")
        try:
            if text == "upstream":
                return UPSTREAM
            return cls(Order(nodes), Order(devices or nodes))
        except ValueError:
            raise ValueError(
                f"policy {text!r}: write binpack, spread, upstream, or an order for nodes and one "
                "for devices, such as spread/binpack"
            ) from None


UPSTREAM: Final = Policy(devices=None)
"""The devices that kube-scheduler's allocator chooses on a node."""


def rank_devices(state: NodeState, uses: Uses, order: Order) -> tuple[Candidate, ...]:
    """The devices of a node, the preferred ones first; `uses` are those of all its groups.

    Devices of a GPU that is used more come first (binpack) or last (spread). Then come devices that
    block fewer other devices, then devices with fewer free neighbours (binpack), so that free GPUs
    close to each other stay together. Equal devices keep the published order.
    """
    sign = -1 if order is Order.BINPACK else 1
    offered = [candidate for pool in state.ready for candidate in pool.devices]
    locations = {candidate.id: _location(candidate) for candidate in offered}
    free_groups = Counter(
        location
        for group, in_use in uses
        if in_use == 0
        for location in locations[group.members[0].id]
    )
    rank: dict[DeviceId, tuple[int, ...]] = {}
    for group, in_use in uses:
        blocked = group.blocked(state.usage) if group.totals else {}
        for member in group.members:
            neighbours = (-sign * free_groups[location] for location in locations[member.id])
            rank[member.id] = (sign * in_use, blocked.get(member.id, 0), *neighbours)
    return tuple(sorted(offered, key=lambda candidate: rank[candidate.id]))


def closeness(candidates: Iterable[Candidate]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The attributes that devices of a node could share, the best first, with their distance.

    A device that lacks an attribute matches; an attribute that no device has is skipped.
    """
    known = {
        name
        for candidate in candidates
        for name, value in _location(candidate)
        if value is not None
    }
    for distance, names in enumerate(_CLOSENESS):
        present = tuple(name for name in names if name in known)
        if present:
            yield distance, present


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """The quality of an allocation on a node; a smaller score is better."""

    alternatives: int
    """Smaller for earlier alternatives of firstAvailable, as kube-scheduler scores nodes."""
    distance: int
    """The distance between its devices: 0 is the closest."""
    use: int
    """The mean usage of the node's devices in millionths; negative for binpack."""


def score(choices: Iterable[Sequence[Choice]], distance: int, uses: Uses, policy: Policy) -> Score:
    """The score of an allocation; `uses` are those of the node's groups before it."""
    mean = sum(in_use for _, in_use in uses) // len(uses) if uses else 0
    return Score(
        alternatives=-_prioritized(choices),
        distance=distance,
        use=-mean if policy.nodes is Order.BINPACK else mean,
    )


def _prioritized(choices: Iterable[Sequence[Choice]]) -> int:
    chosen = {
        (index, choice.alternative.request): choice.alternative.rank
        for index, choices_of_claim in enumerate(choices)
        for choice in choices_of_claim
        if choice.alternative.rank is not None
    }
    return sum(ALTERNATIVES_PER_REQUEST - rank for rank in chosen.values())


def _location(candidate: Candidate) -> tuple[tuple[str, DeviceAttribute | None], ...]:
    """The device's NVLink domain, PCIe root and NUMA node."""
    attributes, driver = candidate.device.attributes, candidate.id.driver
    return tuple(
        (name, lookup(attributes, name, driver)) for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
    )
