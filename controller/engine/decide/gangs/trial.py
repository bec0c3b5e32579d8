"""What has been decided so far; every step is undone with the state that it changed."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

from controller.engine.decide.gangs.next_chunks import NextChunks
from controller.engine.decide.nodes.domain import Domains
from controller.engine.decide.nodes.places import Place, PlaceFinder
from controller.engine.model.plan import Action, Eviction
from controller.engine.model.pod import Pod
from controller.engine.state.state import State


@dataclass(frozen=True, slots=True)
class Decided:
    """A place that a pod has got."""

    place: Place
    waits: bool
    """Whether it, or its gang, waits for others to leave."""


class Trial:
    """A state with the decisions that have been tried on it."""

    def __init__(self, state: State, places: PlaceFinder, domains: Domains) -> None:
        self.state = state
        self.places = places
        self.domains = domains
        self.next_chunks = NextChunks(state.occupancy)
        self.placed: dict[str, Decided] = {}
        """By pod."""
        self.evictions: dict[str, Eviction] = {}
        """By pod."""
        self._withdrawn: dict[str, Decided] = {}
        """By pod: the place that it was given last, and has lost again."""
        self.settled: dict[str, None] = {}
        """The groups that nobody may evict any more: others have left for them, or they move."""

    def take(self, pod: Pod, place: Place) -> None:
        """Gives a pod a place."""
        self.state.occupancy.place(pod.key, place.node, place.allocations)
        if pod.key in self._withdrawn:
            self.state.occupancy.journal.drop(self._withdrawn, pod.key)
        self.state.occupancy.journal.put(self.placed, pod.key, Decided(place, waits=False))
        if place.waits or pod.key in self.evictions or self._waits_for_claim(pod, place):
            self.wait(pod)

    def wait(self, pod: Pod) -> None:
        """Has a pod wait for its place until others have left theirs."""
        decided = self.placed[pod.key]
        if not decided.waits:
            self.state.occupancy.nominate(pod.key)
            self.state.occupancy.journal.put(
                self.placed, pod.key, Decided(decided.place, waits=True)
            )

    def _waits_for_claim(self, pod: Pod, place: Place) -> bool:
        """Whether a claim has devices that it must lose first, or gets them with pods that wait."""
        claims = self.state.occupancy.claims
        if any(claims[key].status.allocation is not None for key, _ in place.allocations):
            return True
        for key in pod.claims:
            others = [user for user in self.state.occupancy.users.get(key, ()) if user != pod.key]
            if others and all(user in self.placed and self.placed[user].waits for user in others):
                return True
        return False

    def evict(
        self,
        pod: Pod,
        action: Action,
        group: str,
        *,
        grace: float | None = None,
        past_budgets: bool = False,
    ) -> None:
        """Evicts a pod for a group; one that has only been placed here loses its place again.

        It has at most `grace` seconds to end, without them the `evictionGrace` of its queue.
        """
        journal = self.state.occupancy.journal
        decided = self.placed.get(pod.key)
        if decided is not None:
            journal.drop(self.placed, pod.key)
            journal.put(self._withdrawn, pod.key, decided)
            self.state.occupancy.evict(pod.key, here=False)
            return
        node = self.state.occupancy.holds[pod.key].node
        self.state.occupancy.evict(pod.key, here=True)
        if grace is None:
            grace = self.state.occupancy.tree.eviction_grace(self.state.occupancy.queue_of(pod))
        eviction = Eviction(pod.key, node, action, group, grace, past_budgets=past_budgets)
        journal.put(self.evictions, pod.key, eviction)

    def settle(self, groups: Iterable[str]) -> None:
        """Has nobody evict these groups any more."""
        for key in groups:
            if key not in self.settled:
                look_again = partial(self.state.occupancy.look_again, self._nodes_of(key))
                self.state.occupancy.journal.record(look_again)
                self.state.occupancy.journal.put(self.settled, key, None)
                look_again()

    def _nodes_of(self, group: str) -> list[str]:
        """The nodes where pods of a group have a place."""
        holds, members = self.state.occupancy.holds, self.state.occupancy.members[group]
        pods = (pod for of in members.by_set.values() for pod in of)
        return [hold.node for pod in pods if (hold := holds.get(pod))]

    def take_over(self, group: str, displaced: Collection[str]) -> None:
        """Has those who were evicted for displaced groups go for this group."""
        if displaced:
            for pod, eviction in list(self.evictions.items()):
                if eviction.group in displaced:
                    taken = replace(eviction, group=group)
                    self.state.occupancy.journal.put(self.evictions, pod, taken)

    def is_evicted(self, pod: Pod) -> bool:
        """Whether a pod has to leave the place that it had before."""
        return pod.key in self.evictions

    def put_back(self, pod: Pod) -> None:
        """Gives a pod the place back that it has lost last."""
        decided = self._withdrawn.get(pod.key)
        if decided is not None:
            self.take(pod, decided.place)
            if decided.waits:
                self.wait(pod)
            return
        eviction = self.evictions[pod.key]
        self.state.occupancy.journal.drop(self.evictions, pod.key)
        self.state.occupancy.put_back(pod.key, eviction.node)

    def could_stay(self, pod: Pod) -> bool:
        """Whether the place that a pod has lost last, with its devices, is still free."""
        state, decided = self.state, self._withdrawn.get(pod.key)
        place = None if decided is None else decided.place
        node = self.evictions[pod.key].node if place is None else place.node
        room = state.occupancy.rooms.get(node)
        if room is None or room.lacks(pod.needs) is not None:
            return False
        if place is not None:
            allocations = dict(place.allocations)
            needed = state.occupancy.claims_on(pod, node)
            shared = (key for key in needed if key not in allocations)
            if any(state.occupancy.allocation(key) is None for key in shared):
                return False  # who brought its devices has lost its place, too
            if node not in self.places.candidates(pod, None):
                return False
        else:
            allocations = {
                key: allocation
                for key in pod.claims
                if key in state.occupancy.claims
                and (allocation := state.occupancy.claims[key].status.allocation) is not None
            }
        for key, allocation in allocations.items():
            now = state.occupancy.allocation(key)
            if now == allocation:
                continue  # others still hold them
            if now is not None or not state.occupancy.cluster.fits(allocation):
                return False
        return True
