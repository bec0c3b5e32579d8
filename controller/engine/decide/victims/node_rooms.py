"""Whether a node has room for some pods once others have left it, tried out and remembered."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from carina_dra.allocator.preference import Policy
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.model.plan import Action
from controller.engine.model.pod import Pod

_EVICTION: Final = 10
"""Steps for the trial to evict a pod."""
_ORDERS: Final = 3
"""The number of orders in which pods are given places on a node, until they fit."""


@dataclass(frozen=True, slots=True)
class Comer:
    """A pod that needs a place."""

    pod: Pod
    policy: Policy
    kind: Hashable
    """Equal for pods that need the same."""
    has_place: bool
    """Whether it has one that it leaves."""


class NodeRooms:
    """Answers for one group; nothing has changed after a question."""

    def __init__(self, trial: Trial, action: Action, group: str) -> None:
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._action = action
        self._group = group
        self._known: dict[tuple[str, frozenset[Hashable], tuple[Hashable, ...]], bool] = {}
        self.cards: dict[tuple[Hashable, str], int] = {}
        """How much of the devices of a node a kind of pods takes, in millionths of a card."""
        self._free: dict[str, int] = {}
        """What is free of the devices of nodes where pods take as much together as each by itself,
        in millionths of a card."""

    def weigh(self, node: str, occupants: Sequence[Comer]) -> None:
        """Takes down how much each of the pods of a node has of its devices."""
        state = self._state
        mark, free = state.occupancy.mark(), state.occupancy.devices.free_cards(node)
        for comer in occupants:
            self._evict(comer.pod)
            self.cards[comer.kind, node] = state.occupancy.devices.free_cards(node) - free
            state.occupancy.rollback(mark)
        for comer in occupants:
            self._evict(comer.pod)
        freed = sum(self.cards[comer.kind, node] for comer in occupants)
        if state.occupancy.devices.free_cards(node) == free + freed:
            self._free[node] = free
        state.occupancy.rollback(mark)

    def has_room(self, node: str, without: Sequence[Comer], comers: Sequence[Comer]) -> bool:
        """Whether there is room for pods on a node without some of its pods."""
        if self._is_short(node, without, comers):
            return False
        kinds = tuple(comer.kind for comer in comers)
        key = node, frozenset(comer.kind for comer in without), kinds
        if key not in self._known:
            self._known[key] = self._try(node, without, comers)
        return self._known[key]

    def least_cards(self, comer: Comer) -> int:
        """How much a pod takes of the devices of a node at least, as far as that is known."""
        found = (cards for (kind, _), cards in self.cards.items() if kind == comer.kind)
        return min(found, default=0)

    def _is_short(self, node: str, without: Sequence[Comer], comers: Sequence[Comer]) -> bool:
        """Whether a node certainly has too few devices."""
        if node not in self._free:
            return False
        free = self._free[node] + sum(self.cards[comer.kind, node] for comer in without)
        return free < sum(self.cards.get((comer.kind, node), 0) for comer in comers)

    def _evict(self, pod: Pod) -> None:
        self._places.spend(_EVICTION)
        self._trial.evict(pod, self._action, self._group)

    def _try(self, node: str, without: Sequence[Comer], comers: Sequence[Comer]) -> bool:
        state = self._state
        mark = state.occupancy.mark()
        leaving = {comer.pod.key: comer.pod for comer in (*without, *comers) if comer.has_place}
        for pod in leaving.values():
            self._evict(pod)
        largest_first = sorted(comers, key=lambda comer: -self.cards.get((comer.kind, node), 0))
        tried = state.occupancy.mark()
        fits = False
        for number, order in enumerate(permutations(largest_first)):
            if number == _ORDERS:
                break
            fits = all(self._place(node, comer) for comer in order)
            if fits:
                break
            state.occupancy.rollback(tried)
        state.occupancy.rollback(mark)
        return fits

    def _place(self, node: str, comer: Comer) -> bool:
        place = self._places.find(comer.pod, comer.policy, frozenset([node]))
        if not isinstance(place, Place):
            return False
        free = self._state.occupancy.devices.free_cards(node)
        self._trial.take(comer.pod, place)
        cards = free - self._state.occupancy.devices.free_cards(node)
        known = self.cards.get((comer.kind, node), cards)
        self.cards[comer.kind, node] = min(known, cards)
        return True
