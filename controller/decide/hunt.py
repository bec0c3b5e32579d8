"""Makes room for a group at the cost of others: who is evicted, and on which nodes.

A pod that has no place gets one on the node where that disturbs least. Its victims there are
evicted one after the other until it fits. At the end, whoever need not have gone stays, and victims
that fit elsewhere move.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import Final

from carina_dra.allocator.preference import Policy
from controller.decide.chunk import Chunk, active_pods, surplus
from controller.decide.eligibility import Eligibility
from controller.decide.gang import Gang, Taken
from controller.decide.move import move
from controller.decide.places import Place
from controller.decide.trial import Trial
from controller.decide.victims import Victims
from controller.model.group import Group
from controller.model.plan import Action
from controller.model.pod import Pod, PodNeeds
from controller.model.reason import NoVictims, Reason

_CLOSE: Final = 8
"""After so many evictions on a node, it is looked at again only when they have doubled."""

_NO_NEEDS: Final = PodNeeds()


class CutShortError(Exception):
    """The search has tried as much as it may in one cycle."""


@dataclass(slots=True)
class _Search:
    """How far a search has come, to go on later where it was cut short."""

    skips: tuple[int, ...]
    looked: list[int] = field(default_factory=list)

    def begin(self) -> int:
        """How many nodes are known to have no place for the next pod."""
        at = len(self.looked)
        known = self.skips[at] if at < len(self.skips) else 0
        self.looked.append(known)
        return known


class Hunt:
    """Looks for victims for one chunk of a group, by one action."""

    def __init__(
        self,
        trial: Trial,
        eligibility: Eligibility,
        victims: Victims,
        policy: Policy,
        *,
        last_step: int | None,
        skips: tuple[int, ...] = (),
    ) -> None:
        """The search ends before `last_step`; `skips` are those of a cursor."""
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._eligibility = eligibility
        self._victims = victims
        self._policy = policy
        self._last_step = last_step
        self._search = _Search(skips)
        self._evicted: list[tuple[Pod, ...]] = []
        """What has been evicted together, in this order."""
        self.wake: float | None = None
        """When a group that is safe now is safe no longer."""

    @property
    def looked(self) -> tuple[int, ...]:
        """Where the search can go on."""
        return tuple(self._search.looked)

    def run(self, chunk: Chunk) -> Sequence[Taken] | Reason:
        """Gives the chunk its places, with the evictions that it takes, or changes nothing.

        Raises:
            CutShortError: the limit is reached; nothing has changed.
        """
        mark = self._state.mark()
        try:
            taken = self._gang().place(chunk)
        except CutShortError:
            self._state.rollback(mark)
            raise
        action = self._eligibility.action
        if not isinstance(taken, Sequence):
            return NoVictims(action, self._victims.count, str(taken))
        self._reprieve(0)
        if action is not Action.CONSOLIDATE:
            self._move_who_fits()
            gone = [one.queue for one in self._victim_groups() if self._is_gone(one)]
            if not self._eligibility.stays_fair(gone):
                self._state.rollback(mark)
                why = "it would then have more of its fair share than those who gave"
                return NoVictims(action, self._victims.count, why)
        return taken

    def _take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        """Gives a pod a place that is free, or makes room for it."""
        place = self._places.find(pod, self._policy, within, avoided)
        if isinstance(place, Place):
            self._trial.take(pod, place)
            return place
        if place is not None:
            return place
        skipped = self._search.begin()
        at = len(self._search.looked) - 1
        nodes = self._nodes(pod, within, avoided)
        for index, node in enumerate(nodes):
            if index < skipped:
                continue
            if self._last_step is not None and self._places.steps >= self._last_step:
                raise CutShortError
            mark, count = self._state.mark(), len(self._evicted)
            made = self._make_room(pod, node)
            if made is not None:
                return made
            self._state.rollback(mark)
            del self._evicted[count:]
            self._search.looked[at] += 1
        return self._places.why_not(pod, within)

    def _gang(self) -> Gang:
        return Gang(self._state, self._trial.domains, self._places, self._take, self._least_cost)

    def _least_cost(self, _: Sequence[Pod], nodes: frozenset[str]) -> tuple[object, ...]:
        """Orders domains by what it costs to make room in them."""
        found = (self._victims.cost(name, self._eligibility, _NO_NEEDS, 0) for name in nodes)
        costs = [cost for cost in found if cost is not None]
        return (False, *min(costs)) if costs else (True,)

    def _nodes(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Iterator[str]:
        """The nodes where evictions may make room, where they cost least first."""
        names = self._places.candidates(pod, within)
        devices = self._places.least_devices(pod)
        costs = [
            cost
            for name in names
            if name not in avoided
            and (cost := self._victims.cost(name, self._eligibility, pod.needs, devices))
        ]
        heapify(costs)
        while costs:
            yield heappop(costs)[-1]

    def _make_room(self, pod: Pod, node: str) -> Place | None:
        """Evicts pods on a node until the pod has a place there, and gives it the place."""
        blocked: set[str] = set()
        evicted = tried = 0
        first = len(self._evicted)
        only = frozenset([node])
        hopeless: bool | None = None
        while True:
            unit = self._next_unit(node, blocked)
            if unit is None and evicted == tried:
                return None
            if unit is not None:
                if not self._evict(unit):
                    blocked.add(unit[0].group or "")
                    continue
                evicted += 1
                if evicted > _CLOSE and evicted < 2 * tried:
                    continue
            tried = evicted
            place = self._places.find(pod, self._policy, only)
            if isinstance(place, Place):
                self._trial.take(pod, place)
                self._reprieve(first)
                moved = self._eligibility.action is not Action.CONSOLIDATE or self._move_all()
                return place if moved else None
            if hopeless is None:
                hopeless = not self._could_ever(pod, node, frozenset(blocked))
            if hopeless:
                return None

    def _could_ever(self, pod: Pod, node: str, blocked: frozenset[str]) -> bool:
        """Whether a pod has a place on a node if everybody goes who may be evicted there."""
        mark, count = self._state.mark(), len(self._evicted)
        tried = set(blocked)
        while True:
            unit = self._next_unit(node, tried)
            if unit is None:
                break
            if not self._evict(unit):
                tried.add(unit[0].group or "")
        fits = isinstance(self._places.find(pod, self._policy, frozenset([node])), Place)
        self._state.rollback(mark)
        del self._evicted[count:]
        return fits

    def _next_unit(self, node: str, blocked: Container[str]) -> tuple[Pod, ...] | None:
        """Who goes next from a node: as few pods of as unimportant a group as possible."""
        for group in self._victims.on_node(node, self._eligibility):
            if group.key in blocked or not self._eligibility.may_take_from(group.queue):
                continue
            unit = self._unit(group, node)
            if unit is not None:
                return unit
        return None

    def _unit(self, group: Group, node: str) -> tuple[Pod, ...] | None:
        """The least that can be evicted of a group to free something of a node."""
        for unit in surplus(self._state, group):
            if any(self._state.holds[pod.key].node == node for pod in unit):
                return unit
        safe = self._eligibility.safety(group)
        if safe is not None:
            self.wake = safe.until if self.wake is None else min(self.wake, safe.until)
            return None
        return tuple(active_pods(self._state, group.key))

    def _evict(self, unit: tuple[Pod, ...]) -> bool:
        """Evicts pods together, unless a disruption budget or the limit of moves forbids it."""
        most = self._state.settings.consolidation_limit
        if self._eligibility.action is Action.CONSOLIDATE and most is not None:
            moved = sum(map(len, self._evicted))
            if moved + len(unit) > most:
                return False
        mark = self._state.mark()
        for pod in unit:
            if not self._state.disrupt(pod):
                self._state.rollback(mark)
                return False
            self._trial.evict(pod, self._eligibility.action, self._eligibility.group.key)
        self._evicted.append(unit)
        return True

    def _reprieve(self, first: int) -> None:
        """Puts back who need not have gone since the `first` eviction, the last one first."""
        for at in reversed(range(first, len(self._evicted))):
            mark = self._state.mark()
            if all(map(self._stays, self._evicted[at])):
                del self._evicted[at]
            else:
                self._state.rollback(mark)

    def _stays(self, pod: Pod) -> bool:
        """Puts an evicted pod back, if its place is free, and it has got no other."""
        if pod.key in self._state.holds or not self._trial.could_stay(pod):
            return False
        self._trial.put_back(pod)
        self._state.undisrupt(pod)
        return True

    def _victim_groups(self) -> list[Group]:
        """The groups of the pods that are evicted for this one, in order."""
        keys = {
            pod.group: None
            for unit in self._evicted
            for pod in unit
            if pod.key in self._trial.evictions and pod.group is not None
        }
        return [self._state.groups[key] for key in keys]

    def _is_gone(self, group: Group) -> bool:
        """Whether a pod of a group was evicted and has no other place."""
        return any(
            pod.group == group.key and pod.key not in self._state.holds
            for unit in self._evicted
            for pod in unit
            if pod.key in self._trial.evictions
        )

    def _move_who_fits(self) -> None:
        """Gives victims another place, group by group, where there is one."""
        for group in self._victim_groups():
            move(self._trial, group, self._policy_of(group), all_pods=False)

    def _move_all(self) -> bool:
        """Gives every victim another place; false if one has none."""
        groups = self._victim_groups()
        return all(
            move(self._trial, group, self._policy_of(group), all_pods=True) for group in groups
        )

    def _policy_of(self, group: Group) -> Policy:
        return group.placement or self._state.tree.placement(
            group.queue, self._state.settings.placement
        )
