"""What could be given out of the cards of a cluster by moving those who have some, at most.

Devices that are cards by themselves can be counted (`spare`). Where cards are partitioned or
shared, their parts are added up instead: what is free of all cards, and what claims have beyond the
least that they would have elsewhere. It is bounded from the safe side, so a no is certain. Without
it, all nodes are tried in vain for each whole GPU that waits on a full fleet with partitions: on 50
nodes, the same jobs then take twice as long.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.request import check
from carina_dra.placement.cluster.card import NOTHING, CardParts, PartKind
from carina_dra.price import EXPRESSION_CHARACTERS, LEAST
from carina_dra.resource import ResourceClaim, ResourceClaimSpec
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.state.asking import expressions_of
from controller.engine.state.cards import had
from controller.engine.state.node_sum import NodeSum
from controller.engine.state.occupancy import Occupancy

_SPECS: Final = 64
"""Of this many specs it is known what claims need; others need nothing until devices change.

They are half of the questions of which the answers for each pool are kept, and fewer: with more,
all pools would be asked all of them again when a slice changes, and tenants write specs.
"""


class SpareParts:
    """Adds up the parts of cards of the kinds that are asked for."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._free: dict[PartKind, NodeSum] = {}
        self._beyond: dict[PartKind, NodeSum] = {}
        """What claims have beyond what they need."""
        self._needs: dict[int, tuple[ResourceClaimSpec, CardParts]] = {}
        """By the identity of a spec, which claims of one template share."""
        self._moment = (-1, -1)

    def suffices(self, kind: PartKind, wanted: int) -> bool:
        """Whether an amount of a kind may be had, in millionths of a card; false is certain."""
        return self._sum(self._free, kind, self._free_of) >= wanted or self.most(kind) >= wanted

    def most(self, kind: PartKind) -> int:
        """How much of a kind claims could have in addition at most, in millionths of a card.

        Each claim that has devices keeps as much as it needs at least, wherever that is.
        """
        moment = self._occupancy.devices.least_moment
        if moment != self._moment:
            self._moment = moment
            self._learn_again()
        free = self._sum(self._free, kind, self._free_of)
        return free + self._sum(self._beyond, kind, self._beyond_needs)

    def _sum(
        self,
        sums: dict[PartKind, NodeSum],
        kind: PartKind,
        of_node: Callable[[PartKind, str], int],
    ) -> int:
        if kind not in sums:
            sums[kind] = NodeSum(self._occupancy.cluster, partial(of_node, kind))
        return sums[kind].total()

    def _free_of(self, kind: PartKind, node: str) -> int:
        return self._occupancy.devices.cards.free(node).of(kind)

    def _beyond_needs(self, kind: PartKind, node: str) -> int:
        """What those on a node who could move have beyond their needs."""
        occupancy = self._occupancy
        by_device = occupancy.devices.cards.devices(node)
        found = 0
        pods = (occupancy.pods[key] for key in occupancy.on_node.get(node, ()))
        for key in {claim for pod in pods if pod.group is not None for claim in pod.claims}:
            allocation = occupancy.allocation(key)
            if allocation is not None:
                needs = self._needs_of(occupancy.claims[key].spec).of(kind)
                found += max(0, had(by_device, [allocation], kind) - needs)
        return found

    def _needs_of(self, spec: ResourceClaimSpec) -> CardParts:
        known = self._needs.get(id(spec))
        if known is None:
            if len(self._needs) >= _SPECS:
                return NOTHING
            known = self._needs[id(spec)] = spec, self._learn(spec)
        return known[1]

    def _learn_again(self) -> None:
        """Finds out what claims need now that devices have changed."""
        before, self._needs = self._needs, {}
        if len(before) < _SPECS:
            self._needs = {at: (spec, self._learn(spec)) for at, (spec, _) in before.items()}
        if self._needs != before:
            self._beyond.clear()

    def _learn(self, spec: ResourceClaimSpec) -> CardParts:
        """What claims take at least; nothing if it costs too much to say."""
        occupancy, budget = self._occupancy, StepBudget(LEAST)
        claim = ResourceClaim(spec=spec)
        try:
            for expression in expressions_of(claim):
                budget.spend(len(expression) // EXPRESSION_CHARACTERS)
            checked = check(claim, occupancy.devices.classes, occupancy.cluster.features)
            return occupancy.devices.least_of([checked], budget)
        except (AllocationError, OutOfStepsError):
            return NOTHING
