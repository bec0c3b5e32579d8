"""What has been decided so far; every step is undone with the state that it changed."""

from dataclasses import dataclass
from functools import partial

from controller.decide.domain import Domains
from controller.decide.places import Place, Places
from controller.model.plan import Action, Eviction
from controller.model.pod import Pod
from controller.state.state import State


@dataclass(slots=True)
class Decided:
    """A place that a pod has got."""

    place: Place
    waits: bool
    """Whether it, or its gang, waits for others to leave."""


class Trial:
    """A state with the decisions that have been tried on it."""

    def __init__(self, state: State, places: Places, domains: Domains) -> None:
        self.state = state
        self.places = places
        self.domains = domains
        self.placed: dict[str, Decided] = {}
        """By pod."""
        self.evictions: dict[str, Eviction] = {}
        """By pod."""
        self._withdrawn: dict[str, Place] = {}
        """By pod: the place that it was given last, and has lost again."""

    def take(self, pod: Pod, place: Place) -> None:
        """Gives a pod a place."""
        self.state.place(pod.key, place.node, place.allocations)
        self.placed[pod.key] = Decided(place, waits=False)
        self.state.journal.record(partial(self.placed.pop, pod.key))
        if place.waits or self._waits_for_claim(pod, place):
            self.wait(pod)

    def wait(self, pod: Pod) -> None:
        """Has a pod wait for its place until others have left theirs."""
        decided = self.placed[pod.key]
        if not decided.waits:
            decided.waits = True
            self.state.nominate(pod.key)
            self.state.journal.record(partial(_start_now, decided))

    def _waits_for_claim(self, pod: Pod, place: Place) -> bool:
        """Whether a claim has devices that it must lose first, or gets them with pods that wait."""
        claims = self.state.claims
        if any(claims[key].status.allocation is not None for key, _ in place.allocations):
            return True
        for key in pod.claims:
            others = [user for user in self.state.users.get(key, ()) if user != pod.key]
            if others and all(user in self.placed and self.placed[user].waits for user in others):
                return True
        return False

    def evict(self, pod: Pod, action: Action, group: str) -> None:
        """Evicts a pod for a group; one that has only been placed here loses its place again."""
        if pod.key in self.placed:
            self.withdraw(pod)
            return
        node = self.state.holds[pod.key].node
        self.state.evict(pod.key)
        self.evictions[pod.key] = Eviction(pod.key, node, action, group)
        self.state.journal.record(partial(self.evictions.pop, pod.key))

    def withdraw(self, pod: Pod) -> None:
        """Takes from a pod the place that it has been given here."""
        decided = self.placed.pop(pod.key)
        self.state.journal.record(partial(self.placed.__setitem__, pod.key, decided))
        self.state.evict(pod.key)
        before = self._withdrawn.get(pod.key)
        self._withdrawn[pod.key] = decided.place
        self.state.journal.record(partial(self._lost_last, pod.key, before))

    def _lost_last(self, pod: str, place: Place | None) -> None:
        if place is None:
            del self._withdrawn[pod]
        else:
            self._withdrawn[pod] = place

    def put_back(self, pod: Pod) -> None:
        """Gives a pod the place back that it has lost here."""
        eviction = self.evictions.pop(pod.key, None)
        if eviction is None:
            self.take(pod, self._withdrawn[pod.key])
            return
        self.state.journal.record(partial(self.evictions.__setitem__, pod.key, eviction))
        self.state.put_back(pod.key, eviction.node)

    def could_stay(self, pod: Pod) -> bool:
        """Whether the place that a pod has lost here, with its devices, is still free."""
        state = self.state
        eviction = self.evictions.get(pod.key)
        node = self._withdrawn[pod.key].node if eviction is None else eviction.node
        room = state.rooms.get(node)
        if room is None or room.lacks(pod.needs) is not None:
            return False
        if eviction is None:
            allocations = dict(self._withdrawn[pod.key].allocations)
        else:
            allocations = {
                key: allocation
                for key in pod.claims
                if key in state.claims
                and (allocation := state.claims[key].status.allocation) is not None
            }
        for key, allocation in allocations.items():
            now = state.allocation(key)
            if now == allocation:
                continue  # others still hold them
            if now is not None or not state.cluster.fits(allocation):
                return False
        return True


def _start_now(decided: Decided) -> None:
    decided.waits = False
