"""What holds of every division, whatever the siblings."""

from dataclasses import replace
from fractions import Fraction
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from controller.engine.decide.queues.fair_share import Claimant, divide, divide_tree
from tests.unit.controller.engine.decide.claimants import ks, siblings, totals, units
from tests.unit.controller.engine.decide.exact_division import (
    exact_division,
    exact_parts,
    quota_part,
)

_seeds = st.integers(0, 2**16)
_more = st.sampled_from([1, 1, 2, 7])


def _satisfied(claimant: Claimant, share: int) -> bool:
    return not claimant.weight or share == claimant.usable


@given(totals, siblings(), units, ks)
def test_division_is_the_exact_one_rounded(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    assert divide(total, claimants, unit=unit, k=k) == exact_division(total, claimants, unit, k)


@given(totals, siblings(), units)
def test_part_by_weight_is_less_than_a_unit_away_from_the_exact_part(
    total: int, claimants: list[Claimant], unit: int
) -> None:
    level = [replace(queue, priority=0) for queue in claimants if queue.weight]
    quotas = {queue.name: quota_part(total, queue) for queue in level}
    shares = divide(total, level, unit=unit)
    exact = exact_parts(
        max(0, total - sum(quotas.values())),
        {queue.name: queue.usable - quotas[queue.name] for queue in level},
        {queue.name: Fraction(queue.weight) for queue in level},
    )
    for name, part in exact.items():
        assert abs(shares[name] - quotas[name] - part) < unit


@given(totals, siblings(), units, ks, _seeds)
def test_order_of_siblings_does_not_matter(
    total: int, claimants: list[Claimant], unit: int, k: Fraction, seed: int
) -> None:
    shuffled = Random(seed).sample(claimants, len(claimants))
    assert divide(total, shuffled, unit=unit, k=k) == divide(total, claimants, unit=unit, k=k)


@given(totals, siblings(), units, ks)
def test_shares_lie_between_quota_and_what_is_usable(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    shares = divide(total, claimants, unit=unit, k=k)
    for queue in claimants:
        assert quota_part(total, queue) <= shares[queue.name] <= queue.usable


@given(totals, siblings(), units, ks)
def test_shares_exceed_the_total_only_by_quotas(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    quotas = sum(quota_part(total, queue) for queue in claimants)
    assert sum(divide(total, claimants, unit=unit, k=k).values()) <= max(total, quotas)


@given(totals, siblings(), units, ks)
def test_nothing_is_left_while_a_sibling_with_a_weight_wants_more(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    shares = divide(total, claimants, unit=unit, k=k)
    everyone_satisfied = all(_satisfied(queue, shares[queue.name]) for queue in claimants)
    assert everyone_satisfied or sum(shares.values()) >= total


@given(totals, siblings(least=2), units, ks)
def test_lower_priority_gets_more_than_its_quota_only_if_the_higher_is_satisfied(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    shares = divide(total, claimants, unit=unit, k=k)
    over_quota = [queue for queue in claimants if shares[queue.name] > quota_part(total, queue)]
    assume(over_quota)
    least = min(queue.priority for queue in over_quota)
    for queue in claimants:
        assert queue.priority <= least or _satisfied(queue, shares[queue.name])


@given(totals, siblings(least=1), ks, _more)
def test_share_does_not_fall_when_the_own_weight_rises(
    total: int, claimants: list[Claimant], k: Fraction, more: int
) -> None:
    first, *others = claimants
    before = divide(total, claimants, k=k)[first.name]
    heavier = replace(first, weight=first.weight + Fraction(more, 3))
    assert divide(total, [heavier, *others], k=k)[first.name] >= before


@given(totals, siblings(least=1), ks, _more)
def test_share_does_not_fall_when_the_own_quota_rises(
    total: int, claimants: list[Claimant], k: Fraction, more: int
) -> None:
    first, *others = claimants
    assume(first.quota is not None and first.quota <= total)
    before = divide(total, claimants, k=k)[first.name]
    for quota in ((first.quota or 0) + more, None):
        richer = replace(first, quota=quota)
        assert divide(total, [richer, *others], k=k)[first.name] >= before


@given(totals, siblings(least=1), units, ks, _more)
def test_with_broken_units_a_larger_weight_costs_at_most_a_unit(
    total: int, claimants: list[Claimant], unit: int, k: Fraction, more: int
) -> None:
    first, *others = claimants
    before = divide(total, claimants, unit=unit, k=k)[first.name]
    heavier = replace(first, weight=first.weight + Fraction(more, 3))
    assert divide(total, [heavier, *others], unit=unit, k=k)[first.name] >= before - unit


@given(totals, siblings(least=1), units, ks)
def test_larger_total_costs_a_sibling_at_most_a_unit(
    total: int, claimants: list[Claimant], unit: int, k: Fraction
) -> None:
    before = divide(total, claimants, unit=unit, k=k)
    after = divide(total + 1, claimants, unit=unit, k=k)
    assert all(after[name] >= share - unit for name, share in before.items())


@given(totals, siblings(), ks, st.integers(2, 1000))
def test_unit_is_only_a_scale(
    total: int, claimants: list[Claimant], k: Fraction, unit: int
) -> None:
    """What holds of single devices holds of any unit of which all amounts are multiples."""
    scaled = [
        replace(
            queue,
            quota=None if queue.quota is None else queue.quota * unit,
            limit=None if queue.limit is None else queue.limit * unit,
            request=queue.request * unit,
        )
        for queue in claimants
    ]
    shares = divide(total, claimants, k=k)
    assert divide(total * unit, scaled, unit=unit, k=k) == {
        name: share * unit for name, share in shares.items()
    }


@given(totals, siblings(), units)
def test_usage_has_no_effect_without_k(total: int, claimants: list[Claimant], unit: int) -> None:
    unused = [replace(queue, usage=0) for queue in claimants]
    assert divide(total, claimants, unit=unit) == divide(total, unused, unit=unit)


@given(totals, siblings(), units, ks, _seeds)
def test_children_divide_what_a_division_of_their_parent_gives(
    total: int, claimants: list[Claimant], unit: int, k: Fraction, seed: int
) -> None:
    """Every queue of the tree has the share that `divide` gives it among its siblings."""
    dice = Random(seed)
    children: dict[str | None, list[Claimant]] = {}
    for number, queue in enumerate(claimants):
        parent = dice.choice([None, *(older.name for older in claimants[:number])])
        children.setdefault(parent, []).append(queue)
    shares = divide_tree(total, children, unit=unit, k=k)
    assert shares.keys() == {queue.name for queue in claimants}
    for parent, family in children.items():
        parts = divide(total if parent is None else shares[parent], family, unit=unit, k=k)
        assert parts == {queue.name: shares[queue.name] for queue in family}
