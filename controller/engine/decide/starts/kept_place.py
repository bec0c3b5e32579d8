"""Keeps the places of pods that move for the pods that replace them, which do not exist yet.

The owner of an evicted pod makes another one under another name, after a while. Until then node and
devices count as taken. Whether a pod is the replacement follows from its line: it has the same
owner and template.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from carina_dra.resource import Allocation
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.trial import Decided, Trial
from controller.engine.decide.queues.capacity import balance, excess
from controller.engine.decide.starts.promise import keep_all
from controller.engine.model.plan import Eviction, KeptPlace, Nomination
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.state import State


def keep_places(trial: Trial, isolation: Isolation) -> tuple[KeptPlace, ...]:
    """Gives places that are kept to the pods that have come for them, and keeps the others."""
    state = trial.state
    lasting = list(filter(None, (_lasting(state, kept) for kept in state.memory.kept_places)))
    if not lasting:
        return ()
    pairs = _pairs(state, lasting)
    by_group: dict[str, list[tuple[KeptPlace, Pod]]] = {}
    for kept, pod in pairs:
        by_group.setdefault(pod.group or "", []).append((kept, pod))
    taken: set[str] = set()
    for key in sorted(by_group.keys() - isolation.set_aside.keys()):
        group, nominations = state.occupancy.groups[key], [_for(*pair) for pair in by_group[key]]
        isolation.run_within_limit(group, partial(keep_all, trial, group, nominations))
        taken.update(kept.pod for kept, pod in by_group[key] if pod.key in trial.placed)
    left = [kept for kept in lasting if kept.pod not in taken]
    return tuple(
        kept for kept in _affordable(state.occupancy, left) if _keep(state.occupancy, kept)
    )


def places_to_keep(
    occupancy: Occupancy, placed: Iterable[tuple[str, Decided]], evictions: Iterable[Eviction]
) -> Iterator[KeptPlace]:
    """The places that evicted pods have got in the same plan, if their owners replace them."""
    evicted = {eviction.pod for eviction in evictions}
    for key, decided in placed:
        pod = occupancy.pods[key]
        if key in evicted and pod.line:
            allocations = tuple(
                (pod.claims.index(claim), allocation)
                for claim, allocation in decided.place.allocations
            )
            group = None if pod.group is None else occupancy.groups.get(pod.group)
            yield KeptPlace(
                key,
                pod.line,
                pod.pod_set,
                decided.place.node,
                pod.needs,
                allocations,
                queue="" if group is None else group.queue,
                preemptible=not pod.firm and (group is None or group.preemptible),
            )


def _affordable(occupancy: Occupancy, places: Iterable[KeptPlace]) -> list[KeptPlace]:
    """The places for which queues have room in their limits and quotas, all of them together.

    A queue that has given the room to others meanwhile could not start the replacement either.
    """
    affordable, mark = [], occupancy.mark()
    for kept in places:
        if kept.queue not in occupancy.tree.paths:
            affordable.append(kept)
            continue
        before, place_mark = balance(occupancy, kept.queue), occupancy.mark()
        allocations = [allocation for _, allocation in kept.allocations]
        needs = occupancy.needs_on(kept.needs, kept.node)
        occupancy.charge_place(kept.queue, needs, allocations, preemptible=kept.preemptible)
        if excess(occupancy, before) is None:
            affordable.append(kept)
        else:
            occupancy.rollback(place_mark)
    occupancy.rollback(mark)
    return affordable


def _lasting(state: State, kept: KeptPlace) -> KeptPlace | None:
    """A place that is still kept; its time runs from when the pod that moves is gone."""
    if kept.queue and not state.occupancy.tree.takes_work(kept.queue):
        return None  # the replacement could not start
    pod = state.occupancy.pods.get(kept.pod)
    if pod is not None and isinstance(pod.state, Placed):
        return None  # it has not been evicted after all
    if kept.node not in state.occupancy.rooms:
        return None
    if pod is not None and isinstance(pod.state, Evicting) and not pod.state.stuck:
        return kept
    if kept.until is None:
        return replace(kept, until=state.now + state.settings.move_seconds)
    return kept if kept.until > state.now else None


def _pairs(state: State, places: Iterable[KeptPlace]) -> Iterator[tuple[KeptPlace, Pod]]:
    """Each place with a pod that waits and may have it."""
    by_line: dict[tuple[str, str], list[KeptPlace]] = {}
    for kept in reversed(list(places)):
        by_line.setdefault((kept.line, kept.pod_set), []).append(kept)
    for group in sorted(state.waiting):
        if not by_line:
            return
        known = state.occupancy.groups.get(group)
        if known is None or not state.occupancy.tree.takes_work(known.queue):
            continue
        for pods in state.occupancy.members[group].pending.values():
            for key in pods:
                pod = state.occupancy.pods[key]
                found = by_line.get((pod.line, pod.pod_set))
                if found and state.occupancy.is_pending(key):
                    yield found.pop(), pod
                    if not found:
                        del by_line[pod.line, pod.pod_set]


def _for(kept: KeptPlace, pod: Pod) -> Nomination:
    """The place for the pod that has come."""
    allocations = tuple(
        (pod.claims[index], allocation)
        for index, allocation in kept.allocations
        if index < len(pod.claims)
    )
    return Nomination(pod.key, kept.node, allocations)


def _keep(occupancy: Occupancy, kept: KeptPlace) -> bool:
    """Has nobody else get a place; false if others have it already."""
    if occupancy.rooms[kept.node].lacks(kept.needs) is not None:
        return False
    mark = occupancy.mark()
    for index, allocation in kept.allocations:
        if not _reserve(occupancy, kept.node, f"{kept.pod} moves: {index}", allocation):
            occupancy.rollback(mark)
            return False
    occupancy.keep_room(kept.node, kept.needs)
    return True


def _reserve(occupancy: Occupancy, node: str, holder: str, allocation: Allocation) -> bool:
    if not occupancy.cluster.fits(allocation):
        return False
    occupancy.keep_devices(node, holder, allocation)
    return True
