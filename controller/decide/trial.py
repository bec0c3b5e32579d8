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

    def take(self, pod: Pod, place: Place) -> None:
        """Gives a pod a place."""
        self.state.place(pod.key, place.node, place.allocations)
        self.placed[pod.key] = Decided(place, waits=False)
        self.state.journal.record(partial(self.placed.pop, pod.key))
        if place.waits:
            self.wait(pod)

    def wait(self, pod: Pod) -> None:
        """Has a pod wait for its place until others have left theirs."""
        decided = self.placed[pod.key]
        if not decided.waits:
            decided.waits = True
            self.state.nominate(pod.key)
            self.state.journal.record(partial(setattr, decided, "waits", False))

    def evict(self, pod: Pod, action: Action, group: str) -> None:
        """Evicts a pod for a group."""
        node = self.state.holds[pod.key].node
        self.state.evict(pod.key)
        self.evictions[pod.key] = Eviction(pod.key, node, action, group)
        self.state.journal.record(partial(self.evictions.pop, pod.key))

    def put_back(self, pod: Pod) -> None:
        """Undoes the eviction of a pod."""
        eviction = self.evictions.pop(pod.key)
        self.state.journal.record(partial(self.evictions.__setitem__, pod.key, eviction))
        self.state.put_back(pod.key, eviction.node)

    def could_stay(self, pod: Pod) -> bool:
        """Whether an evicted pod's place, with its devices, is still free."""
        state = self.state
        room = state.rooms.get(self.evictions[pod.key].node)
        if room is None or room.lacks(pod.needs) is not None:
            return False
        for key in pod.claims:
            claim = state.claims.get(key)
            allocation = None if claim is None else claim.status.allocation
            if allocation is None or state.allocation(key) == allocation:
                continue  # it has no devices, or others still hold them
            if state.allocation(key) is not None or not state.cluster.fits(allocation):
                return False
        return True
