"""How close devices of a node could be at best, by counting those in the same place.

Without it, `alike` and `unlike`, 2 GPUs of a NUMA node, take 11 and 8 times as long, and
`constrained`, 2 claims of 2 GPUs, 8 times: nodes whose devices are far from each other are
searched first. They take 2 to 3 times as long if only the order of nodes lacks it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from carina_dra.allocator.preference import FAR
from carina_dra.placement.bounds.packing import Packing, Want
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.price import VALUE
from carina_dra.work import Work


def least_distance(
    wants: Sequence[Want],
    packing: Packing,
    offer: Offer,
    in_common: Sequence[str] = (),
    may_match: Callable[[int], bool] = lambda _: True,
    work: Work | None = None,
) -> int:
    """The least distance that the devices of all wants may have to each other.

    Whatever the distance, all of them have the attributes `in_common`. `may_match` says whether
    the other constraints may be met by some of these devices.
    """
    for distance, names in offer.closeness:
        together = offer.together((*names, *in_common))
        if together is None:
            return distance
        if work is not None:
            work.spend(VALUE * len(together) * len(wants))
        for within in together:
            if any((want.devices & within).bit_count() < want.count for want in wants):
                continue
            there = [replace(want, devices=want.devices & within) for want in wants]
            is_enough = all(map(packing.has, there)) and packing.has_all([[want] for want in there])
            if is_enough and may_match(within):
                return distance
    return FAR
