"""What nodes have in common: nodes of the same shape are evaluated once.

Two nodes have the same shape if a renaming turns the one's devices, with what is in use of them,
into the other's, and no selector that anybody has asked with could tell. Attributes that tell where
a device is, or that tell devices apart (UUID, PCI address, minor number), count by who shares a
value with whom, all others by value.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from carina_dra.allocator.constraint import values_of
from carina_dra.allocator.group import DeviceGroup, content
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT
from carina_dra.allocator.usage import Usage
from carina_dra.resource import DeviceAttribute

_MANY: Final = 64
"""An attribute with more values than this is nothing to keep numbers by."""
_MOST: Final = 1_000_000
"""The number of shapes remembered. Each state that a group of devices was in is a shape."""
_SEVERAL: Final = 3
"""The number of devices of a slice, all with different values, that an attribute distinguishes."""


_Place: TypeAlias = tuple[str, Hashable]
"""An attribute's name, and a value that devices may share."""


class Shapes:
    """Numbers for shapes: equal shapes have equal numbers, for as long as `version` stays.

    It changes when an attribute turns out to have many values, or a selector reads one by value
    that counted by who shares it, and when there were too many shapes to remember.
    """

    def __init__(self) -> None:
        self.version = 0
        self._numbers: dict[Hashable, int] = {}
        self._next = 0
        self._values: dict[str, set[DeviceAttribute]] = {}
        self._by_sharing = {NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE}
        self._individual: set[str] = set()
        self._asked: set[str] = set()

    def copy(self) -> "Shapes":
        """Equal numbers for the shapes so far; neither sees what the other learns from now on."""
        copied = Shapes()
        copied.version = self.version
        copied._numbers = dict(self._numbers)
        copied._next = self._next
        copied._values = {name: set(values) for name, values in self._values.items()}
        copied._by_sharing = set(self._by_sharing)
        copied._individual = set(self._individual)
        copied._asked = set(self._asked)
        return copied

    def learn(self, candidates: Collection[Candidate]) -> None:
        """Looks at the devices of a slice for what tells them apart."""
        of_slice: dict[str, set[DeviceAttribute]] = {}
        for candidate in candidates:
            for name, value in _named(candidate):
                if name not in self._individual:
                    of_slice.setdefault(name, set()).add(value)
        for name, values in of_slice.items():
            known = self._values.setdefault(name, set())
            known |= values
            if len(known) > _MANY:
                del self._values[name]
                self._individual.add(name)
                self._asked.discard(name)
            elif name in self._asked or not _SEVERAL <= len(candidates) == len(values):
                continue
            if name not in self._by_sharing:
                self._by_sharing.add(name)
                self.version += 1

    def tell(self, names: Iterable[str]) -> bool:
        """Whether shapes say all about the values of these attributes, from now on."""
        names = set(names)
        if not names.isdisjoint(self._individual):
            return False
        self._asked |= names
        if not names.isdisjoint(self._by_sharing):
            self._by_sharing -= names
            self.version += 1
        return True

    def tidy(self) -> None:
        """Forgets all shapes once there are too many; numbers are never used again."""
        if len(self._numbers) > _MOST:
            self._numbers.clear()
            self.version += 1

    def of_device(self, candidate: Candidate, counter_sets: Sequence[str]) -> int:
        """The number of a device by itself."""
        attributes = (
            (name, value) for name, value in _named(candidate) if name not in self._by_sharing
        )
        return self._number((frozenset(attributes), content(candidate, counter_sets)))

    def of_node(self, groups: Iterable["ShapedGroup"], others: Hashable, usage: Usage) -> int:
        """The number of a node with these groups of devices, and `others` that sets it apart."""
        units = [(self._number(group.state(usage)), group) for group in groups]
        colours: dict[_Place, list[int]] = {}
        for number, group in units:
            for member in group.places:
                for place, _ in member:
                    colours.setdefault(place, []).append(number)
        bands = {place: self._number(tuple(sorted(of))) for place, of in colours.items()}
        ordered = sorted(
            units,
            key=lambda unit: (
                unit[0],
                [
                    sorted((place[0], bands[place]) for place, _ in member)
                    for member in unit[1].places
                ],
            ),
        )
        ranks: dict[_Place, int] = {}
        return self._number(
            (
                others,
                tuple(number for number, _ in ordered),
                tuple(
                    tuple(
                        (place[0], kind, ranks.setdefault(place, len(ranks)))
                        for place, kind in member
                    )
                    for _, group in ordered
                    for member in group.places
                ),
            )
        )

    def group(self, group: DeviceGroup) -> "ShapedGroup":
        """A group of devices, ready to be compared."""
        counter_sets = list(group.totals)
        numbered = sorted(
            ((self.of_device(member, counter_sets), member) for member in group.members),
            key=lambda device: device[0],
        )
        return ShapedGroup(
            devices=tuple(numbered),
            totals=tuple(frozenset(amounts.items()) for amounts in group.totals.values()),
            group=group,
            places=tuple(tuple(self._places(member)) for _, member in numbered),
        )

    def _places(self, candidate: Candidate) -> Iterator[tuple[_Place, type]]:
        """Of a list each element: devices may share some of them."""
        for name, attribute in sorted(_named(candidate), key=_name):
            if name in self._by_sharing:
                for value in sorted(values_of(attribute, lists=True), key=repr) or [attribute]:
                    yield (name, value), type(attribute)

    def _number(self, key: Hashable) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
        return number


class ShapedGroup:
    """A group of devices in an order that does not depend on their names."""

    __slots__ = ("_devices", "_group", "_totals", "places")

    def __init__(
        self,
        devices: tuple[tuple[int, Candidate], ...],
        totals: Hashable,
        group: DeviceGroup,
        places: tuple[tuple[tuple[_Place, type], ...], ...],
    ) -> None:
        self._devices = devices
        self._totals = totals
        self._group = group
        self.places = places
        """Of each device the attributes that count by who shares them, and their types."""

    def state(self, usage: Usage) -> Hashable:
        """All that counts of the group, but for where its devices are.

        A group that is like no other, since what is in use elsewhere counts or since its counters
        are overdrawn, is so by the name of its first device.
        """
        alone = self._devices[0][1].id if self._group.is_irregular(usage) else None
        states = ((number, _use(candidate, usage)) for number, candidate in self._devices)
        return self._totals, alone, tuple(states)


def _use(candidate: Candidate, usage: Usage) -> Hashable:
    if candidate.id in usage.dedicated:
        return True
    share = usage.shared.get(candidate.id)
    return share and frozenset(share.amounts.items())


def _named(candidate: Candidate) -> Iterator[tuple[str, DeviceAttribute]]:
    """Attributes by their full names."""
    driver = candidate.id.driver
    for name, value in candidate.device.attributes.items():
        yield (name if "/" in name else f"{driver}/{name}"), value


def _name(named: tuple[str, DeviceAttribute]) -> str:
    return named[0]
