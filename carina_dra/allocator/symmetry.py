"""Interchangeable devices at a point of the search: only one of them is tried.

Two devices are interchangeable if nothing in the claims distinguishes them, and the same holds for
the devices that consume the same counters, including what has been taken of them. An allocation
with one is then possible with the other. The first device is the one that is tried, so the search
still finds its first allocation.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from carina_dra.allocator.group import content, groups
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.request import Claim, attributes_read
from carina_dra.allocator.usage import DeviceId, Usage
from carina_dra.resource import lookup


@dataclass(frozen=True, slots=True)
class _Group:
    """Devices that consume the same counters."""

    members: tuple[tuple[DeviceId, int], ...]
    """With a number for the properties that distinguish them."""
    number: int


class Symmetry:
    """Classifies the devices of a node by what matters to a search."""

    def __init__(
        self,
        pools: Iterable[ReadyPool],
        claims: Sequence[Claim],
        in_common: Sequence[str],
        usage: Usage,
        ledger: Ledger,
    ) -> None:
        self._usage = usage
        self._ledger = ledger
        self._numbers: dict[Hashable, int] = {}
        self._number_of: dict[DeviceId, int] = {}
        self._group_of: dict[DeviceId, _Group] = {}
        constrained = {constraint.rule.name for claim in claims for constraint in claim.constraints}
        read = attributes_read(claims)
        self._names = None if read is None else sorted(read | constrained | set(in_common))
        for pool in pools:
            is_overdrawn = bool(pool.counters) and ledger.is_overdrawn(pool.id)
            for group in groups(pool):
                elsewhere = frozenset(
                    candidate.id for candidate in group.elsewhere if candidate.id in usage
                )
                sets = list(group.totals)
                members = tuple((member.id, self._device(member, sets)) for member in group.members)
                signature = (
                    tuple(sorted(number for _, number in members)),
                    tuple(frozenset(amounts.items()) for amounts in group.totals.values()),
                    elsewhere,
                    is_overdrawn,
                )
                numbered = _Group(members, self._number(signature))
                for device, number in members:
                    self._number_of[device] = number
                    self._group_of[device] = numbered

    def now(self) -> Callable[[Candidate], Hashable]:
        """Classifies devices: equal for those that are interchangeable in the present state.

        It holds as long as the search has taken the same devices as now.
        """
        taken_of: dict[DeviceId, Hashable] = {}

        def kind(candidate: Candidate) -> Hashable:
            group = self._group_of[candidate.id]
            first = group.members[0][0]
            if first not in taken_of:
                taken_of[first] = frozenset(
                    Counter(
                        (number, taken)
                        for device, number in group.members
                        if (taken := self._ledger.taken(device)) is not None
                    ).items()
                )
            of_itself = self._ledger.taken(candidate.id)
            return self._number_of[candidate.id], of_itself, group.number, taken_of[first]

        return kind

    def _device(self, candidate: Candidate, counter_sets: Sequence[str]) -> int:
        device, usage = candidate.device, self._usage
        attributes: Hashable = frozenset(device.attributes.items())
        if self._names is not None:
            driver = candidate.id.driver
            attributes = tuple(lookup(device.attributes, name, driver) for name in self._names)
        share = usage.shared.get(candidate.id)
        return self._number(
            (
                attributes,
                content(candidate, counter_sets),
                candidate.id in usage.dedicated,
                share and (share.count, frozenset(share.amounts.items())),
            )
        )

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
