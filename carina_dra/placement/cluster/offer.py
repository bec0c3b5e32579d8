"""What pools offer: the devices of resolved pools, and which of them are free.

Devices are the bits of a number, in the order in which upstream tries them, so that the devices
that meet several conditions are counted at once.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from carina_dra.allocator.constraint import values_of
from carina_dra.allocator.features import Features
from carina_dra.allocator.group import DeviceGroup, GroupState, alone, bits_of, groups
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.taint import prevents_allocation
from carina_dra.allocator.usage import DeviceId, Usage
from carina_dra.cel import CompileError, EvaluationError, Meter, Selector
from carina_dra.placement.cluster.knapsack import PackedGroup, PoolKnapsacks, Remainder
from carina_dra.price import CEL_UNIT, EVALUATION
from carina_dra.resource import DeviceTaint, OnNode, StringAttribute, lookup
from carina_dra.work import Work

NOTHING: Final = Usage()
"""No device is in use."""
_SELECTORS: Final = 32
"""The number of selectors whose results a pool remembers."""
_ATTRIBUTES: Final = 8
"""The number of attributes, and of capacities, by which a pool remembers its devices.

Claims may name any.
"""


@dataclass(frozen=True, slots=True)
class Places:
    """Devices by the values of an attribute."""

    by_value: Mapping[Hashable, int]
    """A device is with each of its values."""
    anywhere: int
    """The devices without a value that can be compared."""
    incomparable: int
    """Those of them that have the attribute."""

    @property
    def is_known(self) -> bool:
        """Whether a device has the attribute."""
        return bool(self.by_value or self.incomparable)

    def distinct(self, devices: int) -> Mapping[Hashable, int]:
        """Some devices by the values of which each may occur once where they must be distinct.

        Only one of those that cannot be compared may be among them. None without the attribute may.
        """
        by_value = ((value, mask & devices) for value, mask in self.by_value.items())
        found: dict[Hashable, int] = {value: mask for value, mask in by_value if mask}
        if self.incomparable & devices:
            found[None] = self.incomparable & devices
        return found


Taints: TypeAlias = tuple[tuple[int, tuple[DeviceTaint, ...]], ...]
"""The taints of devices, by the bit of each."""


@dataclass(frozen=True, slots=True)
class Strings:
    """Devices by the string that an attribute has as its value."""

    by_value: Mapping[str, int]
    others: int
    """The devices for which it is no string, or for which expressions cannot be evaluated."""


@dataclass(slots=True)
class Selected:
    """What is known of which devices of a pool a selector selects."""

    known: int
    """The devices that it has been evaluated for, or is false for without evaluation."""
    free: int = 0
    """The devices that it is false for without evaluation."""
    costs: dict[int, int] = field(default_factory=dict)
    """What evaluations have cost, by the bit of the device, if the cost is counted."""
    mask: int = 0
    doubtful: int = 0
    """The devices on which it fails."""
    failures: dict[str, int] = field(default_factory=dict)
    """The devices on which it fails by the error: most fail alike."""

    def fail(self, devices: int, error: str) -> None:
        """Records that it fails on devices."""
        self.doubtful |= devices
        self.failures[error] = self.failures.get(error, 0) | devices

    def first_failure(self, among: int, devices: Sequence[Candidate]) -> str | None:
        """The error on the first of some devices, whichever was evaluated first; None for none."""
        for bit, candidate in devices_of(self.doubtful & among, devices):
            error = next(error for error, failing in self.failures.items() if failing & bit)
            return f"on device {candidate.id}: {error}"
        return None


class OfferedPool:
    """A resolved pool: all that follows from what its driver has published."""

    def __init__(self, pool: ReadyPool, features: Features) -> None:
        self.pool = pool
        self.is_own = any(isinstance(candidate.slice.nodes, OnNode) for candidate in pool.devices)
        """Whether it says something about the usage of the node."""
        self._features = features
        self._places: dict[str, Places] = {}
        self.values: dict[str, object] = {}
        """By attribute: equal for pools of a kind in which all devices have the same values."""
        self._strings: dict[str, Strings] = {}
        self._amounts: dict[str, Sequence[int | None]] = {}
        """The amount of a capacity that each device has, if expressions can be evaluated for it."""
        self._selected: dict[Selector | CompileError, Selected] = {}
        self._tainted: int | None = None
        self._taints: Taints | None = None
        self._state: PoolState | None = None

    @property
    def devices(self) -> Sequence[Candidate]:
        """The devices, in the order of their bits."""
        return self.pool.devices

    def remember_values(self, name: str, values: object) -> None:
        """Remembers what an attribute is, as one of few."""
        if len(self.values) >= _ATTRIBUTES:
            self.values.clear()
        self.values[name] = values

    @cached_property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """The groups of devices that consume the same counters."""
        return groups(self.pool)

    @cached_property
    def knapsacks(self) -> PoolKnapsacks:
        """What the devices draw from counters."""
        return PoolKnapsacks(self.groups)

    def states(self, usage: Usage, concerned: Collection[int]) -> Sequence[GroupState]:
        """The states of all groups; this usage matters to those with these indices only."""
        if self.pool.counters:
            return [
                group.state(usage if index in concerned else NOTHING)
                for index, group in enumerate(self.groups)
            ]
        return [
            self.state_of(index, usage) if index in concerned else GroupState(0, 1 << index)
            for index in range(len(self.devices))
        ]

    def state_of(self, index: int, usage: Usage) -> GroupState:
        """The state of the group with an index; most pools need no groups for that."""
        if self.pool.counters:
            return self.groups[index].state(usage)
        return alone(self.devices[index], 1 << index, usage)

    def concerned(self, device: DeviceId) -> Sequence[int]:
        """The indices of the groups to which the usage of a device matters."""
        if self.pool.counters:
            return self._groups_of.get(device, ())
        index = self.pool.positions.get(device)
        return () if index is None else (index,)

    def changed(self, before: Usage, after: Usage) -> Collection[DeviceId]:
        """The devices of the pool whose usage differs, perhaps with those of other nodes."""
        known = self._groups_of if self.pool.counters else self.pool.positions
        in_use = max(
            len(used) for usage in (before, after) for used in (usage.dedicated, usage.shared)
        )
        if len(known) < in_use:
            # Many of the pool's devices are on other nodes.
            return [
                device
                for device in known
                if before.dedicated.get(device) != after.dedicated.get(device)
                or before.shared.get(device) is not after.shared.get(device)
            ]
        changed = set(before.dedicated.items() ^ after.dedicated.items())
        devices = {device for device, _ in changed}
        for device in before.shared.keys() | after.shared.keys():
            if before.shared.get(device) is not after.shared.get(device):
                devices.add(device)
        return devices

    @cached_property
    def _groups_of(self) -> Mapping[DeviceId, Sequence[int]]:
        groups_of: dict[DeviceId, list[int]] = {}
        for index, group in enumerate(self.groups):
            for device in (*group.members, *group.elsewhere):
                groups_of.setdefault(device.id, []).append(index)
        return groups_of

    @cached_property
    def here(self) -> int:
        """The devices that are usable on the node."""
        return sum(1 << index for index, one in enumerate(self.devices) if one.here)

    def retaint(self, pool: ReadyPool) -> None:
        """Takes the same pool with other taints: nothing else of it may differ."""
        self.pool = pool
        self._tainted = self._taints = None

    @property
    def tainted(self) -> int:
        """The devices with a taint that prevents allocation, if it is not tolerated."""
        if self._tainted is None:
            self._tainted = self._with_taints() if self._features.device_taints else 0
        return self._tainted

    @property
    def taints(self) -> Taints:
        """The taints of these devices that prevent allocation."""
        if self._taints is None:
            self._taints = tuple(
                (bit, tuple(filter(prevents_allocation, one.device.taints)))
                for bit, one in devices_of(self.tainted, self.devices)
            )
        return self._taints

    def _with_taints(self) -> int:
        return sum(
            1 << index
            for index, one in enumerate(self.devices)
            if one.device.taints and any(map(prevents_allocation, one.device.taints))
        )

    @cached_property
    def shareable(self) -> int:
        """The devices that several claims can share."""
        if not self._features.consumable_capacity:
            return 0
        return sum(
            1 << index
            for index, one in enumerate(self.devices)
            if one.device.allow_multiple_allocations
        )

    def places(self, name: str) -> Places:
        """The devices by the values of an attribute."""
        known = self._places.get(name)
        if known is None:
            if len(self._places) >= _ATTRIBUTES:
                self._places.clear()
            known = self._places[name] = self._placed(name)
        return known

    def selected(self, selector: Selector | CompileError, among: int, work: Work) -> Selected:
        """Which of the devices a selector selects; each is evaluated when it is first asked for.

        It is charged once for each device of a node that is looked at, whether it has been
        evaluated before or not, and once for all nodes if they have the device in common.

        Raises:
            OutOfStepsError: the budget of the work is spent.
        """
        found = self._selected.get(selector)
        if found is None:
            if len(self._selected) >= _SELECTORS:
                self._selected.clear()
            refused = self._refused(selector)
            found = self._selected[selector] = Selected(refused, refused)
        left = among & ~found.free
        if left:
            left = (
                # Both exist until the work ends, and their identities are compared at once.
                work.uncharged((id(self), id(selector)), left)
                if self.is_own
                else work.uncharged((self, selector), left, for_all=True)
            )
        if not left:
            return found
        if isinstance(selector, CompileError):
            found.known |= left
            found.fail(left, f"CEL compile error: {selector}")
        elif selector.cost is not None:
            work.spend(left.bit_count() * (EVALUATION + CEL_UNIT * selector.cost))
            for bit, candidate in devices_of(left & ~found.known, self.devices):
                _evaluate(selector, bit, candidate, found, None)
        else:
            self._count(selector, left, found, work)
        return found

    def refused(self, selector: Selector | CompileError) -> int:
        """The devices that a selector is false for, as is known without evaluation."""
        found = self._selected.get(selector)
        return self._refused(selector) if found is None else found.free

    def state(self, usage: Usage) -> "PoolState":
        """The pool with this usage of its devices."""
        known = self._state
        if known is None or known.usage is not usage:
            known = self._state = PoolState.of(self, usage, known)
        return known

    def _refused(self, selector: Selector | CompileError) -> int:
        """The devices that lack what a selector requires: it is false for them."""
        if isinstance(selector, CompileError):
            return 0
        left = every = (1 << len(self.devices)) - 1
        for name, value in selector.deciding:
            strings = self._strings.get(name) or self._with_strings(name)
            left &= strings.by_value.get(value, 0) | strings.others
        for name, least in selector.minimums if left else ():
            for index, amount in enumerate(self._amounts.get(name) or self._with_amounts(name)):
                if amount is not None and amount < least:
                    left &= ~(1 << index)
        return every ^ left

    @cached_property
    def _unsupported(self) -> int:
        """The devices for which expressions cannot be evaluated."""
        return sum(
            1 << index for index, one in enumerate(self.devices) if not one.view.is_supported
        )

    def _with_strings(self, name: str) -> Strings:
        by_value: dict[str, int] = {}
        others = self._unsupported
        for index, candidate in enumerate(self.devices):
            found = lookup(candidate.device.attributes, name, candidate.id.driver)
            if isinstance(found, StringAttribute):
                by_value[found.value] = by_value.get(found.value, 0) | 1 << index
            else:
                others |= 1 << index
        if len(self._strings) >= _ATTRIBUTES:
            self._strings.clear()
        known = self._strings[name] = Strings(by_value, others)
        return known

    def _with_amounts(self, name: str) -> Sequence[int | None]:
        found = (
            None
            if self._unsupported >> index & 1
            else lookup(candidate.device.capacity, name, candidate.id.driver)
            for index, candidate in enumerate(self.devices)
        )
        if len(self._amounts) >= _ATTRIBUTES:
            self._amounts.clear()
        known = self._amounts[name] = tuple(
            None if capacity is None else capacity.value.nanos for capacity in found
        )
        return known

    def _count(self, selector: Selector, among: int, found: Selected, work: Work) -> None:
        """Evaluates a selector whose cost is counted, or charges what that has cost."""
        for bit, candidate in devices_of(among, self.devices):
            work.spend(EVALUATION)
            if bit not in found.costs:
                meter = Meter()
                _evaluate(selector, bit, candidate, found, meter)
                found.costs[bit] = meter.spent
            work.spend(CEL_UNIT * found.costs[bit])

    def _placed(self, name: str) -> Places:
        by_value: dict[Hashable, int] = {}
        anywhere = incomparable = 0
        for index, candidate in enumerate(self.devices):
            found = lookup(candidate.device.attributes, name, candidate.id.driver)
            values = found and values_of(found, lists=self._features.list_attributes)
            if not values:
                anywhere |= 1 << index
                incomparable |= (found is not None) << index
            for value in values or ():
                by_value[value] = by_value.get(value, 0) | 1 << index
        return Places(by_value, anywhere, incomparable)


class PoolState:
    """A pool at a moment: all that follows from which of its devices are in use."""

    def __init__(
        self,
        offered: OfferedPool,
        usage: Usage,
        groups: Sequence[GroupState],
        remainders: dict[int, Remainder],
    ) -> None:
        self.offered = offered
        self.usage = usage
        self.groups = groups
        self._together: dict[str, int] = {}
        self.remainders = remainders
        """What is left to groups, where it has been asked for, by their index."""
        self._rooms: dict[str, Mapping[str, int]] = {}

    @classmethod
    def of(cls, offered: OfferedPool, usage: Usage, before: "PoolState | None") -> "PoolState":
        """The state with this usage; only what differs from `before` is computed."""
        changed = offered.changed(NOTHING if before is None else before.usage, usage)
        concerned = {index for device in changed for index in offered.concerned(device)}
        if before is None:
            return cls(offered, usage, offered.states(usage, concerned), {})
        states, remainders = list(before.groups), dict(before.remainders)
        for index in concerned:
            states[index] = offered.state_of(index, usage)
            remainders.pop(index, None)
        return cls(offered, usage, states, remainders)

    def remainder(self, packed: PackedGroup) -> Remainder:
        """What is left of the counters of a group."""
        remainder = self.remainders.get(packed.index)
        if remainder is None:
            remainder = self.remainders[packed.index] = packed.remainder(self.usage)
        return remainder

    @cached_property
    def uses(self) -> Sequence[tuple[DeviceGroup, int]]:
        """The groups with their usage in millionths."""
        return [
            (group, state.used)
            for group, state in zip(self.offered.groups, self.groups, strict=True)
        ]

    @cached_property
    def room(self) -> Mapping[str, int]:
        """The largest amount of each capacity that a free device has left, in billionths."""
        room: dict[str, int] = {}
        for bit, candidate in devices_of(self.free, self.offered.devices):
            for name in candidate.device.capacity:
                room[name] = max(room.get(name, 0), self.left(name, bit))
        return room

    def most_together(self, name: str) -> int:
        """The largest number of free devices with a value of an attribute in common."""
        known = self._together.get(name)
        if known is None:
            if len(self._together) >= _ATTRIBUTES:
                self._together.clear()
            places = self.offered.places(name).by_value.values()
            free = self.free & self.offered.here
            known = max(((free & place).bit_count() for place in places), default=0)
            self._together[name] = known
        return known

    def room_within(self, attribute: str) -> Mapping[str, int]:
        """The same of free devices together that may have a value of an attribute in common."""
        room = self._rooms.get(attribute)
        if room is None:
            if len(self._rooms) >= _ATTRIBUTES:
                self._rooms.clear()
            places = self.offered.places(attribute)
            masks = [mask | places.anywhere for mask in places.by_value.values() or (0,)]
            room = self._rooms[attribute] = {
                name: max(self.left(name, mask & self.free) for mask in masks) for name in self.room
            }
        return room

    def left(self, name: str, devices: int) -> int:
        """What is left of a capacity of devices together, in billionths."""
        together = 0
        for _, candidate in devices_of(devices, self.offered.devices):
            capacity = candidate.device.capacity.get(name)
            if capacity is not None:
                share = self.usage.shared.get(candidate.id)
                used = share.amounts.get(name, 0) if share else 0
                together += max(0, capacity.value.nanos - used)
        return together

    @cached_property
    def free(self) -> int:
        """The devices that are not in use, and whose counters are left."""
        free = 0
        for state in self.groups:
            free |= state.free
        return free


def _evaluate(
    selector: Selector, bit: int, candidate: Candidate, found: Selected, meter: Meter | None
) -> None:
    try:
        if selector.matches(candidate.view, meter):
            found.mask |= bit
    except EvaluationError as error:
        found.fail(bit, f"CEL runtime error: {error}")
    found.known |= bit


def devices_of(mask: int, devices: Sequence[Candidate]) -> Iterator[tuple[int, Candidate]]:
    """The devices of a number, with their bits."""
    for bit in bits_of(mask):
        yield bit, devices[bit.bit_length() - 1]
