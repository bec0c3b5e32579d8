"""A simple engine for tests of the simulator: groups in the order of their age, first fit.

It evicts at random where a test asks for that, so that the simulator has all kinds of events.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from controller.engine.model.group import Group
from controller.engine.model.plan import Action, CarriedOver, Eviction, Plan, Start
from controller.engine.model.pod import Pending, Placed
from controller.engine.model.reason import NoRoom, Reason
from controller.engine.simulate.simulator import Decider
from controller.engine.state.state import State


def first_fit(state: State) -> Plan:
    """Starts what fits, and evicts nobody."""
    starts: list[Start] = []
    waiting: dict[str, tuple[Reason, ...]] = {}
    start = state.occupancy.mark()
    placer = Placer(state.occupancy.cluster, Policy(), new_share_id=_counter())
    groups = (state.occupancy.groups[key] for key in state.waiting)
    for group in sorted(groups, key=lambda group: (-group.priority, group.created, group.key)):
        mark = state.occupancy.mark()
        started = _place(state, placer, group)
        if isinstance(started, str):
            state.occupancy.rollback(mark)
            waiting[group.key] = (NoRoom(started, len(state.occupancy.nodes), ()),)
        else:
            starts += started
    state.occupancy.rollback(start)
    return Plan(tuple(starts), (), (), waiting, {}, CarriedOver(), (), len(starts), None)


def evicting(seed: int) -> Decider:
    """First fit that also evicts pods at random, for a while."""
    random = Random(seed)

    def decide(state: State) -> Plan:
        plan = first_fit(state)
        placed = [pod for pod in state.occupancy.pods.values() if isinstance(pod.state, Placed)]
        if not placed or state.now > 500 or random.random() < 0.7:
            return plan
        chosen = random.sample(sorted(placed, key=lambda pod: pod.key), 1 + len(placed) // 3)
        evictions = tuple(
            Eviction(
                pod.key, pod.state.node, random.choice([Action.RECLAIM, Action.STALE]), "a/x", 30
            )
            for pod in chosen
            if isinstance(pod.state, Placed)
        )
        return replace(plan, evictions=evictions)

    return lambda state: partial(decide, state)


FIRST_FIT: Final[Decider] = lambda state: partial(first_fit, state)  # noqa: E731


def _place(state: State, placer: Placer, group: Group) -> list[Start] | str:
    """The pods of a group that wait, each on a node; or the one that has none."""
    started = []
    pending = state.occupancy.members[group.key].pending.values()
    for key in sorted(key for pods in pending for key in pods):
        pod = state.occupancy.pods[key]
        assert isinstance(pod.state, Pending)
        nodes = [
            name
            for name, room in state.occupancy.rooms.items()
            if room.lacks(pod.needs) is None and not state.occupancy.leaving.get(name)
        ]
        claims = [state.occupancy.claims[claim] for claim in pod.claims]
        if claims:
            request = PlacementRequest.of(
                claims, state.occupancy.devices.classes, state.occupancy.cluster.features
            )
            found = placer.place(request, nodes)
            if not isinstance(found, PlacedClaims):
                return key
            allocations = tuple(
                zip([claim.key for claim in claims], found.allocated.allocations, strict=True)
            )
            start = Start(key, found.node, allocations)
        elif nodes:
            start = Start(key, nodes[0], ())
        else:
            return key
        state.occupancy.place(key, start.node, start.allocations)
        started.append(start)
    return started


def _counter() -> Callable[[], str]:
    shares = iter(range(10**9))
    return lambda: f"share-{next(shares)}"
