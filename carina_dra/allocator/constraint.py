"""What must hold of the devices of a claim together: matchAttribute and distinctAttribute.

A constraint is monotonic: what it refuses it would refuse beside more devices, too. With the gate
DRAListTypeAttributes an attribute is the set of its values: matching devices have a value in
common, distinct ones have none. Without, a list is a value that equals nothing.
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
"""The typed values of an attribute; none of one that cannot be compared."""

INCOMPARABLE: Final[Values] = frozenset()


def values_of(attribute: DeviceAttribute, *, lists: bool) -> Values:
    """An attribute's values, each with its type: 1 is not true, nor version 1 the text."""
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
            each = ((VersionAttribute, value) for value in values)
            return frozenset(each) if lists else INCOMPARABLE
        case UnknownAttribute():
            return INCOMPARABLE
    assert_never(attribute)


@dataclass(slots=True)
class Match:
    """All devices have a value in common."""

    lists: bool
    _common: list[Values] = field(default_factory=list)
    """What the devices so far have in common: one entry a device, so that it can be taken back."""

    def add(self, values: Values) -> bool:
        """Adds a device, unless it does not match."""
        if self._common:
            values &= self._common[-1]
        if not values and (self._common or self.lists):
            return False
        self._common.append(values)
        return True

    def remove(self) -> None:
        """Takes the last device back."""
        self._common.pop()


@dataclass(slots=True)
class Distinct:
    """No two devices have a value in common."""

    lists: bool
    _taken: list[Values] = field(default_factory=list)

    def add(self, values: Values) -> bool:
        """Adds a device, unless it has a value that another has."""
        if not values and (self._taken or self.lists):
            return False
        if not all(values.isdisjoint(taken) for taken in self._taken):
            return False
        self._taken.append(values)
        return True

    def remove(self) -> None:
        """Takes the last device back."""
        self._taken.pop()


def begin(rule: MatchAttribute | DistinctAttribute, *, lists: bool) -> Match | Distinct:
    """A constraint that no device has been added to."""
    return Match(lists) if isinstance(rule, MatchAttribute) else Distinct(lists)
