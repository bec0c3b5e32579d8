"""Fair shares: how much of one resource each queue may count on.

Siblings divide a total in three steps:

1. Each gets its quota, as far as it can use it. Quotas are not scaled down when there is not enough
   for all of them, so shares may sum to more than the total.
2. What remains is divided by weight, in the order of priorities: a lower priority gets something
   only when every sibling that has a weight and a higher priority has all that it can use. What one
   sibling cannot use of its part goes to the other siblings of its priority.
3. Within each priority, parts are rounded down to whole units. The units left over go one each to
   the largest remainders, then to the oldest, then by name.

So what a sibling gets by weight is less than one unit away from its exact part. Amounts are
integers in the resource's own unit (devices, millicores, bytes), and the arithmetic is exact.

The steps are those of the KAI Scheduler (`resource_division.go`), except that nothing is rounded or
left over between two priorities; docs/fair-share.md lists the differences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from math import lcm
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Claimant:
    """A queue that takes part in the division of one resource; no number is negative."""

    name: str
    """Unique in the whole tree."""
    priority: int
    """Higher priorities first, for what is left after all quotas."""
    age: int
    """Smaller is older."""
    quota: int | None
    """What it gets before anything is divided by weight; None for the whole total."""
    limit: int | None
    """The most that it may have; None for no limit."""
    weight: int | Fraction
    """Its weight among siblings of one priority; with 0, it gets its quota only."""
    request: int
    """What its work holds and waits for; of a parent, the sum of what its children can use."""
    usage: int | Fraction = 0
    """What it used in the past, recent use counting more, as a part of the cluster's capacity.

    Siblings' usages should have a common denominator: with 1,000 unlike ones, numbers get long.
    """

    @property
    def usable(self) -> int:
        """The most that it can use."""
        return self.request if self.limit is None else min(self.limit, self.request)


def divide(
    total: int, siblings: Sequence[Claimant], *, unit: int = 1, k: int | Fraction = 0
) -> Mapping[str, int]:
    """The fair share of each sibling by name; the order of the siblings does not matter.

    Args:
        total: what is divided, not negative.
        siblings: the queues that divide it, with unique names.
        unit: the amount in which parts by weight are handed out, such as 1 device.
        k: how much past usage counts: a weight w, as a part of the sum of weights of the siblings
            that want more at this priority, becomes max(0, w + k(w - usage)). Siblings whose weight
            becomes 0 come last within their priority, and divide by their uncorrected weights.
    """
    shares = {
        sibling.name: min(total if sibling.quota is None else sibling.quota, sibling.usable)
        for sibling in siblings
    }
    rest = max(0, total - sum(shares.values()))
    wanting = [
        sibling for sibling in siblings if sibling.weight and shares[sibling.name] < sibling.usable
    ]
    wanting.sort(key=_precedence)
    for _, level in groupby(wanting, key=_precedence):
        for portions in _by_weight(list(level), shares, k):
            parts = dict(_fill(rest, portions, unit))
            for name, part in parts.items():
                shares[name] += part
            rest -= sum(parts.values())
    return shares


def divide_tree(
    total: int,
    children: Mapping[str | None, Sequence[Claimant]],
    *,
    unit: int = 1,
    k: int | Fraction = 0,
) -> Mapping[str, int]:
    """The fair share of each queue of a tree by name: children divide the share of their parent.

    Args:
        total: what the queues without a parent divide.
        children: the queues of each parent; None is the parent of those without one.
        unit: as for `divide`.
        k: as for `divide`.
    """
    shares: dict[str, int] = {}
    undivided: list[tuple[str | None, int]] = [(None, total)]
    while undivided:
        parent, share = undivided.pop()
        if parent in children:
            parts = divide(share, children[parent], unit=unit, k=k)
            shares.update(parts)
            undivided.extend(parts.items())
    return shares


class _Portion(NamedTuple):
    """What a claimant still wants, and the weight that it wants it with."""

    claimant: Claimant
    want: int
    weight: int


def _precedence(claimant: Claimant) -> int:
    return -claimant.priority


def _by_weight(
    level: Sequence[Claimant], shares: Mapping[str, int], k: int | Fraction
) -> tuple[list[_Portion], list[_Portion]]:
    """One priority: the portions with a positive corrected weight, and those that come last."""
    weights, _ = _common_denominator([claimant.weight for claimant in level])
    corrected = _corrected(weights, [claimant.usage for claimant in level], k) if k else weights
    first: list[_Portion] = []
    last: list[_Portion] = []
    for claimant, weight, corrected_weight in zip(level, weights, corrected, strict=True):
        want = claimant.usable - shares[claimant.name]
        if corrected_weight > 0:
            first.append(_Portion(claimant, want, corrected_weight))
        else:
            last.append(_Portion(claimant, want, weight))
    return first, last


def _corrected(
    weights: Sequence[int], usages: Sequence[int | Fraction], k: int | Fraction
) -> list[int]:
    """Numbers in the ratio of w + k(w - usage), with w as parts of the sum of the weights."""
    whole = sum(weights)
    numerators, denominator = _common_denominator(usages)
    return [
        weight * denominator * (k.denominator + k.numerator) - usage * whole * k.numerator
        for weight, usage in zip(weights, numerators, strict=True)
    ]


def _common_denominator(numbers: Sequence[int | Fraction]) -> tuple[list[int], int]:
    """The numerators over the common denominator, and this denominator."""
    common = lcm(*(number.denominator for number in numbers))
    return [number.numerator * (common // number.denominator) for number in numbers], common


def _fill(rest: int, portions: Sequence[_Portion], unit: int) -> Iterator[tuple[str, int]]:
    """What each portion gets by name. They use up the rest, or get all that they want."""
    if not rest or not portions:
        return
    # Different ratios of want to weight are at least 1 / weight² apart, so these keys order them.
    precision = 2 * max(portion.weight for portion in portions).bit_length()
    by_want = sorted(portions, key=lambda portion: (portion.want << precision) // portion.weight)
    whole = sum(portion.weight for portion in portions)
    satisfied = 0
    for portion in by_want:
        if portion.want * whole > rest * portion.weight:
            break
        yield portion.claimant.name, portion.want
        rest -= portion.want
        whole -= portion.weight
        satisfied += 1
    yield from _round(rest, by_want[satisfied:], whole, unit)


def _round(
    rest: int, portions: Sequence[_Portion], whole: int, unit: int
) -> Iterator[tuple[str, int]]:
    """Divides all of the rest by weight among portions that want more than their exact part."""
    parts = [divmod(rest * portion.weight, whole * unit) for portion in portions]
    left = rest - unit * sum(units for units, _ in parts)
    for portion, (units, _) in sorted(zip(portions, parts, strict=True), key=_leftover_order):
        more = min(unit, left, portion.want - units * unit)
        yield portion.claimant.name, units * unit + more
        left -= more


def _leftover_order(part: tuple[_Portion, tuple[int, int]]) -> tuple[int, int, str]:
    portion, (_, remainder) = part
    return -remainder, portion.claimant.age, portion.claimant.name
