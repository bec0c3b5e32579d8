"""Which of several possible allocations is the better one: on a node, and among nodes.

On a node: devices that are close to each other, then those whose use leaves the most to others. A
preference never makes a claim fail: it orders what the search tries.
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
"""What devices given out together should have in common, the best first."""
FAR: Final = len(_CLOSENESS)
"""The distance of devices with nothing in common."""


class Order(StrEnum):
    """Where to go first."""

    BINPACK = "binpack"
    """To what is used most already, so that the rest stays whole."""
    SPREAD = "spread"
    """To what is used least, so that everybody has room."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to choose among nodes, and among the devices of a node."""

    nodes: Order = Order.BINPACK
    devices: Order | None = Order.BINPACK
    """None to take what kube-scheduler would: the first that fit."""

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """Reads `binpack`, `spread`, `upstream`, or one order for nodes and one for devices.

        The last is written `NODES/DEVICES`, such as `spread/binpack`.

        Raises:
            ValueError: it is none of these.
        """
        nodes, _, devices = text.partition("/")
        try:
            if text == "upstream":
                return UPSTREAM
            return cls(Order(nodes), Order(devices or nodes))
        except ValueError:
            raise ValueError(
                f"policy {text!r}: write binpack, spread, upstream, or one for nodes and one for "
                "devices, such as spread/binpack"
            ) from None


UPSTREAM: Final = Policy(devices=None)
"""As kube-scheduler's allocator chooses on a node."""


def in_order(state: NodeState, uses: Uses, order: Order) -> tuple[Candidate, ...]:
    """The devices of a node, the best to be given out first; `uses` are of all its groups.

    Devices of a GPU that is used more come before others (binpack) or after them (spread); then
    those that keep fewer other devices from being given out; then those with fewer free neighbours
    (binpack), so that GPUs that are close to each other stay together; then as published.
    """
    sign = -1 if order is Order.BINPACK else 1
    offered = [candidate for pool in state.ready for candidate in pool.devices]
    places = {candidate.id: _places(candidate) for candidate in offered}
    untouched = Counter(
        place for group, in_use in uses if in_use == 0 for place in places[group.members[0].id]
    )
    rank: dict[DeviceId, tuple[int, ...]] = {}
    for group, in_use in uses:
        blocked = group.blocked(state.usage) if group.totals else {}
        for member in group.members:
            near = (-sign * untouched[place] for place in places[member.id])
            rank[member.id] = (sign * in_use, blocked.get(member.id, 0), *near)
    return tuple(sorted(offered, key=lambda candidate: rank[candidate.id]))


def closeness(candidates: Iterable[Candidate]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What devices of a node could have in common, the best first, each with its distance.

    Devices without an attribute are let pass, so one that none has would say nothing.
    """
    known = {name for each in candidates for name, value in _places(each) if value is not None}
    for distance, names in enumerate(_CLOSENESS):
        present = tuple(name for name in names if name in known)
        if present:
            yield distance, present


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """How good an allocation on a node is: the smallest is the best."""

    alternatives: int
    """Less for earlier alternatives of firstAvailable, as kube-scheduler scores nodes."""
    distance: int
    """How far its devices are from each other: 0 is the closest."""
    use: int
    """Of the node's devices, in millionths; negative where most used comes first."""


def score(choices: Iterable[Sequence[Choice]], distance: int, uses: Uses, policy: Policy) -> Score:
    """Scores what was found on a node, of whose groups so much was in use before it."""
    mean = sum(in_use for _, in_use in uses) // len(uses) if uses else 0
    return Score(
        alternatives=-_prioritized(choices),
        distance=distance,
        use=-mean if policy.nodes is Order.BINPACK else mean,
    )


def _prioritized(choices: Iterable[Sequence[Choice]]) -> int:
    chosen = {
        (index, each.alternative.request): each.alternative.rank
        for index, of_claim in enumerate(choices)
        for each in of_claim
        if each.alternative.rank is not None
    }
    return sum(ALTERNATIVES_PER_REQUEST - rank for rank in chosen.values())


def _places(candidate: Candidate) -> tuple[tuple[str, DeviceAttribute | None], ...]:
    """Where it is, in each sense of close."""
    attributes, driver = candidate.device.attributes, candidate.id.driver
    return tuple(
        (name, lookup(attributes, name, driver)) for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
    )
