"""Constraints on the devices of a claim: matchAttribute and distinctAttribute (KEP-4381).

A constraint is monotonic: a device that it refuses stays refused when more devices are added. With
the gate DRAListTypeAttributes, an attribute is the set of its values: matching devices have a value
in common, distinct devices have none. Without the gate, a list equals no other value.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from carina_dra.resource import (
    BoolAttribute,
    BoolsAttribute,
    DeviceAttribute,
    DistinctAttribute,
    IntAttribute,
    IntsAttribute,
    MatchAttribute,
    StringAttribute,
    StringsAttribute,
    UnknownAttribute,
    VersionAttribute,
    VersionsAttribute,
)

Values: TypeAlias = frozenset[Hashable]
"""The values of an attribute with their types; empty if it cannot be compared."""

INCOMPARABLE: Final[Values] = frozenset()


def values_of(attribute: DeviceAttribute, *, lists: bool) -> Values:
    """The values of an attribute with their types: 1 differs from true, a version from a string."""
    match attribute:
        case IntAttribute(value=value) | BoolAttribute(value=value) | StringAttribute(value=value):
            return frozenset([(type(value), value)])
        case VersionAttribute(value=value):
            return frozenset([(VersionAttribute, value)])
        case IntsAttribute(values=values) | BoolsAttribute(values=values):
            return frozenset((type(value), value) for value in values) if lists else INCOMPARABLE
        case StringsAttribute(values=values):
            return frozenset((str, value) for value in values) if lists else INCOMPARABLE
        case VersionsAttribute(values=values):
            versions = ((VersionAttribute, value) for value in values)
            return frozenset(versions) if lists else INCOMPARABLE
        case UnknownAttribute():
            return INCOMPARABLE
    assert_never(attribute)


@dataclass(slots=True)
class Match:
    """matchAttribute: all devices have a value in common."""

    lists: bool
    _common: list[Values] = field(default_factory=list)
    """The values in common after each device, so that devices can be removed again."""

    def add(self, values: Values) -> bool:
        """Adds a device if it matches; whether it does."""
        if self._common:
            values &= self._common[-1]
        if not values and (self._common or self.lists):
            return False
        self._common.append(values)
        return True

    def remove(self) -> None:
        """Removes the device that was added last."""
        self._common.pop()


@dataclass(slots=True)
class Distinct:
    """distinctAttribute: no two devices have a value in common."""

    lists: bool
    _taken: list[Values] = field(default_factory=list)

    def add(self, values: Values) -> bool:
        """Adds a device if it shares no value with another; whether it was added."""
        if not values and (self._taken or self.lists):
            return False
        if not all(values.isdisjoint(taken) for taken in self._taken):
            return False
        self._taken.append(values)
        return True

    def remove(self) -> None:
        """Removes the device that was added last."""
        self._taken.pop()


def begin(rule: MatchAttribute | DistinctAttribute, *, lists: bool) -> Match | Distinct:
    """The constraint without devices."""
    return Match(lists) if isinstance(rule, MatchAttribute) else Distinct(lists)
