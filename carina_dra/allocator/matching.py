"""Which devices a request may have at all, whoever has them: selectors, capacities, attributes.

Everything is worked out when it is first needed: a selector that fails on a device is an error only
if the search gets there, as upstream has it.
"""

from collections.abc import Mapping, Sequence

from carina_dra.allocator.capacity import CapacityError, fits, taken
from carina_dra.allocator.constraint import Values, values_of
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate, IncompletePool, InvalidPool, Pool, ReadyPool
from carina_dra.allocator.request import Alternative
from carina_dra.allocator.usage import PoolId
from carina_dra.cel import CompileError, EvaluationError
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceAttribute, lookup


class Matching:
    """An alternative of a request beside the candidates of a node, by their indexes."""

    def __init__(
        self, alternative: Alternative, candidates: Sequence[Candidate], features: Features
    ) -> None:
        self._alternative = alternative
        self._candidates = candidates
        self._features = features
        self._selects: dict[int, bool] = {}
        self._amounts: dict[int, Mapping[str, Quantity] | None] = {}
        self._values: dict[tuple[int, str], Values | None] = {}

    def selects(self, index: int) -> bool:
        """Whether the selectors of class and request, and the device's nodes, allow it.

        Raises:
            AllocationError: a selector fails, or is none.
        """
        known = self._selects.get(index)
        if known is None:
            known = self._selects[index] = self.refused_by(index) is None
        return known

    def amounts(self, index: int) -> Mapping[str, Quantity] | None:
        """What the request takes of the device's capacities; None if they do not suit it.

        Raises:
            AllocationError: an amount cannot be counted.
        """
        if index not in self._amounts:
            self._amounts[index] = self._taken(self._candidates[index])
        return self._amounts[index]

    def values(self, index: int, attribute: str) -> Values | None:
        """The values of an attribute that constraints compare; None where there is none.

        Raises:
            AllocationError: it is computed, and that fails.
        """
        key = index, attribute
        if key not in self._values:
            found = self._attribute(self._candidates[index], attribute)
            lists = self._features.list_attributes
            self._values[key] = None if found is None else values_of(found, lists=lists)
        return self._values[key]

    def every(self, pools: Sequence[Pool]) -> tuple[int, ...]:
        """All devices that match, used or not, which would do if they were empty.

        Raises:
            AllocationError: of a pool is not known what is in it; or as above.
        """
        for pool in pools:
            match pool:
                case IncompletePool(id=name):
                    raise self._not_all(name, "being updated")
                case InvalidPool(id=name):
                    raise self._not_all(name, "invalid")
                case ReadyPool():
                    pass
        return tuple(
            index
            for index in range(len(self._candidates))
            if self.selects(index) and self._would_fit(index)
        )

    def _not_all(self, pool: PoolId, what: str) -> AllocationError:
        return AllocationError(
            f"{self._alternative}: asks for all devices, but resource pool {pool} is currently "
            f"{what}"
        )

    def _would_fit(self, index: int) -> bool:
        if not self._features.consumable_capacity:
            return True
        amounts = self.amounts(index)
        return amounts is not None and fits(amounts, self._candidates[index].device.capacity)

    def refused_by(self, index: int) -> str | None:
        """What refuses a device, in words that follow a number of devices; None if nothing does.

        Raises:
            AllocationError: a selector fails, or is none.
        """
        candidate = self._candidates[index]
        if candidate.device.binding_conditions and not self._features.binding_conditions:
            return "with binding conditions, which are switched off"
        for each in self._alternative.selectors:
            if isinstance(each.selector, CompileError):
                raise AllocationError(f"{each.place}: CEL compile error: {each.selector}")
            try:
                if not each.selector.matches(candidate.view):
                    return f"not selected by {each.place}"
            except EvaluationError as error:
                raise AllocationError(
                    f"{each.place} on device {candidate.id}: CEL runtime error: {error}"
                ) from error
        return None if candidate.here else "not usable on this node"

    def _taken(self, candidate: Candidate) -> Mapping[str, Quantity] | None:
        try:
            return taken(
                candidate.device.capacity,
                self._alternative.capacity,
                fractional=self._features.fractional_capacity_range,
            )
        except CapacityError as error:
            raise AllocationError(
                f"{self._alternative}: checking capacity for device {candidate.id}: {error}"
            ) from error

    def _attribute(self, candidate: Candidate, name: str) -> DeviceAttribute | None:
        derived = self._alternative.derived.get(name)
        if derived is None:
            return lookup(candidate.device.attributes, name, candidate.id.driver)
        if isinstance(derived, CompileError):
            raise AllocationError(f"compile derived attribute {name} failed: {derived}")
        try:
            return derived.evaluate(candidate.view)
        except EvaluationError as error:
            raise AllocationError(
                f"evaluate derived attribute {name} on device {candidate.id} failed: {error}"
            ) from error
