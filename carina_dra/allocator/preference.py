"""The preference among possible allocations, on a node and among nodes.

On a node, devices that are close to each other come first, then devices whose use leaves the most
to other claims. A preference never makes a claim fail: it orders what the search tries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final

from carina_dra.allocator.constraint import Match, values_of
from carina_dra.allocator.group import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT, Uses, bits_of
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.search import Choice
from carina_dra.resource import lookup

CLOSENESS: Final = (
    (NVLINK_DOMAIN, PCIE_ROOT),
    (NVLINK_DOMAIN, NUMA_NODE),
    (NVLINK_DOMAIN,),
    (PCIE_ROOT,),
    (NUMA_NODE,),
)
"""The attributes that devices allocated together should share, the best first."""
FAR: Final = len(CLOSENESS)
"""The distance of devices that share none of these attributes."""


_NONE: Final[Mapping[int, int]] = {}


class Order(StrEnum):
    """Which nodes or devices come first."""

    BINPACK = "binpack"
    """Those used most, so that the others stay entirely free."""
    SPREAD = "spread"
    """Those used least, so that the load is even."""

    @property
    def sign(self) -> int:
        """What usage is multiplied with, so that a smaller product is better."""
        return -1 if self is Order.BINPACK else 1


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


def rank_devices(
    state: NodeState, uses: Uses, order: Order, among: int | None = None
) -> tuple[Candidate, ...]:
    """The devices of a node, the preferred ones first; `uses` are those of all its groups.

    `among` says which of the published devices are of interest, one a bit; all if it is not given.

    Devices of a GPU that is used more come first (binpack) or last (spread). Then come devices that
    block fewer other devices, then devices with fewer free neighbours (binpack), so that free GPUs
    close to each other stay together. Neighbours are devices of the node's own. Equal devices keep
    the published order.
    """
    sign = order.sign
    free_groups = Counter(
        place
        for of_pool in uses
        for group, in_use in of_pool
        if in_use == 0 and group.is_own
        for place in group.places[group.bits[0]]
    )
    ranked: list[tuple[list[int], Candidate]] = []
    shift = 0
    for pool, of_pool in zip(state.ready, uses, strict=True):
        wanted = (1 << len(pool.devices)) - 1
        if among is not None:
            wanted &= among >> shift
        for group, in_use in of_pool if wanted else ():
            here = group.mask & wanted
            blocked = group.blocked(state.usage, here) if here and group.totals else _NONE
            for bit in bits_of(here):
                neighbours = [-sign * free_groups[place] for place in group.places[bit]]
                rank = [sign * in_use, blocked.get(bit, 0).bit_count(), *neighbours, bit << shift]
                ranked.append((rank, pool.devices[bit.bit_length() - 1]))
        shift += len(pool.devices)
    return tuple(member for _, member in sorted(ranked, key=itemgetter(0)))


def closeness(candidates: Sequence[Candidate]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The attributes that devices of a node could share, the best first, with their distance.

    A device that lacks an attribute matches; an attribute that no device has is skipped.
    """
    known = {
        name
        for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
        if any(
            lookup(candidate.device.attributes, name, candidate.id.driver) is not None
            for candidate in candidates
        )
    }
    for distance, names in enumerate(CLOSENESS):
        present = tuple(name for name in names if name in known)
        if present:
            yield distance, present


def have_in_common(candidates: Sequence[Candidate], name: str, *, lists: bool) -> bool:
    """Whether all devices that have the attribute have a value of it in common."""
    match = Match(lists)
    for candidate in candidates:
        attribute = lookup(candidate.device.attributes, name, candidate.id.driver)
        if attribute is not None and not match.add(values_of(attribute, lists=lists)):
            return False
    return True


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """The quality of an allocation on a node; a smaller score is better."""

    alternatives: int
    """The sum of the indices of the chosen alternatives of firstAvailable."""
    distance: int
    """The distance between its devices: 0 is the closest."""
    use: int
    """The usage of the node's own devices in millionths; negative for binpack."""


def usage_of_node(uses: Uses) -> int:
    """The mean usage of a node's groups in millionths; devices that other nodes reach are left out.

    What is in use of a network-attached device says nothing about one of its nodes.
    """
    own = [in_use for of_pool in uses for group, in_use in of_pool if group.is_own]
    return sum(own) // len(own) if own else 0


def score(choices: Iterable[Sequence[Choice]], distance: int, in_use: int, order: Order) -> Score:
    """The score of an allocation on a node with this usage before it."""
    return Score(
        alternatives=sum(ranks(choices).values()),
        distance=distance,
        use=order.sign * in_use,
    )


def ranks(choices: Iterable[Sequence[Choice]]) -> dict[tuple[int, str], int]:
    """By claim and request, the index of the chosen alternative of each firstAvailable."""
    return {
        (index, choice.alternative.request): choice.alternative.rank
        for index, choices_of_claim in enumerate(choices)
        for choice in choices_of_claim
        if choice.alternative.rank is not None
    }
