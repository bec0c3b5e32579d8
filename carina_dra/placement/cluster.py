"""The state of a cluster's devices, updated at the cost of what changes.

The state consists of nodes, slices, taint rules and allocated claims. What follows from them for a
node is computed on request, and kept until one of its objects changes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.group import groups
from carina_dra.allocator.node import Node
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import (
    IncompletePool,
    InvalidPool,
    Pool,
    PoolSlice,
    ReadyPool,
    resolve,
    sort_pools,
)
from carina_dra.allocator.taint import may_apply
from carina_dra.allocator.usage import PoolId, Usage
from carina_dra.placement.shape import ShapedGroup, Shapes
from carina_dra.resource import (
    Allocation,
    DeviceResult,
    DeviceTaintRule,
    OnNode,
    ResourceClaim,
    ResourceSlice,
)

_NOTHING = Usage()


@dataclass(frozen=True, slots=True, eq=False)
class _Offer:
    """The devices that a node offers."""

    pools: tuple[Pool, ...]
    """In the order in which upstream tries them."""
    groups: tuple[ShapedGroup, ...]
    others: tuple[object, ...]
    """What distinguishes the node, besides its groups of devices."""


class Cluster:
    """Nodes, the devices that they offer, and which of them are in use."""

    def __init__(self, features: Features = DEFAULT_FEATURES) -> None:
        self.features = features
        self.shapes = Shapes()
        self._nodes: dict[str, Node] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._pools: dict[PoolId, tuple[PoolSlice, ...]] = {}
        self._pools_of_node: dict[str, frozenset[PoolId]] = {}
        """Pools with a slice that names the node."""
        self._shared_pools: set[PoolId] = set()
        """Pools with a slice that may reach any node."""
        self._allocations: dict[str, tuple[DeviceResult, ...]] = {}
        self._usage: dict[PoolId, Usage] = {}
        self._offers: dict[str, _Offer] = {}
        self._shape: dict[str, int] = {}
        self._shape_version = self.shapes.version
        self._unshaped: set[str] = set()
        self._nodes_of_shape: dict[int, dict[str, None]] = {}

    def copy(self) -> "Cluster":
        """An independent copy for trying changes: neither cluster sees the other's changes.

        Takes time by the number of nodes, slices, claims and known shapes, not of devices.
        """
        copied = Cluster(self.features)
        copied.shapes = self.shapes.copy()
        copied._nodes = dict(self._nodes)
        copied._slices = dict(self._slices)
        copied._rules = dict(self._rules)
        copied._pools = dict(self._pools)
        copied._pools_of_node = dict(self._pools_of_node)
        copied._shared_pools = set(self._shared_pools)
        copied._allocations = dict(self._allocations)
        copied._usage = dict(self._usage)
        copied._offers = dict(self._offers)
        copied._shape = dict(self._shape)
        copied._shape_version = self._shape_version
        copied._unshaped = set(self._unshaped)
        copied._nodes_of_shape = {
            shape: dict(nodes) for shape, nodes in self._nodes_of_shape.items()
        }
        return copied

    # Nodes.

    def put_node(self, node: Node) -> None:
        """Adds or updates a node."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._forget(node.name)

    def remove_node(self, name: str) -> None:
        """Removes a node, if it is known."""
        if self._nodes.pop(name, None) is not None:
            self._forget(name)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    # Slices.

    def put_slice(self, published: ResourceSlice) -> None:
        """Adds or updates a slice."""
        self.remove_slice(published.metadata.name)
        prepared = PoolSlice.of(published, tuple(self._rules.values()))
        self.shapes.learn(prepared.devices)
        self._slices[prepared.name] = published
        self._set_pool(prepared.pool, (*self._pools.get(prepared.pool, ()), prepared))

    def remove_slice(self, name: str) -> None:
        """Removes a slice, if it is known."""
        published = self._slices.pop(name, None)
        if published is not None:
            pool = PoolId(published.spec.driver, published.spec.pool.name)
            kept = (pool_slice for pool_slice in self._pools[pool] if pool_slice.name != name)
            self._set_pool(pool, tuple(kept))

    def put_rule(self, rule: DeviceTaintRule) -> None:
        """Adds or updates a taint rule."""
        self._set_rules({**self._rules, rule.metadata.name: rule}, rule)

    def remove_rule(self, name: str) -> None:
        """Removes a taint rule, if it is known."""
        rule = self._rules.get(name)
        if rule is not None:
            self._set_rules({key: kept for key, kept in self._rules.items() if key != name}, rule)

    def _set_rules(self, rules: dict[str, DeviceTaintRule], changed: DeviceTaintRule) -> None:
        concerned = (self._rules.get(changed.metadata.name), changed)
        self._rules = dict(sorted(rules.items()))  # the order of arrival must not matter
        for published in list(self._slices.values()):
            spec = published.spec
            if any(
                may_apply(rule, spec.driver, spec.pool.name)
                for rule in concerned
                if rule is not None
            ):
                self.put_slice(published)

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
        results = allocation.devices.results
        if self._allocations.get(claim) != results:
            self.release(claim)
            self._allocations[claim] = results
            self._use(results, Usage.plus)

    def release(self, claim: str) -> None:
        """Frees the devices of a claim, if it has any; the exact inverse of `allocate`."""
        results = self._allocations.pop(claim, None)
        if results is not None:
            self._use(results, Usage.minus)

    # Derived state.

    def state(self, node: str) -> NodeState:
        """The state of a node, as `allocate` takes it.

        Raises:
            AllocationError: a slice's node selector is not valid.
        """
        offer = self._offer(node)
        return NodeState(self._nodes[node], offer.pools, self._usage_of(offer.pools), self.features)

    def by_shape(self) -> Mapping[int, Mapping[str, None]]:
        """The nodes of each shape; see `Shapes`.

        Raises:
            AllocationError: a slice's node selector is not valid.
        """
        self.shapes.tidy()
        if self._shape_version != self.shapes.version:
            self._shape_version = self.shapes.version
            self._offers.clear()
            self._shape.clear()
            self._nodes_of_shape.clear()
            self._unshaped = set(self._nodes)
        for name in sorted(self._unshaped):
            offer = self._offer(name)
            usage = self._usage_of(offer.pools)
            shape = self.shapes.of_node(offer.groups, offer.others, usage)
            self._shape[name] = shape
            self._nodes_of_shape.setdefault(shape, {})[name] = None
        self._unshaped.clear()
        return self._nodes_of_shape

    def _offer(self, node: str) -> _Offer:
        known = self._offers.get(node)
        if known is None:
            known = self._offers[node] = self._of_node(self._nodes[node])
        return known

    def _usage_of(self, pools: Iterable[Pool]) -> Usage:
        of_pools = [self._usage[pool.id] for pool in pools if pool.id in self._usage]
        if len(of_pools) == 1:
            return of_pools[0]
        return Usage(
            dict(chain.from_iterable(usage.dedicated.items() for usage in of_pools)),
            dict(chain.from_iterable(usage.shared.items() for usage in of_pools)),
        )

    def _of_node(self, node: Node) -> _Offer:
        names = self._pools_of_node.get(node.name, frozenset()) | self._shared_pools
        resolved = (resolve(self._pools[name], node, self.features) for name in names)
        pools = sort_pools(pool for pool in resolved if pool is not None)
        ready = [pool for pool in pools if isinstance(pool, ReadyPool)]
        return _Offer(
            pools,
            tuple(self.shapes.group(group) for pool in ready for group in groups(pool)),
            others=(
                frozenset(pool.id.driver for pool in pools if isinstance(pool, IncompletePool)),
                # Errors name the pool and what is wrong with it.
                frozenset(pool for pool in pools if isinstance(pool, InvalidPool)),
                node.declared_features,
            ),
        )

    def _set_pool(self, pool: PoolId, slices: tuple[PoolSlice, ...]) -> None:
        before = set(self._nodes_with(pool))
        for name in self._named_by(pool):
            self._pools_of_node[name] -= {pool}
            if not self._pools_of_node[name]:
                del self._pools_of_node[name]
        self._pools[pool] = slices
        for name in self._named_by(pool):
            self._pools_of_node[name] = self._pools_of_node.get(name, frozenset()) | {pool}
        if any(not isinstance(pool_slice.spec.nodes, OnNode) for pool_slice in slices):
            self._shared_pools.add(pool)
        else:
            self._shared_pools.discard(pool)
        if not slices:
            del self._pools[pool]
        for name in before.union(self._nodes_with(pool)):
            self._forget(name)

    def _named_by(self, pool: PoolId) -> set[str]:
        """The nodes that slices of the pool name."""
        slices = self._pools.get(pool, ())
        nodes = (pool_slice.spec.nodes for pool_slice in slices)
        return {on_node.node_name for on_node in nodes if isinstance(on_node, OnNode)}

    def _nodes_with(self, pool: PoolId) -> Collection[str]:
        """The nodes that slices of the pool may reach."""
        return self._nodes if pool in self._shared_pools else self._named_by(pool)

    def _use(
        self,
        results: Iterable[DeviceResult],
        change: Callable[[Usage, Iterable[DeviceResult]], Usage],
    ) -> None:
        by_pool: dict[PoolId, list[DeviceResult]] = {}
        for result in results:
            by_pool.setdefault(PoolId(result.driver, result.pool), []).append(result)
        for pool, of_pool in by_pool.items():
            self._usage[pool] = change(self._usage.get(pool, _NOTHING), of_pool)
            if self._usage[pool] == _NOTHING:
                del self._usage[pool]
            for name in self._nodes_with(pool):
                self._reshape(name)

    def _forget(self, node: str) -> None:
        """The devices that the node offers have changed."""
        self._offers.pop(node, None)
        self._reshape(node)

    def _reshape(self, node: str) -> None:
        """The devices in use on the node have changed."""
        shape = self._shape.pop(node, None)
        if shape is not None:
            del self._nodes_of_shape[shape][node]
            if not self._nodes_of_shape[shape]:
                del self._nodes_of_shape[shape]
        if node in self._nodes:
            self._unshaped.add(node)
        else:
            self._unshaped.discard(node)
