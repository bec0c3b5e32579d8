"""Places the pods of a chunk together, within the topology of their group, or none of them."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import PlacementUnit, has_nominated, stands
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Least, Place, PlaceFinder
from controller.engine.model.group import Group, TopologyConstraint
from controller.engine.model.pod import Pod
from controller.engine.model.reason import NoDomain, Reason

_NODES_A_STEP: Final = 10
"""So many nodes are divided into domains in a step."""
_TRIED: Final = 16
"""So many nodes are tried for a claim that several pods share."""

Take: TypeAlias = Callable[[Pod, frozenset[str] | None, Container[str]], Place | Reason]
"""Gives a pod a place within some nodes, avoiding others; it may make room for it."""


DomainOrder: TypeAlias = Callable[[Least, frozenset[str]], tuple[object, ...] | None]
"""Ranks a domain for pods, by its nodes; None if it certainly has no room for them."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A pod that has got a place."""

    pod: Pod
    place: Place


class Gang:
    """Places chunks with one way to give a pod a place."""

    def __init__(self, trial: Trial, take: Take, order: DomainOrder | None = None) -> None:
        """`order` says which of the domains of a level come first, if not the fullest with room.

        Where nobody makes room (there is no `order`), pods of unlike sizes that have no room one
        after the other are tried once more, the largest first.
        """
        self._state = trial.state
        self._domains = trial.domains
        self._places = trial.places
        self._take = take
        self._order = order or _Fullness(trial.places).rank
        self._sorts = order is None
        self._taken: list[Taken] = []

    def place(self, chunk: PlacementUnit) -> Sequence[Taken] | Reason:
        """Gives all pods of a chunk a place, or changes nothing and says why not."""
        self._taken = []
        mark = self._state.occupancy.mark()
        reason = self._place(chunk, None)
        if reason is None:
            return self._taken
        self._state.occupancy.rollback(mark)
        return reason

    def _place(self, chunk: PlacementUnit, within: frozenset[str] | None) -> Reason | None:
        constraint = chunk.part.topology
        if constraint is None:
            return self._place_parts(chunk, within)
        failed: Reason | None = None
        tried = 0
        for nodes in self._candidates(chunk, constraint, within):
            tried += 1
            mark, count = self._state.occupancy.mark(), len(self._taken)
            failed = self._place_parts(chunk, nodes)
            if failed is None:
                return None
            self._state.occupancy.rollback(mark)
            del self._taken[count:]
        if tried == 1 and failed is not None:
            return failed
        return NoDomain(constraint.required or constraint.preferred or "", tried)

    def _place_parts(self, chunk: PlacementUnit, within: frozenset[str] | None) -> Reason | None:
        for child in chunk.children:
            reason = self._place(child, within)
            if reason is not None:
                return reason
        mark, count = self._state.occupancy.mark(), len(self._taken)
        reason = self._place_in_turn(chunk.pods, within)
        if reason is None or not self._sorts:
            return reason
        large_first = sorted(chunk.pods, key=self._size, reverse=True)
        if large_first == list(chunk.pods):
            return reason
        self._state.occupancy.rollback(mark)
        del self._taken[count:]
        return reason if self._place_in_turn(large_first, within) else None

    def _size(self, pod: Pod) -> tuple[int, int, int]:
        return self._places.least_devices(pod), pod.needs.cpu, pod.needs.memory

    def _place_in_turn(self, pods: Sequence[Pod], within: frozenset[str] | None) -> Reason | None:
        for together in self._bundles(pods):
            reason = self._place_together(together, within)
            if reason is not None:
                return reason
        return None

    def _place_together(self, pods: Sequence[Pod], within: frozenset[str] | None) -> Reason | None:
        """Places pods that share claims: where the first one goes, the others must have room."""
        avoided: set[str] = set()
        while True:
            mark, count = self._state.occupancy.mark(), len(self._taken)
            reason = None
            for index, pod in enumerate(pods):
                reason = self._place_one(pod, within, () if index else avoided)
                if reason is not None:
                    break
            if reason is None:
                return None
            others = len(self._taken) > count
            if others:
                avoided.add(self._taken[count].place.node)
            self._state.occupancy.rollback(mark)
            del self._taken[count:]
            if not others or len(avoided) >= _TRIED:
                return reason

    def _place_one(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Reason | None:
        place = self._take(pod, within, avoided)
        if not isinstance(place, Place):
            return place
        self._taken.append(Taken(pod, place))
        return None

    def _bundles(self, pods: Sequence[Pod]) -> Iterator[Sequence[Pod]]:
        """The pods, those together that share a claim without devices."""
        of_claim: dict[str, list[int]] = {}
        for index, pod in enumerate(pods):
            for claim in pod.claims:
                of_claim.setdefault(claim, []).append(index)
        done: set[int] = set()
        for index, pod in enumerate(pods):
            if index not in done:
                sharing = {other for claim in self._open(pod) for other in of_claim[claim]}
                together = [index, *sorted(sharing - done - {index})]
                done.update(together)
                yield [pods[position] for position in together]

    def _open(self, pod: Pod) -> frozenset[str]:
        """Its claims that have no devices, and other pods."""
        state = self._state
        return frozenset(
            claim
            for claim in pod.claims
            if state.occupancy.referrers(claim) > 1 and state.occupancy.allocation(claim) is None
        )

    def _candidates(
        self, chunk: PlacementUnit, constraint: TopologyConstraint, within: frozenset[str] | None
    ) -> Iterator[frozenset[str] | None]:
        """The domains that may have room: narrow ones before wide ones, the fullest first."""
        least = self._places.least_of(list(chunk.all_pods()))
        for level in self._domains.levels(constraint):
            if level is None:
                yield within
                continue
            steps = 1 + len(self._state.occupancy.nodes) // _NODES_A_STEP
            self._places.budget.spend_once(("level", constraint.topology, level), steps)
            domains = self._domains.of(constraint.topology, level)
            if chunk.held:
                holding = self._domains.holding(constraint.topology, level, chunk.held)
                if len(holding) != 1:
                    continue  # its pods are in several domains of this level already
                domains = {domain: domains[domain] for domain in holding if domain is not None}
            rooms = []
            for domain, names in domains.items():
                nodes = names if within is None else names & within
                rank = self._order(least, nodes)
                if rank is not None:
                    rooms.append(((*rank, domain), nodes))
            for _, nodes in sorted(rooms, key=itemgetter(0)):
                yield nodes


class _Fullness:
    """Orders domains: those with the least that is free come first."""

    def __init__(self, places: PlaceFinder) -> None:
        self._places = places

    def rank(self, least: Least, nodes: frozenset[str]) -> tuple[object, ...] | None:
        if not self._places.may_have_room(least, nodes):
            return None
        return (self._places.free_cards(nodes),)


def wait_together(trial: Trial, group: Group, taken: Sequence[Taken]) -> None:
    """Has pods wait that got a place, if their group lacks its minimum until others leave."""
    if trial.state.occupancy.nominated and not _stands_now(trial, group):
        for one in taken:
            trial.wait(one.pod)


def keep_together(trial: Trial, isolation: Isolation) -> None:
    """Has all pods of a group wait that would start without its minimum: some of it has to move."""
    state = trial.state
    if not state.occupancy.nominated:
        return
    starting: dict[str, list[Pod]] = {}
    for key, decided in trial.placed.items():
        pod = state.occupancy.pods[key]
        if not decided.waits and pod.group is not None:
            starting.setdefault(pod.group, []).append(pod)
    for key, pods in starting.items():
        group = state.occupancy.groups[key]
        if not isolation.run(group, partial(_stands_now, trial, group)):
            for pod in pods:
                trial.wait(pod)


def _stands_now(trial: Trial, group: Group) -> bool:
    """Whether a group has its minimum without those of its pods that wait."""
    return not has_nominated(trial.state.occupancy, group) or stands(trial.state.occupancy, group)
