"""The state of a cluster's devices, updated at the cost of what changes.

The state consists of nodes, slices, taint rules and allocated claims. What follows from them for a
node is computed on request, and kept until one of its objects changes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.feasibility import is_feasible
from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.node import Node, selects
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate, Pool
from carina_dra.allocator.taint import may_apply
from carina_dra.allocator.usage import DeviceId, PoolId, Usage
from carina_dra.placement.cluster.attribute_index import AttributeIndex
from carina_dra.placement.cluster.changes import Changes
from carina_dra.placement.cluster.holdings import Holdings
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import NOTHING, OfferedPool, PoolState
from carina_dra.placement.cluster.reach import Reach
from carina_dra.placement.cluster.resolution import Resolution
from carina_dra.resource import (
    Allocation,
    Device,
    DeviceTaintRule,
    NodeSelector,
    OnNode,
    ResourceClaim,
    ResourceSlice,
    ResourceSliceSpec,
)

_POOLS: Final = 64
"""Of more pools whose taints change at once the nodes are not listed as changed."""
_SLICES: Final = 8
"""Of a pool with more slices it is looked up which of them have the devices that are taken."""
_MANY: Final = 256
"""A pool that names or selects more nodes than this is wide, unless each has slices of its own."""

_GONE: Final = 1_024
"""About how many nodes that are gone are remembered as changed."""
_NAMED: Final = 256
"""So many pools are remembered with their devices by name."""
_FEW: Final = 8
"""Pools are few if there is at most one for this many nodes."""


class Cluster:
    """Nodes, the devices that they offer, and which of them are in use."""

    def __init__(self, features: Features = DEFAULT_FEATURES) -> None:
        self.features = features
        self.changed_nodes = Changes[str]()
        """Nodes for which another allocation may follow than before."""
        self.changed_pools = Changes[PoolId]()
        """Wide pools, which reach many nodes, of which devices were taken or given back."""
        self.wide_moment = 0
        """How often the devices that wide pools offer have changed."""
        self.taint_moment = 0
        """How often the taints of too many pools have changed for their nodes to be listed."""
        self._nodes: dict[str, Node] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._pools: dict[PoolId, frozenset[str]] = {}
        """The names of each pool's slices."""
        self._common: dict[PoolId, int] = {}
        """The number of each pool's slices that may matter to several nodes."""
        self._reach = Reach(self._nodes)
        self._wide: set[PoolId] = set()
        self._index = AttributeIndex(self._slices)
        self._holdings = Holdings(self._mark_use)
        self._by_name: dict[PoolId, dict[str, Device]] = {}
        """The devices of the pools that were asked for last, by their names."""
        self._resolution = Resolution(self._slices, self._pools, self._reach, features)
        self._nodes_of: dict[PoolId, Mapping[str, Collection[str | None]]] = {}
        """Of pools with many slices: the nodes whose slices have each device."""

    # Nodes.

    def put_node(self, node: Node) -> None:
        """Adds or updates a node."""
        before = self._nodes.get(node.name)
        if before == node:
            return
        if before is not None:
            self._reach.remove_node(before)
        self._nodes[node.name] = node
        self._reach.put_node(node)
        self._forget(node.name)

    def remove_node(self, name: str) -> None:
        """Removes a node, if it is known."""
        before = self._nodes.pop(name, None)
        if before is not None:
            self._reach.remove_node(before)
            self._forget(name)
            if len(self.changed_nodes) > 2 * len(self._nodes) + _GONE:
                self.changed_nodes.forget_all_but(self._nodes)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    # Slices.

    @property
    def slices(self) -> Mapping[str, ResourceSlice]:
        """The slices by name, also those that no pool uses at present."""
        return self._slices

    @property
    def rules(self) -> Mapping[str, DeviceTaintRule]:
        """The taint rules by name."""
        return self._rules

    def put_slice(self, published: ResourceSlice) -> None:
        """Adds or updates a slice."""
        name = published.metadata.name
        before = self._slices.get(name)
        if before is not None and before.spec == published.spec:
            return
        if before is not None and _pool_of(before) != _pool_of(published):
            self.remove_slice(name)
            before = None
        pool = _pool_of(published)
        if before is not None:
            self._index.remove(before.spec)
            self._common[pool] -= _is_common(before.spec)
        self._index.put(published.spec)
        self._common[pool] = self._common.get(pool, 0) + _is_common(published.spec)
        self._slices[name] = published
        self._by_name.pop(pool, None)
        self._resolution.forget_slice(name)
        node = None if before is None else _only_node(before.spec, published.spec)
        if node is None or pool in self._wide:
            self._set_pool(pool, self._pools.get(pool, frozenset()) | {name})
        else:
            self._change_for(node, pool)

    def remove_slice(self, name: str) -> None:
        """Removes a slice, if it is known."""
        published = self._slices.pop(name, None)
        if published is not None:
            self._index.remove(published.spec)
            self._resolution.forget_slice(name)
            pool = _pool_of(published)
            self._by_name.pop(pool, None)
            self._common[pool] -= _is_common(published.spec)
            self._set_pool(pool, self._pools[pool] - {name})

    def put_rule(self, rule: DeviceTaintRule) -> None:
        """Adds or updates a taint rule."""
        name = rule.metadata.name
        before = self._rules.get(name)
        if before is not None and before.spec == rule.spec:
            return
        self._set_rules({**self._rules, name: rule}, before, rule)

    def remove_rule(self, name: str) -> None:
        """Removes a taint rule, if it is known."""
        before = self._rules.get(name)
        if before is not None:
            kept = {key: rule for key, rule in self._rules.items() if key != name}
            self._set_rules(kept, before)

    # Claims.

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim; its allocated devices are in use."""
        allocation = claim.status.allocation
        if allocation is None:
            self.release(claim.key)
        else:
            self.allocate(claim.key, allocation)

    def allocate(self, claim: str, allocation: Allocation) -> None:
        """Marks devices as used by a claim (`namespace/name`), in place of its previous devices."""
        before = self._holdings.allocation(claim)
        if before == allocation:
            return
        if before is not None:
            self.release(claim)
        self._holdings.allocate(claim, allocation)

    def release(self, claim: str) -> None:
        """Frees the devices of a claim, if it has any; the exact inverse of `allocate`."""
        if self._holdings.allocation(claim) is not None:
            self._holdings.release(claim)

    def allocation(self, claim: str) -> Allocation | None:
        """The allocation of a claim (`namespace/name`), if it has one."""
        return self._holdings.allocation(claim)

    # What follows for a node.

    def state(self, node: str) -> NodeState:
        """The state of a node, as `allocate` takes it.

        Raises:
            AllocationError: a slice's node selector is not valid.
            KeyError: there is no such node.
        """
        return self._state(node, self.offer(node).pools)

    def offer(self, node: str) -> Offer:
        """The pools of a node.

        Raises:
            AllocationError: a slice's node selector is not valid.
            KeyError: there is no such node.
        """
        return self._resolution.offer(self._nodes[node])

    def pool_state(self, offered: OfferedPool) -> PoolState:
        """The devices of a pool, with which are in use."""
        return offered.state(self._holdings.usage(offered.pool.id))

    def touch(self, node: str) -> None:
        """Records that something else of a node has changed, such as its free cpu."""
        if node in self._nodes:
            self.changed_nodes.add(node)

    def fits(self, allocation: Allocation) -> bool:
        """Whether a claim that has nothing could get exactly these devices now, on one node.

        The results count together. Not considered are taints, and whether the claim's requests
        select the devices.
        """
        results = allocation.devices.results
        pools = {PoolId(result.driver, result.pool) for result in results}
        seen = set()
        for node in self._reach.nodes_of_all(pools):
            if not _is_among(self._nodes[node], allocation.node_selector):
                continue
            try:
                offered = [pool for pool in self.offer(node).pools if pool.id in pools]
            except AllocationError:  # the node's allocations fail
                continue
            # Nodes that see the same pools differ in nothing else that matters.
            key = (*map(id, offered), self._nodes[node].declared_features)
            if key not in seen and is_feasible(results, self._state(node, offered)):
                return True
            seen.add(key)
        return False

    def nodes_of(self, pool: PoolId) -> Collection[str]:
        """The nodes that the devices of a pool may reach."""
        reached = self._reach.nodes_of(pool)
        return self._nodes if reached is None else reached

    def nodes_with(self, attributes: Iterable[tuple[str, str]]) -> Collection[str] | None:
        """The nodes that may have a device with these values of attributes; None for too many."""
        fewest = self._index.fewest_pools(attributes)
        if fewest is None or len(fewest) * _FEW > len(self._nodes):
            return None
        names: set[str] = set()
        for pool in fewest:
            reached = self._reach.nodes_of(pool)
            if reached is None:
                return None
            names.update(reached)
        return names

    def is_in_use(self, node: str) -> bool:
        """Whether a device of a pool that names the node is in use."""
        pools = self._reach.pools_naming(node)
        return any(self._holdings.usage(pool) is not NOTHING for pool in pools)

    def is_wide(self, pool: PoolId) -> bool:
        """Whether the pool reaches too many nodes for them to be listed as changed with it."""
        return pool in self._wide

    @property
    def has_wide_pools(self) -> bool:
        """Whether a pool is wide."""
        return bool(self._wide)

    def wide_devices(self) -> Iterator[Candidate]:
        """The devices of the pools that reach many nodes."""
        for pool in self._wide:
            yield from self._resolution.devices_of(pool)

    def _state(self, node: str, pools: Sequence[Pool]) -> NodeState:
        """A node with some of its pools."""
        return NodeState(self._nodes[node], pools, self._usage_of(pools), self.features)

    def _usage_of(self, pools: Iterable[Pool]) -> Usage:
        usages = (self._holdings.usage(pool.id) for pool in pools)
        of_pools = [usage for usage in usages if usage is not NOTHING]
        if len(of_pools) == 1:
            return of_pools[0]
        return Usage(
            dict(chain.from_iterable(usage.dedicated.items() for usage in of_pools)),
            dict(chain.from_iterable(usage.shared.items() for usage in of_pools)),
        )

    # What a change concerns.

    def _set_rules(
        self, rules: dict[str, DeviceTaintRule], *changed: DeviceTaintRule | None
    ) -> None:
        self._rules = dict(sorted(rules.items()))  # the order of arrival must not matter
        concerned = [
            pool
            for pool in self._pools
            if any(rule and may_apply(rule, pool.driver, pool.pool) for rule in changed)
        ]
        self._resolution.use_rules(
            tuple(self._rules.values()), {pool: self._nodes_by(pool) for pool in concerned}
        )
        if len(concerned) > _POOLS:
            self.taint_moment += 1
        else:
            for pool in concerned:
                self._mark(pool)

    def _set_pool(self, pool: PoolId, names: frozenset[str]) -> None:
        if not names > self._pools.get(pool, frozenset()):
            self._forget_pool(pool)  # it may reach nodes that it will not reach any more
        if names:
            self._pools[pool] = names
        else:
            del self._pools[pool], self._common[pool]
        self._reach.put_pool(pool, (self._slices[name].spec for name in names))
        if self._reaches_many(pool, self._reach.nodes_of(pool)):
            self._wide.add(pool)
        else:
            self._wide.discard(pool)
        self._forget_pool(pool)

    def _change_for(self, node: str, pool: PoolId) -> None:
        """The devices of a pool have changed for one node, and for no other."""
        self._nodes_of.pop(pool, None)
        self._resolution.forget_pool(pool, [node])
        self._mark_node(node)

    def _reaches_many(self, pool: PoolId, reached: Collection[str] | None) -> bool:
        """Whether a change of a pool may concern many nodes; `reached` is None for all."""
        if reached is None:
            return True
        return len(reached) > _MANY and self._common.get(pool, 0) > 0

    def published(self, device: DeviceId) -> Device | None:
        """A device as it is published, if it is."""
        pool = PoolId(device.driver, device.pool)
        known = self._by_name.get(pool)
        if known is None:
            if len(self._by_name) >= _NAMED:
                self._by_name.clear()
            known = self._by_name[pool] = {}
            for published in self.slices_of(pool):
                for candidate in published.spec.devices:
                    known.setdefault(candidate.name, candidate)
        return known.get(device.device)

    def slices_of(self, pool: PoolId) -> tuple[ResourceSlice, ...]:
        """The published slices of a pool."""
        return tuple(self._slices[name] for name in sorted(self._pools.get(pool, ())))

    def _mark_use(self, pool: PoolId, devices: Collection[str]) -> None:
        """Devices of a pool have been taken or given back."""
        names = self._pools.get(pool, ())
        if len(names) <= _SLICES or any(self._slices[name].spec.shared_counters for name in names):
            self._mark(pool)
            return
        nodes_of = self._nodes_of.get(pool)
        if nodes_of is None:
            nodes_of = self._nodes_of[pool] = self._nodes_by_device(pool)
        nodes = {node for device in devices for node in nodes_of.get(device, ())}
        if None in nodes:
            self._mark(pool)
        for node in filter(None, nodes):
            self._mark_node(node)

    def _nodes_by_device(self, pool: PoolId) -> Mapping[str, Collection[str | None]]:
        """The nodes whose slices have each device; None for a slice of other nodes."""
        nodes_of: dict[str, list[str | None]] = {}
        for name in self._pools[pool]:
            spec = self._slices[name].spec
            node = spec.nodes.node_name if isinstance(spec.nodes, OnNode) else None
            for device in spec.devices:
                nodes_of.setdefault(device.name, []).append(node)
        return nodes_of

    def _mark(self, pool: PoolId) -> None:
        """The devices of a pool have changed, or which of them are in use."""
        reached = self._reach.nodes_of(pool)
        if pool not in self._wide and self._reaches_many(pool, reached):
            self._wide.add(pool)  # nodes have come after its slices, or have got its labels
            self.wide_moment += 1
        if pool in self._wide:
            self.changed_pools.add(pool)
            reached = set(self._reach.named_by(pool))
        for name in reached or ():
            self._mark_node(name)

    def _mark_node(self, name: str) -> None:
        if name in self._nodes:
            self.changed_nodes.add(name)

    def _forget_pool(self, pool: PoolId) -> None:
        """The devices that a pool offers have changed."""
        if pool in self._wide:
            self.wide_moment += 1
        self._nodes_of.pop(pool, None)
        self._resolution.forget_pool(pool, self._nodes_by(pool))
        self._mark(pool)

    def _nodes_by(self, pool: PoolId) -> Collection[str] | None:
        """The nodes that a pool may reach; None for all."""
        return None if pool in self._wide else self._reach.nodes_of(pool)

    def _forget(self, node: str) -> None:
        """The node itself has changed."""
        self._resolution.forget_node(node)
        self.changed_nodes.add(node)


def _is_among(node: Node, selector: NodeSelector | None) -> bool:
    """Whether an allocation can be used on a node; not if its selector is not valid."""
    try:
        return selector is None or selects(selector, node)
    except AllocationError:
        return False


def _pool_of(published: ResourceSlice) -> PoolId:
    return PoolId(published.spec.driver, published.spec.pool.name)


def _is_common(spec: ResourceSliceSpec) -> bool:
    """Whether a slice may matter to several nodes: it reaches them, or they share counters."""
    return not isinstance(spec.nodes, OnNode) or _has_counters(spec)


def _has_counters(spec: ResourceSliceSpec) -> bool:
    return bool(spec.shared_counters) or any(one.consumes_counters for one in spec.devices)


def _only_node(before: ResourceSliceSpec, after: ResourceSliceSpec) -> str | None:
    """The one node for which something changes if a slice is replaced; None if others may too."""
    if before.pool != after.pool or before.nodes != after.nodes:
        return None
    if _is_common(before) or _is_common(after) or not isinstance(after.nodes, OnNode):
        return None
    return after.nodes.node_name
