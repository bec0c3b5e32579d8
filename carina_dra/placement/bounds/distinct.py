"""Whether devices that must differ may have as many values.

Without it, `crossing`, 6 devices on 6 switches and rails, takes 37 times as long: each node is
searched. It takes 24 times as long without the pairs of values of two attributes.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, combinations

from carina_dra.allocator.group import bits_of
from carina_dra.placement.bounds.bipartite import has_matching
from carina_dra.placement.bounds.requirements import Requirements
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import Places
from carina_dra.price import VALUE
from carina_dra.work import Work


def may_differ(
    required: Requirements, available: Sequence[Sequence[int]], offer: Offer, work: Work
) -> bool:
    """Whether devices may differ that must; `available` are those of each alternative of a request.

    Each device needs a value that no other has. If it must be distinct in two attributes, it needs
    a pair of values, and no other has either of them.

    Raises:
        OutOfStepsError: the budget of the work is spent.
    """
    for distinct in required.distinct:
        charge_places(offer, distinct.attribute, work)
        places = offer.places(distinct.attribute)
        most = len(places.by_value) + bool(places.incomparable)
        if sum(map(required.least, distinct.requests)) > most:
            return False  # first of all: a tenant may ask for billions of devices
        values: dict[tuple[int, int], Sequence[Hashable]] = {}
        for request in distinct.requests:
            work.spend(VALUE * len(places.by_value))
            of_request = [*places.distinct(_either([available[request]]))]
            for number in range(required.least(request)):
                values[request, number] = of_request
        if not has_matching(values, len(values), work):
            return False
    for constraint, other in combinations(required.distinct, 2):
        both = [request for request in constraint.requests if request in other.requests]
        count = sum(map(required.least, both))
        devices = _either([available[request] for request in both])
        if count <= 1:
            continue
        places, others = offer.places(constraint.attribute), offer.places(other.attribute)
        work.spend(
            VALUE * (len(places.by_value) + len(others.by_value) + 2 * devices.bit_count() + 1)
        )
        if not has_matching(_pairs(places, others, devices), count, work):
            return False
    return True


def charge_places(offer: Offer, attribute: str, work: Work) -> None:
    """Charges that the devices of a node are sorted by their values of an attribute."""
    if work.uncharged(attribute, 1):
        work.spend(VALUE * sum(len(one.devices) for one in offer.ready if one.is_own))


def _pairs(places: Places, others: Places, devices: int) -> Mapping[Hashable, Sequence[Hashable]]:
    """The values that devices have of an attribute, by the values that they have of another."""
    values: dict[int, list[Hashable]] = {}
    for value, mask in others.distinct(devices).items():
        for bit in bits_of(mask):
            values.setdefault(bit, []).append(value)
    return {
        value: [of_other for bit in bits_of(mask) for of_other in values.get(bit, ())]
        for value, mask in places.distinct(devices).items()
    }


def _either(available: Sequence[Sequence[int]]) -> int:
    """The devices that any alternative of any request could have."""
    either = 0
    for mask in chain.from_iterable(available):
        either |= mask
    return either
