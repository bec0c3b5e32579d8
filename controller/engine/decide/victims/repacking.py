"""The plan that disturbs least on a few nodes, found by branch and bound.

Pods are given places one after the other: first those of the group that asks, then those who move
for them, and so on. Where a node has no room, the smallest sets of pods leave it that make room,
each of which goes for good or needs another place itself. So nobody leaves in vain, and chains of
moves are found. First one pod may leave its place, then two, and so on. A way is given up as soon
as it disturbs no less than the best plan that is known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import combinations, product
from typing import Final, TypeAlias

from controller.engine.decide.victims.disturbance import (
    FAIR,
    NOBODY_FALLS,
    Disturbance,
    FairGiving,
    oldest_first,
)
from controller.engine.decide.victims.node_rooms import Comer, NodeRooms
from controller.engine.decide.victims.occupants import Occupants

_CLOSE: Final = 2
"""Up to this many pods leave their places even if there seems to be too little for all."""


@dataclass(frozen=True, slots=True)
class Repacking:
    """Who goes for good, who moves, and where everybody gets a place."""

    gone: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    falling: frozenset[str] = frozenset()
    """The groups that fall."""
    homes: tuple[tuple[int, str], ...] = ()
    """By the number of the pod; those of the group that asks have the negative ones."""

    @property
    def disturbed(self) -> frozenset[int]:
        """All who leave their places."""
        return self.gone | self.moved


Permit: TypeAlias = Callable[[Repacking], FairGiving | None]
"""Says how fair it is who goes for good; None if a queue need not give."""
TryOut: TypeAlias = Callable[[Repacking], Disturbance | None]
"""Carries a plan out on trial, which the search cannot foresee in all; None if it is impossible."""


@dataclass(frozen=True, slots=True)
class PlacesWanted:
    """What the search has to find places for."""

    comers: Mapping[int, Comer]
    """Who may need a place, by number; those of the group that asks have the negative ones."""
    nodes: Mapping[int, Sequence[str]]
    """Where each of them may be."""
    first: tuple[int, ...]
    """Those of the group that asks, in the order in which they get places."""


class LeastDisturbance:
    """Searches for a plan that disturbs less than a known one."""

    def __init__(
        self,
        occupants: Occupants,
        wanted: PlacesWanted,
        rooms: NodeRooms,
        permit: Permit,
        try_out: TryOut,
        spend: Callable[[int], None],
        *,
        free_cards: int,
        most_pods: int | None,
    ) -> None:
        """Of the nodes, `free_cards` are free, in millionths; `most_pods` pods may leave."""
        self._occupants = occupants
        self._wanted = wanted
        self._rooms = rooms
        self._permit = permit
        self._try_out = try_out
        self._spend = spend
        self._free_cards = free_cards
        self._most_pods = len(occupants.pods) if most_pods is None else most_pods
        self._on = {node: occupants.on(node) for nodes in wanted.nodes.values() for node in nodes}
        self.best: Repacking | None = None
        self.least: Disturbance | None = None
        """How much the best plan disturbs, or the one that is known."""
        self._seen: set[tuple[object, ...]] = set()
        self._has_been_cut = False
        """Whether more could have been found with more pods."""

    def search(self, known: Disturbance | None) -> None:
        """Searches with more and more pods that leave their places.

        Raises:
            OutOfStepsError: `best` is the best one that has been found until then.
        """
        self.least = known
        for most in range(min(self._most_pods, len(self._occupants.pods)) + 1):
            if self.least is not None and _nobody_goes(self.least) and self.least.pods < most:
                return
            self._has_been_cut = False
            self._seen.clear()
            self._place(Repacking(), self._wanted.first, most)
            if not self._has_been_cut:
                return

    def _place(self, known: Repacking, pending: tuple[int, ...], most: int) -> None:
        """Gives those who need it a place, while `most` pods may leave theirs."""
        self._spend(1)
        state = known.gone, known.moved, pending, frozenset(known.homes)
        if state in self._seen or not self._may_be_best(known):
            return
        self._seen.add(state)
        if not pending:
            self._finish(known)
            return
        comer, rest = pending[0], pending[1:]
        for node in self._nodes(known, comer):
            for leaving in self._sets(known, comer, node, most - len(known.disturbed)):
                for then in self._fates(known, leaving):
                    left = most - len(then.disturbed)
                    if left < 0:
                        self._has_been_cut = True
                        continue
                    if most > _CLOSE and self._is_short(then, left):
                        continue
                    homes = *then.homes, (comer, node)
                    movers = sorted(leaving & then.moved, key=lambda at: (-self._cards(at), at))
                    self._place(replace(then, homes=homes), (*rest, *movers), most)

    def _nodes(self, known: Repacking, comer: int) -> Iterator[str]:
        """Where a pod may go; of alike pods of the group, none comes before an earlier one."""
        nodes = self._wanted.nodes[comer]
        kind = self._wanted.comers[comer].kind
        earlier = [
            self._wanted.nodes[comer].index(node)
            for other, node in known.homes
            if other < 0 and comer < 0 and self._wanted.comers[other].kind == kind
        ]
        return iter(nodes[max(earlier, default=0) :])

    def _sets(self, known: Repacking, comer: int, node: str, most: int) -> Iterator[frozenset[int]]:
        """The smallest sets of pods that make room for a pod on a node."""
        here = [at for at in self._on[node] if at not in known.disturbed]
        gone = [at for at in self._on[node] if at in known.disturbed]
        if self._has_room(known, comer, node, gone):
            yield frozenset()
            return
        if not here or not self._has_room(known, comer, node, [*gone, *here]):
            return
        found: list[frozenset[int]] = []
        left = here
        for size in range(1, min(most, len(here)) + 1):
            for pods in combinations(left, size):
                self._spend(1)
                leaving = frozenset(pods)
                if any(smaller <= leaving for smaller in found):
                    continue
                if self._has_room(known, comer, node, [*gone, *pods]):
                    found.append(leaving)
                    yield leaving
            alone = {at for pods in found if len(pods) == 1 for at in pods}
            left = [at for at in here if at not in alone]
        if most < len(here):
            self._has_been_cut = True

    def _has_room(self, known: Repacking, comer: int, node: str, without: Sequence[int]) -> bool:
        comers = self._wanted.comers
        here = [comers[at] for at, home in known.homes if home == node]
        return self._rooms.has_room(node, [comers[at] for at in without], [*here, comers[comer]])

    def _fates(self, known: Repacking, leaving: frozenset[int]) -> Iterator[Repacking]:
        """The ways in which pods may leave: each moves, or goes for good."""
        order = sorted(leaving)
        pods = self._occupants.pods
        fates = [
            [goes for goes, can in ((False, pods[at].moves), (True, pods[at].gives)) if can]
            for at in order
        ]
        for chosen in product(*fates):
            self._spend(1)
            gone = {at for at, goes in zip(order, chosen, strict=True) if goes}
            then = self._with(known, gone, leaving - gone)
            if then is not None:
                yield then

    def _with(self, known: Repacking, gone: set[int], moved: frozenset[int]) -> Repacking | None:
        """A plan with which more pods leave; None if their groups do not allow it."""
        then = replace(known, gone=known.gone | gone, moved=known.moved | moved)
        for name in sorted({self._occupants.pods[at].group.key for at in gone | moved}):
            allowed = self._occupants.allowances[name]
            if len(then.gone & allowed.members) > allowed.spare:
                if not allowed.falls or then.moved & allowed.members:
                    return None
                gone_with_it = then.gone | allowed.members
                then = replace(then, gone=gone_with_it, falling=then.falling | {name})
            if allowed.is_safe and len(then.disturbed & allowed.members) > allowed.spare:
                return None
        return then if not gone or self._permit(then) is not None else None

    def _cards(self, at: int) -> int:
        return self._rooms.least_cards(self._wanted.comers[at])

    def _is_short(self, known: Repacking, more: int) -> bool:
        """Whether there are too few cards for all, even if some more pods go for good."""
        pods = self._occupants.pods
        left = [
            self._cards(at)
            for at in range(len(pods))
            if pods[at].gives and at not in known.disturbed
        ]
        missing = sum(map(self._cards, self._wanted.first)) - self._free_cards
        missing -= sum(map(self._cards, known.gone))
        if missing <= sum(nlargest(more, left)):
            return False
        self._has_been_cut |= missing <= sum(left)
        return True

    def _may_be_best(self, known: Repacking) -> bool:
        """Whether a plan with these pods, and perhaps more, disturbs less than the best one."""
        return self.least is None or self._at_least(known, FAIR) < self.least

    def _at_least(self, known: Repacking, fairness: FairGiving) -> Disturbance:
        pods = self._occupants.pods
        allowances = self._occupants.allowances
        falling = [pods[min(allowances[name].members)].group.priority for name in known.falling]
        ages = oldest_first(pods[at].age for at in known.disturbed)
        return Disturbance(
            bool(falling),
            fairness,
            max(falling, default=NOBODY_FALLS),
            len(known.gone),
            len(falling),
            len(known.disturbed),
            ages,
        )

    def _finish(self, known: Repacking) -> None:
        """Takes down a plan that disturbs less than all before it, if it can be carried out."""
        fairness = self._permit(known)
        if fairness is None:
            return
        if self.least is not None and self._at_least(known, fairness) >= self.least:
            return
        if self._is_needless(known):
            return
        found = self._try_out(known)
        if found is not None and (self.least is None or found < self.least):
            self.best, self.least = known, found

    def _is_needless(self, known: Repacking) -> bool:
        """Whether somebody goes for good who could stay where he is.

        Otherwise some would go only so that it is the turn of the queues of others.
        """
        allowances = self._occupants.allowances
        falling = [allowances[name].members for name in sorted(known.falling)]
        single = sorted(known.gone.difference(*falling))
        return any(
            self._could_stay(known, unit)
            for unit in (*falling, *(frozenset({at}) for at in single))
        )

    def _could_stay(self, known: Repacking, unit: frozenset[int]) -> bool:
        comers = self._wanted.comers
        for node in sorted({self._occupants.pods[at].node for at in unit}):
            here = [comers[at] for at, home in known.homes if home == node]
            gone = [comers[at] for at in self._on.get(node, ()) if at in known.disturbed - unit]
            if here and not self._rooms.has_room(node, gone, here):
                return False
        return True


def _nobody_goes(known: Disturbance) -> bool:
    return known.gone == 0
