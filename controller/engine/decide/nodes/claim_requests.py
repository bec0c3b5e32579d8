"""What claims ask for, checked once, and paid for by each attempt that asks."""

from typing import NamedTuple

from carina_dra.allocator.errors import AllocationError
from carina_dra.placement.choice.placer import PlacementRequest, text_of
from carina_dra.price import CLAIM, EXPRESSION_CHARACTERS
from carina_dra.resource import DeviceClassSpec, ResourceClaim, ResourceClaimSpec
from carina_dra.step_budget import StepBudget
from controller.engine.model.reason import BadClaim
from controller.engine.state.asking import expressions_of
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.remembered import Remembered


class _Price(NamedTuple):
    """What it costs to check a claim."""

    steps: int
    """Without the expressions, of which each is compiled once."""
    expressions: tuple[str, ...]


class ClaimRequests:
    """The checked requests of claims."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._known: Remembered[tuple[str, ...], PlacementRequest | BadClaim] = Remembered(
            lambda: len(occupancy.claims) + len(occupancy.pods)
        )
        self._class_moment = -1
        self._payer: StepBudget | None = None
        self._paid: set[str] = set()
        """The UIDs of claims, and the expressions, that the last budget has paid for."""
        self._prices: Remembered[str, _Price] = Remembered(lambda: len(occupancy.claims))
        """By the UID of a claim: what it costs to check it."""
        self._texts: Remembered[int, tuple[object, str]] = Remembered(lambda: len(occupancy.claims))
        """By the identity of a spec, which claims of one template share."""

    def forget(self) -> None:
        """Forgets what has been checked."""
        self._known.clear()

    def of(
        self, claims: tuple[ResourceClaim, ...], budget: StepBudget
    ) -> PlacementRequest | BadClaim:
        """What claims ask for together.

        Raises:
            OutOfStepsError: the budget does not suffice to check them.
        """
        if self._class_moment != self._occupancy.devices.class_moment:
            self._class_moment = self._occupancy.devices.class_moment
            self._known.clear()
        self._pay(claims, budget)
        key = tuple(claim.metadata.uid or claim.key for claim in claims)
        known = self._known.get(key)
        if known is None:
            try:
                known = PlacementRequest.of(
                    claims,
                    self._occupancy.devices.classes,
                    self._occupancy.cluster.features,
                    self._text_of,
                )
            except AllocationError as error:
                known = BadClaim("", str(error))
            self._known[key] = known
        return known

    def _text_of(self, spec: ResourceClaimSpec | DeviceClassSpec) -> str:
        known = self._texts.get(id(spec))
        if known is None:
            known = self._texts[id(spec)] = spec, text_of(spec)
        return known[1]

    def _pay(self, claims: tuple[ResourceClaim, ...], budget: StepBudget) -> None:
        """Charges each claim and each expression once, whether it has been checked before or not.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if self._payer is not budget:
            self._payer = budget
            self._paid.clear()
        for claim in claims:
            uid = claim.metadata.uid or claim.key
            if uid in self._paid:
                continue
            price = self._prices.get(uid)
            if price is None:
                price = self._prices[uid] = _price(claim)
            budget.spend(price.steps)
            for expression in price.expressions:
                if expression not in self._paid:
                    budget.spend(len(expression) // EXPRESSION_CHARACTERS)
                    self._paid.add(expression)
            self._paid.add(uid)


def _price(claim: ResourceClaim) -> _Price:
    return _Price(CLAIM * (1 + len(claim.spec.devices.requests)), tuple(expressions_of(claim)))
