"""Which devices could serve a request: what its expressions and amounts say of each device.

Everything is evaluated once, when it is first needed, and charged to the work that needs it.

Without it, `mig`, 3 partitions of a GPU and 4 of a NUMA node, and `worst`, the last of 8
alternatives, take 3 to 6 times as long: each node that has enough free devices is searched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.matching import amounts_of
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative
from carina_dra.allocator.taint import untolerated
from carina_dra.allocator.usage import DeviceAmounts
from carina_dra.cel import AttributeExpression, CompileError, EvaluationError, Meter
from carina_dra.placement.cluster.offer import OfferedPool, PoolState, devices_of
from carina_dra.price import ALTERNATIVE, AMOUNT, CEL_UNIT, EVALUATION
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceAttribute
from carina_dra.work import Work

_NO_AMOUNTS: Final[DeviceAmounts] = {}
_DEVICES: Final = 10_000
"""The number of devices of which it is remembered what a request makes of them."""


@dataclass(frozen=True, slots=True)
class _Derived:
    """What an expression has given for a device, and the cost of its evaluation."""

    value: DeviceAttribute | str
    """The error if it is a text."""
    cost: int


class EligibleDevices:
    """The devices that alternatives of claims of one kind could have."""

    def __init__(self, features: Features) -> None:
        self.work = Work()
        """The work on the node that is looked at."""
        self._features = features
        self._derived: dict[AttributeExpression, dict[Candidate, _Derived]] = {}
        self._amounts: dict[Alternative, dict[Candidate, Mapping[str, Quantity] | None]] = {}

    def available(self, wanted: Alternative, state: PoolState, errors: list[str]) -> int:
        """The devices of a pool that each could serve an alternative now.

        `errors` gets what failed on other devices.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        self.work.spend(ALTERNATIVE)
        offered = state.offered
        mask = offered.here
        if not wanted.admin_access:
            mask &= state.free
        mask, failed = self._selected(wanted, offered, mask)
        errors += failed
        if mask & offered.tainted:
            mask &= ~sum(
                bit
                for bit, candidate in devices_of(mask & offered.tainted, offered.devices)
                if untolerated(candidate.device, wanted.tolerations)
            )
        counted = mask if wanted.capacity is not None else mask & offered.shareable
        if counted and self._features.consumable_capacity:
            mask &= ~sum(
                bit
                for bit, candidate in devices_of(counted, offered.devices)
                if not self._has_room(wanted, candidate, state, errors)
            )
        return mask

    def _has_room(
        self, wanted: Alternative, candidate: Candidate, state: PoolState, errors: list[str]
    ) -> bool:
        share = None if wanted.admin_access else state.usage.shared.get(candidate.id)
        used = share.amounts if share else _NO_AMOUNTS
        for name, amount in wanted.capacity.requests.items() if wanted.capacity else ():
            capacity = candidate.device.capacity.get(name)
            if capacity is None or amount.nanos > capacity.value.nanos - used.get(name, 0):
                return False  # amounts are only ever rounded up
        try:
            amounts = self.amounts_of(wanted, candidate)
        except AllocationError as error:
            errors.append(str(error))
            return False
        return amounts is not None and fits(amounts, candidate.device.capacity, used)

    def needed(self, wanted: Alternative, state: PoolState) -> int:
        """The devices of a pool without which an alternative cannot have all.

        No fleet asks for all devices. Without it, each node with a device in use is searched
        (tests/unit/carina_dra/placement/test_work.py).
        """
        offered = state.offered
        mask, errors = self._selected(wanted, offered, offered.here)
        if errors:
            return 0  # the search tells of them
        return sum(
            bit
            for bit, candidate in devices_of(mask, offered.devices)
            # Devices that are too small are not needed, and need not be supported.
            if not candidate.device.binding_conditions
            and wanted.capacity is None
            and all(
                capacity.request_policy is None for capacity in candidate.device.capacity.values()
            )
        )

    def selects_nothing(self, wanted: Alternative, state: PoolState) -> bool:
        """Whether no device of a pool is selected, or fails, as is known without evaluation.

        Without it, `unlike`, 2 GPUs with more memory than any has, takes 2.6 times as long, and 1
        GPU by its UUID 2 times.

        What has been evaluated before does not matter: the answer is the same in each process.
        """
        offered = state.offered
        mask = offered.here if wanted.admin_access else offered.here & state.free
        for named in wanted.selectors:
            if not mask:
                break
            mask &= ~offered.refused(named.selector)
        return not mask

    def _selected(
        self, wanted: Alternative, offered: OfferedPool, among: int
    ) -> tuple[int, list[str]]:
        """Which of the devices an alternative selects, and how its selectors fail on others."""
        errors = []
        for named in wanted.selectors:
            if not among:
                break
            found = offered.selected(named.selector, among, self.work)
            failure = found.first_failure(among, offered.devices)
            if failure is not None:
                errors.append(f"{named.location} {failure}")
            among &= found.mask
        return among, errors

    def may_fail(self, wanted: Alternative, state: PoolState) -> bool:
        """Whether an alternative fails on a device of the pool, free or not.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        offered = state.offered
        mask, errors = self._selected(wanted, offered, (1 << len(offered.devices)) - 1)
        if errors:
            return True
        if not self._features.consumable_capacity:
            return False
        try:
            for _, candidate in devices_of(mask, offered.devices):
                self.amounts_of(wanted, candidate)
        except AllocationError:
            return True
        return False

    def concerns(self, wanted: Alternative, candidate: Candidate) -> bool:
        """Whether an alternative selects a device, or fails on it.

        It fails also if a later selector would not select the device.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        for named in wanted.selectors:
            if isinstance(named.selector, CompileError):
                return True
            meter = Meter()
            try:
                if not named.selector.matches(candidate.view, meter):
                    return False
            except EvaluationError:
                return True
            finally:
                self.work.spend(EVALUATION + CEL_UNIT * meter.spent)
        return True

    def selects(
        self, wanted: Alternative, candidate: Candidate, offered: OfferedPool
    ) -> bool | None:
        """Whether an alternative selects a device of a pool; None where a selector fails.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        if candidate.device.binding_conditions and not self._features.binding_conditions:
            return False
        bit = 1 << offered.pool.positions[candidate.id]
        for named in wanted.selectors:
            found = offered.selected(named.selector, bit, self.work)
            if found.doubtful & bit:
                return None
            if not found.mask & bit:
                return False
        return candidate.here

    def derived(
        self, expression: AttributeExpression, candidate: Candidate
    ) -> DeviceAttribute | None:
        """The value of a derived attribute.

        Raises:
            EvaluationError: the expression fails on the device.
            OutOfStepsError: the budget is spent.
        """
        known = self._derived.setdefault(expression, {})
        if candidate not in known:
            if len(known) >= _DEVICES:
                known.clear()
            known[candidate] = _derive(expression, candidate)
        found = known[candidate]
        if self.work.uncharged((expression, candidate), 1):
            self.work.spend(EVALUATION + CEL_UNIT * found.cost)
        if isinstance(found.value, str):
            raise EvaluationError(found.value)
        return found.value

    def amounts_of(
        self, wanted: Alternative, candidate: Candidate
    ) -> Mapping[str, Quantity] | None:
        """What an alternative consumes of a device's capacities; None if it cannot be served.

        Raises:
            AllocationError: an amount is not valid.
        """
        self.work.spend(AMOUNT)
        known = self._amounts.setdefault(wanted, {})
        if candidate not in known:
            if len(known) >= _DEVICES:
                known.clear()
            known[candidate] = amounts_of(wanted, candidate, self._features)
        return known[candidate]


def _derive(expression: AttributeExpression, candidate: Candidate) -> _Derived:
    meter = Meter()
    try:
        value: DeviceAttribute | str = expression.evaluate(candidate.view, meter)
    except EvaluationError as error:
        value = str(error)
    return _Derived(value, meter.spent)
