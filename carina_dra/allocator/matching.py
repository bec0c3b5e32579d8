"""Which devices match a request, whether in use or not: selectors, capacities, attributes.

Everything is evaluated when it is first needed. A selector that fails on a device is an error only
if the search reaches the device, as in upstream.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from carina_dra.allocator.capacity import CapacityError, consumed_capacity, fits
from carina_dra.allocator.constraint import Values, values_of
from carina_dra.allocator.errors import AllocationError, ExpressionError
from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate, IncompletePool, InvalidPool, Pool, ReadyPool
from carina_dra.allocator.request import Alternative
from carina_dra.allocator.usage import PoolId
from carina_dra.cel import AttributeExpression, CompileError, EvaluationError, Meter
from carina_dra.price import AMOUNT, CANDIDATE, CEL_UNIT, EVALUATION, VALUE
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceAttribute, lookup
from carina_dra.work import Work


class KnownEvaluations(Protocol):
    """What is known already of alternatives and devices, so that it need not be evaluated again."""

    def selects(self, alternative: Alternative, candidate: Candidate) -> bool | None:
        """As `Matching.selects`; None if it is not known."""

    def amounts(
        self, alternative: Alternative, candidate: Candidate
    ) -> Mapping[str, Quantity] | None:
        """As `amounts_of`."""

    def derived(
        self, expression: AttributeExpression, candidate: Candidate
    ) -> DeviceAttribute | None:
        """The value of a derived attribute.

        Raises:
            EvaluationError: the expression fails on the device.
        """


def amounts_of(
    alternative: Alternative, candidate: Candidate, features: Features
) -> Mapping[str, Quantity] | None:
    """What an alternative consumes of a device's capacities; None if it cannot be served.

    Raises:
        AllocationError: an amount is not valid, see `CapacityError`.
    """
    try:
        return consumed_capacity(
            candidate.device.capacity,
            alternative.capacity,
            fractional=features.fractional_capacity_range,
        )
    except CapacityError as error:
        raise AllocationError(
            f"{alternative}: checking capacity for device {candidate.id}: {error}"
        ) from error


class Matching:
    """Matches an alternative of a request with the candidates of a node, given by index."""

    def __init__(
        self,
        alternative: Alternative,
        candidates: Sequence[Candidate],
        features: Features,
        known: KnownEvaluations | None = None,
        work: Work | None = None,
    ) -> None:
        """`known`, if given, charges what it evaluates itself; the rest is charged to `work`."""
        self._work = Work() if work is None else work
        self._alternative = alternative
        self._known = known
        self._candidates = candidates
        self._features = features
        self._selects: dict[int, bool] = {}
        self._amounts: dict[int, Mapping[str, Quantity] | None] = {}
        self._values: dict[tuple[int, str], Values | None] = {}

    def selects(self, index: int) -> bool:
        """Whether class and request select the device, and it is usable on the node.

        Raises:
            AllocationError: a selector does not compile, or fails on the device.
        """
        known = self._selects.get(index)
        if known is None and self._known is not None:
            known = self._known.selects(self._alternative, self._candidates[index])
        if known is None:
            known = self.refused_by(index) is None
        self._selects[index] = known
        return known

    def amounts(self, index: int) -> Mapping[str, Quantity] | None:
        """What the request consumes of the device's capacities; None if it cannot be served.

        Raises:
            AllocationError: an amount is not valid, see `CapacityError`.
        """
        if index not in self._amounts:
            self._work.spend(AMOUNT)
            candidate = self._candidates[index]
            self._amounts[index] = (
                amounts_of(self._alternative, candidate, self._features)
                if self._known is None
                else self._known.amounts(self._alternative, candidate)
            )
        return self._amounts[index]

    def values(self, index: int, attribute: str) -> Values | None:
        """The values of an attribute, as constraints compare them; None if the device lacks it.

        Raises:
            AllocationError: it is a derived attribute whose expression fails.
        """
        key = index, attribute
        if key not in self._values:
            found = self._attribute(self._candidates[index], attribute)
            lists = self._features.list_attributes
            self._values[key] = None if found is None else values_of(found, lists=lists)
        return self._values[key]

    def published(self, index: int, attribute: str) -> Values | None:
        """The values that the driver published, whatever the request derives; None for none."""
        candidate = self._candidates[index]
        self._work.spend(VALUE)
        found = lookup(candidate.device.attributes, attribute, candidate.id.driver)
        return None if found is None else values_of(found, lists=self._features.list_attributes)

    def every(self, pools: Sequence[Pool]) -> tuple[int, ...]:
        """All devices that match and would be large enough if they were not in use.

        Raises:
            AllocationError: a pool is incomplete or invalid, or as for `selects` and `amounts`.
        """
        for pool in pools:
            match pool:
                case IncompletePool(id=name):
                    raise self._not_all(name, "being updated")
                case InvalidPool(id=name):
                    raise self._not_all(name, "invalid")
                case ReadyPool():
                    pass
        self._work.spend(CANDIDATE * len(self._candidates))
        return tuple(
            index
            for index in range(len(self._candidates))
            if self.selects(index) and self._would_fit(index)
        )

    def _not_all(self, pool: PoolId, state: str) -> AllocationError:
        return AllocationError(
            f"{self._alternative}: asks for all devices, but resource pool {pool} is currently "
            f"{state}"
        )

    def _would_fit(self, index: int) -> bool:
        if not self._features.consumable_capacity:
            return True
        amounts = self.amounts(index)
        return amounts is not None and fits(amounts, self._candidates[index].device.capacity)

    def refused_by(self, index: int) -> str | None:
        """Why the device does not match, as words after a number of devices; None if it matches.

        Raises:
            AllocationError: a selector does not compile, or fails on the device.
        """
        candidate = self._candidates[index]
        if candidate.device.binding_conditions and not self._features.binding_conditions:
            return "with binding conditions, and the DRADeviceBindingConditions feature is disabled"
        for named in self._alternative.selectors:
            if isinstance(named.selector, CompileError):
                raise ExpressionError(f"{named.location}: CEL compile error: {named.selector}")
            meter = Meter()
            try:
                if not named.selector.matches(candidate.view, meter):
                    return f"not selected by {named.location}"
            except EvaluationError as error:
                raise AllocationError(
                    f"{named.location} on device {candidate.id}: CEL runtime error: {error}"
                ) from error
            finally:
                self._work.spend(EVALUATION + CEL_UNIT * meter.spent)
        return None if candidate.here else "not usable on this node"

    def _attribute(self, candidate: Candidate, name: str) -> DeviceAttribute | None:
        derived = self._alternative.derived.get(name)
        if derived is None:
            return lookup(candidate.device.attributes, name, candidate.id.driver)
        if isinstance(derived, CompileError):
            raise ExpressionError(f"compile derived attribute {name} failed: {derived}")
        try:
            if self._known is not None:
                return self._known.derived(derived, candidate)
            return self._derive(derived, candidate)
        except EvaluationError as error:
            raise AllocationError(
                f"evaluate derived attribute {name} on device {candidate.id} failed: {error}"
            ) from error

    def _derive(self, expression: AttributeExpression, candidate: Candidate) -> DeviceAttribute:
        meter = Meter()
        try:
            return expression.evaluate(candidate.view, meter)
        finally:
            self._work.spend(EVALUATION + CEL_UNIT * meter.spent)
