"""Where a group would have its places once those that run have ended as they have said.

The group pays for that, also where another one asks, which does not choose what it costs.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from carina_dra.allocator.usage import PoolId
from carina_dra.step_budget import OutOfStepsError
from controller.engine.decide.gangs.assigner import Assigner
from controller.engine.decide.gangs.gang import Gang
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import PlacementUnit, active_pods, next_chunk
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.nodes.places import Place
from controller.engine.decide.queues.overrun import Overruns, declared_end
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.model.reason import NoRoom, Reason

T = TypeVar("T")

_TIMES_AN_ATTEMPT: Final = 4
"""What it may cost to find out whether there is room for a group, in attempts of this group."""
_EVICTION: Final = 10
"""Steps for a pod that is taken to have ended."""


@dataclass(frozen=True, slots=True)
class ExpectedPlaces:
    """Places that a group could have at a time."""

    at: float
    """A Unix time."""
    pods_on: Mapping[str, Sequence[Pod]]
    """By node."""
    pools: frozenset[PoolId]
    """Those with devices for its claims."""


_Ending: TypeAlias = tuple[float, Sequence[Pod]]
"""A time, and the pods that end then."""


class ExpectedRoom:
    """The room that there will be. Each question leaves the state as it is."""

    def __init__(self, trial: Trial, isolation: Isolation, overruns: Overruns) -> None:
        self._trial = trial
        self._isolation = isolation
        self._state = trial.state
        self._overruns = overruns

    def earliest(self, group: Group) -> ExpectedPlaces | None:
        """The first places of a group; None if there are none, or not known when."""
        try:
            return self._at_the_cost_of(group, partial(self._earliest, group))
        except OutOfStepsError:
            return None

    def at(self, group: Group, time: float, stays: str | None) -> ExpectedPlaces | None:
        """The places of a group at a time, if `stays` does not end; None if none are found.

        Raises:
            OutOfStepsError: it would cost the group more than it may.
        """
        return self._at_the_cost_of(group, partial(self._at, group, time, stays))

    def leaves(
        self, newcomer: Group, group: Group, expected: ExpectedPlaces, stays: str | None
    ) -> bool:
        """Whether a newcomer that has got places leaves a group those that it is expected to have,
        as a look at its nodes shows.

        If not, the group may have other places.

        Raises:
            OutOfStepsError: as for `at`.
        """
        return self._at_the_cost_of(group, partial(self._leaves, newcomer, expected, stays))

    def _at_the_cost_of(self, group: Group, work: Callable[[], T]) -> T:
        """Does some work with a budget beside that of the attempt that is being made.

        How large the group is that may delay another, or be delayed, says nothing about this one.

        Raises:
            OutOfStepsError: the budget is spent.
        """
        places, mark = self._trial.places, self._state.occupancy.mark()
        budget = places.budget
        places.budget = budget.beside(_TIMES_AN_ATTEMPT * self._isolation.limit_of(group))
        try:
            return work()
        finally:
            self._state.occupancy.rollback(mark)
            self._isolation.time.charge(group, places.budget.spent)
            places.budget = budget

    def _earliest(self, group: Group) -> ExpectedPlaces | None:
        state = self._state
        chunk = next_chunk(state.occupancy, group)
        if not isinstance(chunk, PlacementUnit):
            return None
        endings = self._endings(None)
        fits, last = self._first_enough(chunk, endings), len(endings) - 1
        if fits is None:
            return None
        roomy = self._roomy()
        self._end(endings[: fits + 1])
        found = self._places(group, endings[fits][0], roomy)
        fails, mark, stride = fits, state.occupancy.mark(), 1
        while found is None and fits < last:  # it fits once more have ended
            fails, mark, fits = fits, state.occupancy.mark(), min(fits + stride, last)
            self._end(endings[fails + 1 : fits + 1])
            found = self._places(group, endings[fits][0], roomy)
            stride *= 2
        while found is not None and fits - fails > 1:
            middle = (fails + fits) // 2
            state.occupancy.rollback(mark)
            self._end(endings[fails + 1 : middle + 1])
            earlier = self._places(group, endings[middle][0], roomy)
            if earlier is None:
                fails, mark = middle, state.occupancy.mark()
            else:
                fits, found = middle, earlier
        return found

    def _at(self, group: Group, time: float, stays: str | None) -> ExpectedPlaces | None:
        roomy = self._roomy()
        self._end([ending for ending in self._endings(stays) if ending[0] <= time])
        return self._places(group, time, roomy)

    def _leaves(self, newcomer: Group, expected: ExpectedPlaces, stays: str | None) -> bool:
        taken = [
            (pod, self._trial.placed[pod.key].place)
            for pod in active_pods(self._state.occupancy, newcomer.key)
            if pod.key in self._trial.placed
        ]
        nodes = {place.node for _, place in taken}
        touched = [node for node in expected.pods_on if node in nodes]
        shared = expected.pools & _pools(place for _, place in taken)
        if not touched and not shared:
            return True
        if not self._is_local(shared, touched) or any(
            pod.needs.pod_affinity or pod.needs.spread
            for pods in ([pod for pod, _ in taken], *expected.pods_on.values())
            for pod in pods
        ):
            return False
        return all(self._has_room(node, expected, stays) for node in touched)

    def _is_local(self, pools: frozenset[PoolId], nodes: Sequence[str]) -> bool:
        """Whether pools are reached from these nodes only."""
        return all(
            set(self._state.occupancy.cluster.nodes_of(pool)) <= set(nodes) for pool in pools
        )

    def _has_room(self, node: str, expected: ExpectedPlaces, stays: str | None) -> bool:
        """Whether a node has room for the pods that are expected there."""
        state, at = self._state, expected.at
        there = [state.occupancy.pods[key] for key in state.occupancy.on_node.get(node, ())]
        self._end([(at, [pod for pod in there if self._ends_by(pod, at, stays)])])
        pods = expected.pods_on[node]
        group = state.occupancy.groups[pods[0].group or ""]
        take = Assigner(self._trial, policy_of(state, group)).take
        return all(isinstance(take(pod, frozenset({node}), ()), Place) for pod in pods)

    def _ends_by(self, pod: Pod, at: float, stays: str | None) -> bool:
        if pod.key not in self._state.occupancy.holds or pod.group in (None, stays):
            return False
        end = self._ends().get(pod.group)
        return end is not None and self._state.now <= end <= at

    def _ends(self) -> Mapping[str, float]:
        """When groups end that run, or start now, as they have said."""
        state = self._state
        started = {state.occupancy.pods[key].group or "" for key in self._trial.placed}
        new = {
            key: end
            for key in started - self._overruns.ends.keys()
            if key in state.occupancy.groups
            and (end := declared_end(state, state.occupancy.groups[key])) is not None
        }
        return {**self._overruns.ends, **new}

    def _endings(self, stays: str | None) -> list[_Ending]:
        """Who ends when, the earliest first.

        Nobody knows when those end that should have ended already.
        """
        state = self._state
        coming = sorted(
            (end, key) for key, end in self._ends().items() if end >= state.now and key != stays
        )
        return [
            (end, pods)
            for end, ending in groupby(coming, itemgetter(0))
            if (pods := [pod for _, key in ending for pod in active_pods(state.occupancy, key)])
        ]

    def _first_enough(self, chunk: PlacementUnit, endings: Sequence[_Ending]) -> int | None:
        """With which ending there are devices enough, wherever they are; None with none of them."""
        wanted = sum(map(self._trial.places.least_devices, chunk.all_pods()))
        free = self._state.most_to_spare()
        for index, (_, pods) in enumerate(endings):
            free += sum(map(self._state.occupancy.device_count, pods))
            if free >= wanted:
                return index
        return None

    def _end(self, endings: Sequence[_Ending]) -> None:
        """Takes pods to have ended. Who asks does not choose how many there are."""
        for _, pods in endings:
            self._trial.places.budget.extend(_EVICTION * len(pods))
            for pod in pods:
                self._state.occupancy.evict(
                    pod.key, here=False
                )  # it does not have to leave any more
                for claim in pod.claims:
                    if claim not in self._state.occupancy.users:
                        self._state.occupancy.hide(claim)

    def _roomy(self) -> frozenset[str]:
        """The nodes where others can start now."""
        nodes, devices = self._state.occupancy.nodes, self._state.occupancy.devices
        return frozenset(name for name in nodes if devices.most_free(name))

    def _places(self, group: Group, at: float, roomy: frozenset[str]) -> ExpectedPlaces | None:
        """The places of a group as the state is, few of them on nodes that are `roomy` now.

        Those who start meanwhile seldom touch such places, and are not looked at twice.
        """
        state = self._state
        chunk = next_chunk(state.occupancy, group)
        if not isinstance(chunk, PlacementUnit):
            return ExpectedPlaces(at, {}, frozenset())  # it needs none
        taker = Assigner(self._trial, policy_of(state, group), _unknown)
        left_out = roomy

        def take(
            pod: Pod, within: frozenset[str] | None, avoided: Container[str]
        ) -> Place | Reason:
            nonlocal left_out
            if left_out:
                place = taker.take(pod, within, _Either(left_out, avoided))
                if isinstance(place, Place):
                    return place
                left_out = frozenset()
            return taker.take(pod, within, avoided)

        mark = state.occupancy.mark()
        taken = Gang(self._trial, take).place(chunk)
        state.occupancy.rollback(mark)
        if not isinstance(taken, Sequence):
            return None
        pods_on: dict[str, list[Pod]] = {}
        for found in taken:
            pods_on.setdefault(found.place.node, []).append(found.pod)
        return ExpectedPlaces(at, pods_on, _pools(found.place for found in taken))


@dataclass(frozen=True, slots=True)
class _Either:
    """What is in one container or in the other."""

    first: Container[str]
    second: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.first or name in self.second


def _unknown(pod: Pod, _: frozenset[str] | None) -> Reason:
    """No reason: nobody is told why there is no place later on."""
    return NoRoom(pod.key, 0, ())


def _pools(places: Iterable[Place]) -> frozenset[PoolId]:
    """The pools of the devices that places have."""
    return frozenset(
        PoolId(result.driver, result.pool)
        for place in places
        for _, allocation in place.allocations
        for result in allocation.devices.results
    )
