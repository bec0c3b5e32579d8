"""The preference among possible allocations, on a node and among nodes.

On a node, devices that are close to each other come first, then devices whose use leaves the most
to other claims. A preference never makes a claim fail: it orders what the search tries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Final, assert_never

from carina_dra.allocator.constraint import Match, values_of
from carina_dra.allocator.group import (
    NUMA_NODE,
    NVLINK_DOMAIN,
    PCIE_ROOT,
    WHOLE,
    DeviceGroup,
    GroupUses,
    bits_of,
)
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


_FREE: Final = 2 * WHOLE
"""What a free GPU adds to the use of a score for fragmentation: more than any usage."""
BROKEN: Final = 1_000_000 * _FREE
"""What a broken GPU adds to it. No node has as many free GPUs."""
_NONE: Final[Mapping[int, int]] = {}


class Order(StrEnum):
    """Which nodes or devices come first."""

    BINPACK = "binpack"
    """Those used most, so that the others stay entirely free."""
    SPREAD = "spread"
    """Those used least, so that the load is even."""
    FRAGMENTATION = "fragmentation"
    """Those whose use leaves the most to large requests.

    Nodes where fewer free GPUs are broken, then those with the fewest free GPUs, then those used
    most. Devices that block the fewest other devices, then those of the GPUs that are used most. A
    free GPU is broken if something of it is taken and something is left.
    """
    BALANCED = "balanced"
    """Those whose use leaves the most devices that can be given out, with cpu and memory.

    The engine scores nodes so; where nothing is known of cpu and memory, nodes are ordered as with
    binpack. Devices are ordered as with fragmentation.
    """


@dataclass(frozen=True, slots=True)
class Policy:
    """The preference among nodes, and among the devices of a node."""

    nodes: Order = Order.BINPACK
    devices: Order | None = Order.BINPACK
    """None for the devices that kube-scheduler chooses: the first that fit."""

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """Reads `binpack`, `spread`, `fragmentation`, `balanced`, `upstream`, or `NODES/DEVICES`.

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
                f"policy {text!r}: write binpack, spread, fragmentation, upstream, balanced, or an "
                "order for nodes and one for devices, such as spread/binpack"
            ) from None


UPSTREAM: Final = Policy(devices=None)
"""The devices that kube-scheduler's allocator chooses on a node."""


DEFAULT: Final = Policy(Order.BALANCED, Order.BALANCED)
"""The policy of the engine where nobody names one."""


def rank_devices(
    state: NodeState, uses: GroupUses, order: Order, among: int | None = None
) -> tuple[Candidate, ...]:
    """The devices of a node, the preferred ones first; `uses` are those of all its groups.

    `among` says which of the published devices are of interest, one a bit; all if it is not given.

    Devices of a GPU that is used more come first (binpack) or last (spread). Then come devices that
    block fewer other devices, then devices with fewer free neighbours (binpack), so that free GPUs
    close to each other stay together. Neighbours are devices of the node's own. Equal devices keep
    the published order. `fragmentation` and `balanced` are binpack with the first two rules
    exchanged.
    """
    sign = 1 if order is Order.SPREAD else -1
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
            if not here:
                continue
            blocked = group.blocked(state.usage, here) if group.totals else _NONE
            for bit in bits_of(here):
                neighbours = [-sign * free_groups[place] for place in group.places[bit]]
                first = [sign * in_use, blocked.get(bit, 0).bit_count()]
                if order in (Order.FRAGMENTATION, Order.BALANCED):
                    first.reverse()
                rank = [*first, *neighbours, bit << shift]
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
    """What the order of nodes prefers, see `least_use` and `score`."""


def usage_of_node(uses: GroupUses) -> int:
    """The mean usage of a node's groups in millionths; devices that other nodes reach are left out.

    What is in use of a network-attached device says nothing about one of its nodes.
    """
    own = [in_use for of_pool in uses for group, in_use in of_pool if group.is_own]
    return sum(own) // len(own) if own else 0


def least_use(uses: GroupUses, order: Order) -> int:
    """No allocation on a node has a smaller `use` in its score.

    For binpack and spread it is the usage of the node, negative for binpack, and so it is for
    balanced, where nobody says what is lost. For fragmentation, it is larger for each free GPU of
    the node, and smaller the more of the node is used. What an allocation breaks is added.
    """
    match order:
        case Order.BINPACK | Order.BALANCED:
            return -usage_of_node(uses)
        case Order.SPREAD:
            return usage_of_node(uses)
        case Order.FRAGMENTATION:
            free = sum(1 for _ in _free_gpus(uses))
            return free * _FREE + WHOLE - usage_of_node(uses)
    assert_never(order)


def score(
    choices: Sequence[Sequence[Choice]], distance: int, uses: GroupUses, order: Order
) -> Score:
    """The score of an allocation on a node with these uses of its groups before it."""
    use = least_use(uses, order)
    if order is Order.FRAGMENTATION:
        use += BROKEN * broken(choices, uses)
    return Score(alternatives=sum(ranks(choices).values()), distance=distance, use=use)


def breakable(uses: Sequence[tuple[DeviceGroup, int]]) -> int:
    """The devices of a pool, one a bit, of which each would break a free GPU."""
    mask = 0
    for group in _free_gpus([uses]):
        mask |= group.partial
    return mask


def broken(choices: Iterable[Sequence[Choice]], uses: GroupUses) -> int:
    """The number of free GPUs that an allocation breaks."""
    taken = {
        choice.candidate.id
        for of_claim in choices
        for choice in of_claim
        if not choice.alternative.admin_access
    }
    return sum(
        any(
            member.id in taken and bit & group.partial
            for member, bit in zip(group.members, group.bits, strict=True)
        )
        for group in _free_gpus(uses)
        if group.partial
    )


def _free_gpus(uses: GroupUses) -> Iterator[DeviceGroup]:
    """The groups of the node's own devices of which nothing is in use."""
    return (group for of_pool in uses for group, used in of_pool if used == 0 and group.is_own)


def ranks(choices: Iterable[Sequence[Choice]]) -> dict[tuple[int, str], int]:
    """By claim and request, the index of the chosen alternative of each firstAvailable."""
    return {
        (index, choice.alternative.request): choice.alternative.rank
        for index, choices_of_claim in enumerate(choices)
        for choice in choices_of_claim
        if choice.alternative.rank is not None
    }
