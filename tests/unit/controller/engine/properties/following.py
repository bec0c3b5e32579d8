"""A state that follows a cluster by events, and what can be observed of a state."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Final

from carina_dra.allocator.usage import PoolId
from carina_dra.placement.cluster.card import PartKind
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State

_KINDS: Final[Sequence[PartKind]] = (("counter", "slices"), ("capacity", "memory"))
"""Of what the cards of random clusters have."""


def follow(state: State, before: Snapshot, after: Snapshot, rng: Random) -> None:
    """Applies the changes between two snapshots, in any order; then the time, and the memory."""
    events = list(_events(state, before, after))
    rng.shuffle(events)
    for event in events:
        event()
    state.advance(after.now)


def _events(state: State, before: Snapshot, after: Snapshot) -> Iterator[Callable[[], object]]:
    old_nodes = {one.name: one for one in before.nodes}
    new_nodes = {one.name: one for one in after.nodes}
    yield from (partial(state.put_node, one) for one in after.nodes)
    yield from (partial(state.remove_node, name) for name in old_nodes.keys() - new_nodes.keys())
    old_groups, new_groups = ({one.key for one in each.groups} for each in (before, after))
    yield from (partial(state.put_group, one) for one in after.groups)
    yield from (partial(state.remove_group, key) for key in sorted(old_groups - new_groups))
    old_pods, new_pods = ({one.key for one in each.pods} for each in (before, after))
    yield from (partial(state.put_pod, one) for one in after.pods)
    yield from (partial(state.remove_pod, key) for key in sorted(old_pods - new_pods))
    old_claims, new_claims = ({one.key for one in each.claims} for each in (before, after))
    yield from (partial(state.put_claim, one) for one in after.claims)
    yield from (partial(state.remove_claim, key) for key in sorted(old_claims - new_claims))
    if before.queues != after.queues:
        yield partial(state.put_queues, after.queues)
    if before.slices != after.slices:
        yield from (partial(state.put_devices, one) for one in after.slices)
        kept = {one.metadata.name for one in after.slices}
        yield from (
            partial(state.remove_devices, one)
            for one in before.slices
            if one.metadata.name not in kept
        )
    if before.classes != after.classes:
        yield from (partial(state.put_devices, one) for one in after.classes)
        known = {one.metadata.name for one in after.classes}
        yield from (
            partial(state.remove_devices, one)
            for one in before.classes
            if one.metadata.name not in known
        )
    yield partial(state.put_budgets, after.budgets)


def observe(state: State) -> dict[str, object]:
    """All that a decision may depend on, without the order in which it came about."""
    pools = {
        PoolId(one.spec.driver, one.spec.pool.name)
        for one in state.occupancy.cluster._slices.values()
    }
    return {
        "holds": dict(state.occupancy.holds),
        "on node": _members(state.occupancy.on_node),
        "leaving": _members(state.occupancy.leaving),
        "nominated": _members(state.occupancy.nominated),
        "users": _members(state.occupancy.users),
        "leavers": _members(state.occupancy._leavers),
        "referrers": _members(state.occupancy.referring),
        "assigned": dict(state.occupancy._assigned),
        "charges": {claim: dict(of) for claim, of in state.occupancy._charges.items()},
        "requests": dict(state.requests._of_pods),
        "claim requests": dict(state.requests._of_claims),
        "allocated": dict(state.occupancy.accounts.allocated),
        "firm": dict(state.occupancy.accounts.firm),
        "requested": dict(state.occupancy.accounts.requested),
        "uncounted": dict(state.occupancy.accounts.uncounted),
        "budgets": dict(state.occupancy.budgets),
        "members": {
            key: {
                "by set": {name: set(pods) for name, pods in of.by_set.items()},
                "pending": {name: list(pods) for name, pods in of.pending.items()},
                "active": {name: list(pods) for name, pods in of.active.items()},
                "nodes": {name: dict(nodes) for name, nodes in of.nodes.items()},
                "nominated": dict(of.nominated),
            }
            for key, of in state.occupancy.members.items()
        },
        "waiting": set(state.waiting),
        "rooms": {
            name: (room.cpu, room.memory, room.pods, dict(room.extended), sorted(room.ports))
            for name, room in state.occupancy.rooms.items()
        },
        "capacity": vars(state.occupancy.capacity).copy(),
        "allocations": {
            key: state.occupancy.cluster.allocation(key) for key in state.occupancy.claims
        },
        "usage": {pool: state.occupancy.cluster._holdings.usage(pool) for pool in sorted(pools)},
        "to spare": state.most_to_spare(),
        "parts to spare": [state.spare_parts.most(kind) for kind in _KINDS],
        "free": {name: state.occupancy.devices.most_free(name) for name in state.occupancy.nodes},
        "memory": state.memory,
        "now": state.now,
    }


def _members(index: dict[str, dict[str, None]]) -> dict[str, set[str]]:
    return {key: set(members) for key, members in index.items() if members}
