"""The division by weight once more, in fractions and round by round: to be read, not to be fast."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from controller.engine.decide.queues.fair_share import Claimant


def exact_division(
    total: int, siblings: Sequence[Claimant], unit: int, k: int | Fraction
) -> dict[str, int]:
    """What `divide` gives."""
    shares = {queue.name: quota_part(total, queue) for queue in siblings}
    for priority in sorted({queue.priority for queue in siblings}, reverse=True):
        level = [queue for queue in siblings if queue.priority == priority]
        wanting = {
            queue.name: queue for queue in level if queue.weight and _want(queue, shares) > 0
        }
        whole = sum((Fraction(queue.weight) for queue in wanting.values()), Fraction(0))
        corrected: dict[str, Fraction] = {}
        for name, queue in wanting.items():
            weight = queue.weight / whole
            corrected[name] = max(Fraction(0), weight + k * (weight - queue.usage))
        later = {name: Fraction(wanting[name].weight) for name, w in corrected.items() if w == 0}
        for weights in ({name: w for name, w in corrected.items() if w}, later):
            rest = max(0, total - sum(shares.values()))
            wants = {name: _want(wanting[name], shares) for name in weights}
            exact = exact_parts(rest, wants, weights)
            for name, part in _rounded(exact, wants, wanting, unit).items():
                shares[name] += part
    return shares


def quota_part(total: int, claimant: Claimant) -> int:
    """What the claimant gets before anything is divided by weight."""
    quota = total if claimant.quota is None else claimant.quota
    usable = claimant.request if claimant.limit is None else min(claimant.limit, claimant.request)
    return min(quota, usable)


def exact_parts(
    rest: int, wants: Mapping[str, int], weights: Mapping[str, Fraction]
) -> dict[str, Fraction]:
    """Parts in the ratio of weights; what one does not want of its part goes to the others."""
    left = Fraction(rest)
    satisfied: dict[str, Fraction] = {}
    while True:
        hungry = {name: weight for name, weight in weights.items() if name not in satisfied}
        parts = {name: left * w / sum(hungry.values()) for name, w in hungry.items()}
        enough = {name: Fraction(wants[name]) for name in hungry if wants[name] <= parts[name]}
        if not enough:
            return satisfied | parts
        satisfied |= enough
        left -= sum(enough.values())


def _rounded(
    exact: Mapping[str, Fraction],
    wants: Mapping[str, int],
    claimants: Mapping[str, Claimant],
    unit: int,
) -> dict[str, int]:
    """Whole units, and then one more for the one furthest below its exact part."""
    parts = {
        name: wants[name] if part == wants[name] else part // unit * unit
        for name, part in exact.items()
    }
    while left := int(sum(exact.values())) - sum(parts.values()):
        name = min(
            (name for name in parts if parts[name] < wants[name]),
            key=lambda name: (parts[name] - exact[name], claimants[name].age, name),
        )
        parts[name] += min(unit, left, wants[name] - parts[name])
    return parts


def _want(claimant: Claimant, shares: Mapping[str, int]) -> int:
    usable = claimant.request if claimant.limit is None else min(claimant.limit, claimant.request)
    return usable - shares[claimant.name]
