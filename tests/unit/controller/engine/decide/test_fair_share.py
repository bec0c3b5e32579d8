"""How siblings divide a resource, rule by rule."""

from fractions import Fraction
from pathlib import Path

import pytest

from controller.engine.decide.queues.fair_share import divide, divide_tree
from tests.unit.controller.engine.decide.claimants import claimant


def test_total_of_zero_gives_shares_of_zero() -> None:
    assert divide(0, [claimant("a", weight=1)]) == {"a": 0}


def test_no_siblings_have_no_shares() -> None:
    assert divide(10, []) == {}


def test_quota_comes_before_weight_and_priority() -> None:
    low, high = claimant("low", quota=6, weight=0), claimant("high", priority=9, weight=9)
    assert divide(8, [low, high]) == {"low": 6, "high": 2}


def test_quotas_are_not_scaled_down_to_the_total() -> None:
    assert divide(10, [claimant("a", quota=8), claimant("b", quota=8)]) == {"a": 8, "b": 8}


def test_quota_that_is_not_used_is_divided() -> None:
    idle, busy = claimant("idle", 2, quota=8), claimant("busy", quota=2)
    assert divide(10, [idle, busy]) == {"idle": 2, "busy": 8}


@pytest.mark.parametrize(("wanted", "share"), [(4, 4), (100, 10)])
def test_quota_without_bound_is_the_whole_total(wanted: int, share: int) -> None:
    unbounded, other = claimant("a", wanted, quota=None, weight=0), claimant("b", quota=3)
    assert divide(10, [unbounded, other])["a"] == share


def test_limit_caps_quota_and_weight() -> None:
    by_quota, by_weight = claimant("q", quota=5, limit=3), claimant("w", limit=2)
    assert divide(10, [by_quota, by_weight]) == {"q": 3, "w": 2}


def test_rest_is_divided_in_the_ratio_of_weights() -> None:
    light, heavy = claimant("light", quota=2), claimant("heavy", quota=2, weight=3)
    assert divide(12, [light, heavy]) == {"light": 4, "heavy": 8}


def test_weights_may_be_fractions() -> None:
    light, heavy = (
        claimant("light", weight=Fraction(1, 3)),
        claimant("heavy", weight=Fraction(2, 3)),
    )
    assert divide(9, [light, heavy]) == {"light": 3, "heavy": 6}


def test_weight_zero_gets_the_quota_only() -> None:
    assert divide(10, [claimant("a", quota=3, weight=0)]) == {"a": 3}


def test_unused_part_goes_to_the_other_siblings() -> None:
    small, medium, large = claimant("small", 1), claimant("medium", 4), claimant("large")
    assert divide(15, [small, medium, large]) == {"small": 1, "medium": 4, "large": 10}


def test_small_want_of_a_heavy_weight_is_met_before_parts_are_rounded() -> None:
    """All three want less than one device for each unit of weight."""
    large, small, light = (
        claimant("a", 6, weight=7),
        claimant("b", 1, weight=9),
        claimant("c", 4, weight=2),
    )
    assert divide(3, [large, small, light]) == {"a": 2, "b": 1, "c": 0}


def test_want_that_equals_the_part_is_met_though_it_is_no_whole_unit() -> None:
    older, younger = claimant("older", 9000), claimant("younger", 500, age=1)
    assert divide(1000, [older, younger], unit=1000) == {"older": 500, "younger": 500}


def test_higher_priority_is_satisfied_first() -> None:
    low, high = claimant("low", weight=9), claimant("high", 7, priority=1)
    assert divide(10, [low, high]) == {"low": 3, "high": 7}


def test_leftover_goes_to_the_largest_remainder() -> None:
    third, two_thirds = claimant("a", weight=1), claimant("b", weight=2, age=1)
    assert divide(4, [third, two_thirds]) == {"a": 1, "b": 3}


def test_equal_remainders_are_decided_by_age_then_name() -> None:
    young, old, old_too = claimant("a", age=1), claimant("c"), claimant("b")
    assert divide(4, [young, old, old_too]) == {"a": 1, "b": 2, "c": 1}
    assert divide(5, [young, old, old_too]) == {"a": 1, "b": 2, "c": 2}


def test_leftover_of_a_priority_never_goes_to_a_lower_one() -> None:
    first, second = claimant("first", priority=1), claimant("second", priority=1, age=1)
    low = claimant("low")
    assert divide(1, [first, second, low]) == {"first": 1, "second": 0, "low": 0}


def test_parts_are_rounded_once_from_the_exact_ones() -> None:
    """Exactly 0.8 for the light one and 1.2 for the heavy one, as the small one takes only 1."""
    light, small, heavy = (
        claimant("light", weight=2),
        claimant("small", 1, weight=3),
        claimant("heavy", weight=3),
    )
    assert divide(3, [light, small, heavy]) == {"light": 1, "small": 1, "heavy": 1}


def test_parts_are_handed_out_in_whole_units() -> None:
    older, younger = claimant("older", 9000), claimant("younger", 9000, age=1)
    assert divide(5000, [older, younger], unit=1000) == {"older": 3000, "younger": 2000}


def test_less_than_a_unit_is_given_where_no_more_is_left_or_wanted() -> None:
    small, large = claimant("small", 400), claimant("large", 9000)
    assert divide(2700, [small, large], unit=1000) == {"small": 400, "large": 2300}


def test_leftover_unit_does_not_exceed_what_is_wanted() -> None:
    first, second = claimant("first", 600), claimant("second", 600, age=1)
    assert divide(1000, [first, second], unit=1000) == {"first": 600, "second": 400}


def test_past_usage_lowers_the_weight() -> None:
    idle, busy = claimant("idle"), claimant("busy", usage=Fraction(1, 2))
    assert divide(100, [idle, busy], k=Fraction(1, 2)) == {"idle": 60, "busy": 40}


def test_sibling_without_weight_after_usage_comes_last_within_its_priority() -> None:
    idle, busy = claimant("idle", 30, priority=1), claimant("busy", 50, priority=1, usage=1)
    low = claimant("low")
    assert divide(100, [idle, busy, low], k=1) == {"idle": 30, "busy": 50, "low": 20}
    assert divide(20, [idle, busy, low], k=1) == {"idle": 20, "busy": 0, "low": 0}


def test_children_divide_the_share_of_their_parent() -> None:
    shares = divide_tree(
        12,
        {
            None: [claimant("research", weight=2), claimant("product", weight=1)],
            "research": [claimant("vision"), claimant("speech", weight=3)],
        },
    )
    assert shares == {"research": 8, "product": 4, "vision": 2, "speech": 6}


def test_children_get_whole_units() -> None:
    families = {None: [claimant("p", 9000)], "p": [claimant("a", 9000), claimant("b", 9000, age=1)]}
    shares = divide_tree(5000, families, unit=1000)
    assert shares == {"p": 5000, "a": 3000, "b": 2000}


def test_quotas_of_children_may_exceed_the_share_of_their_parent() -> None:
    shares = divide_tree(4, {None: [claimant("p", quota=1)], "p": [claimant("c", quota=6)]})
    assert shares == {"p": 4, "c": 6}


def test_depth_of_the_tree_is_not_limited() -> None:
    depth = 3000
    names = [None, *(f"q{level}" for level in range(depth))]
    chain = {names[level]: [claimant(f"q{level}")] for level in range(depth)}
    assert divide_tree(5, chain)[f"q{depth - 1}"] == 5


def test_empty_tree_has_no_shares() -> None:
    assert divide_tree(5, {}) == {}


def test_larger_total_may_take_a_unit_from_one_sibling() -> None:
    """The price of largest remainders: with one unit more, two others have larger ones."""
    siblings = [claimant("a", weight=6), claimant("b", weight=6), claimant("c", weight=2)]
    assert divide(10, siblings) == {"a": 4, "b": 4, "c": 2}
    assert divide(11, siblings) == {"a": 5, "b": 5, "c": 1}


def test_example_of_the_documentation_is_right() -> None:
    page = (Path(__file__).parents[5] / "docs" / "fair-share.md").read_text()
    table = page[page.index("| queue | priority |") :].split("\n\n")[0].splitlines()
    names, _, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table)
    queues = [dict(zip(names, row, strict=True)) for row in rows]
    shares = divide(
        25,
        [
            claimant(
                queue["queue"],
                int(queue["request"]),
                quota=int(queue["quota"]),
                limit=int(queue["limit"]) if queue["limit"] else None,
                weight=int(queue["weight"]),
                priority=int(queue["priority"]),
                age=age,
            )
            for age, queue in enumerate(queues)
        ],
    )
    assert shares == {queue["queue"]: int(queue["fair share"]) for queue in queues}
    assert sum(shares.values()) == 25
    assert "\n25 GPUs, " in page
