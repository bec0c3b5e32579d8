"""What must hold of a claim's devices together."""

import pytest

from carina_dra.allocator.constraint import Distinct, Match, values_of
from carina_dra.resource import (
    BoolAttribute,
    DeviceAttribute,
    IntAttribute,
    IntsAttribute,
    StringAttribute,
    StringsAttribute,
    UnknownAttribute,
    VersionAttribute,
    VersionsAttribute,
)

_ONE, _TRUE, _TEXT = IntAttribute(1), BoolAttribute(value=True), StringAttribute("1")


def _accepted(
    constraint: Match | Distinct, *attributes: DeviceAttribute, lists: bool = False
) -> list[bool]:
    return [constraint.add(values_of(attribute, lists=lists)) for attribute in attributes]


@pytest.mark.parametrize("other", [_TRUE, _TEXT, VersionAttribute("1"), IntAttribute(2)])
def test_match_compares_type_and_value(other: DeviceAttribute) -> None:
    assert _accepted(Match(lists=False), _ONE, _ONE, other) == [True, True, False]


@pytest.mark.parametrize("other", [_TRUE, _TEXT, VersionAttribute("1"), IntAttribute(2)])
def test_distinct_refuses_the_same_value_of_the_same_type(other: DeviceAttribute) -> None:
    assert _accepted(Distinct(lists=False), _ONE, other, _ONE) == [True, True, False]


def test_lists_match_by_what_they_have_in_common() -> None:
    lists = (StringsAttribute(("a", "b")), StringsAttribute(("b", "c")), StringAttribute("b"))
    assert _accepted(Match(lists=True), *lists, StringAttribute("c"), lists=True) == [
        True,
        True,
        True,
        False,
    ]


def test_lists_are_distinct_if_nothing_is_in_common() -> None:
    numbers = (IntsAttribute((1, 2)), IntsAttribute((3,)), IntsAttribute((2, 4)))
    assert _accepted(Distinct(lists=True), *numbers, lists=True) == [True, True, False]


def test_list_without_the_gate_equals_nothing() -> None:
    listed = IntsAttribute((1,))
    assert _accepted(Match(lists=False), listed, listed) == [True, False]


def test_lists_without_the_gate_are_not_distinct() -> None:
    listed, other = IntsAttribute((1,)), IntsAttribute((2,))
    assert _accepted(Distinct(lists=False), listed, other) == [True, False]
    assert _accepted(Distinct(lists=False), _ONE, other) == [True, False]


def test_listed_version_is_no_string() -> None:
    listed = VersionsAttribute(("1",))
    assert _accepted(Match(lists=True), listed, _TEXT, lists=True) == [True, False]
    assert _accepted(Match(lists=True), listed, VersionAttribute("1"), lists=True) == [True, True]


def test_unknown_attribute_matches_nothing() -> None:
    assert _accepted(Match(lists=True), UnknownAttribute(), lists=True) == [False]


def test_a_removed_device_no_longer_constrains() -> None:
    match = Match(lists=True)
    _accepted(match, StringsAttribute(("a", "b")), StringAttribute("a"), lists=True)
    match.remove()
    assert _accepted(match, StringAttribute("b"), lists=True) == [True]
