"""What nodes offer: the pools of their slices, resolved when a node is first looked at.

A pool is resolved once for all nodes that the same slices and devices reach. Everything is kept
until one of the slices changes; a change of taint rules replaces the taints alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import (
    Candidate,
    Pool,
    PoolSlice,
    PoolSlices,
    ReadyPool,
    resolve,
    sort_pools,
)
from carina_dra.allocator.usage import PoolId
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.placement.cluster.reach import Reach
from carina_dra.resource import DeviceTaintRule, ResourceSlice

_Resolved: TypeAlias = tuple[Pool, OfferedPool | None] | None


class Resolution:
    """The pools of a cluster as its nodes see them."""

    def __init__(
        self,
        slices: Mapping[str, ResourceSlice],
        pools: Mapping[PoolId, Collection[str]],
        reach: Reach,
        features: Features,
    ) -> None:
        """`slices` are the cluster's by name, and `pools` has the names of each pool's slices.

        They may change; the methods that begin with `forget` tell of it.
        """
        self._slices = slices
        self._pools = pools
        self._reach = reach
        self._features = features
        self._rules: Sequence[DeviceTaintRule] = ()
        self._prepared: dict[str, PoolSlice] = {}
        self._prepared_before: dict[str, PoolSlice] = {}
        """Slices as they were prepared before taint rules changed."""
        self._slices_of: dict[PoolId, PoolSlices] = {}
        self._resolved: dict[PoolId, dict[object, _Resolved]] = {}
        """Each pool as nodes see it, by which of its slices and devices reach a node."""
        self._resolved_before: dict[PoolId, dict[object, _Resolved]] = {}
        """Pools as they were resolved before taint rules changed: only the taints may differ."""
        self._offers: dict[str, Offer] = {}

    def offer(self, node: Node) -> Offer:
        """The pools of a node.

        Raises:
            AllocationError: a slice's node selector is not valid.
        """
        known = self._offers.get(node.name)
        if known is None:
            known = self._offers[node.name] = self._offer(node)
        return known

    def devices_of(self, pool: PoolId) -> Iterator[Candidate]:
        """The devices of a pool, whichever nodes they reach."""
        for name in self._pools[pool]:
            yield from self._prepare(name).devices

    def forget_node(self, name: str) -> None:
        """A node has changed, or which pools reach it."""
        self._offers.pop(name, None)

    def forget_slice(self, name: str) -> None:
        """A slice has changed or is gone."""
        self._prepared.pop(name, None)
        self._prepared_before.pop(name, None)

    def forget_pool(self, pool: PoolId, nodes: Collection[str] | None) -> None:
        """The slices of a pool have changed, which concerns these nodes; None for all."""
        self._resolved_before.pop(pool, None)
        self._drop(pool, nodes)

    def use_rules(
        self, rules: Sequence[DeviceTaintRule], changed: Mapping[PoolId, Collection[str] | None]
    ) -> None:
        """Takes other taint rules; `changed` has the pools that they may concern, with the nodes.

        The nodes are those of `forget_pool`.
        """
        self._rules = rules
        for pool, nodes in changed.items():
            for name in self._pools[pool]:
                prepared = self._prepared.pop(name, None)
                if prepared is not None:
                    self._prepared_before[name] = prepared
            resolved = self._resolved.get(pool)
            if resolved is not None:
                # What no node has needed since an earlier change of rules is kept too.
                kept = self._resolved_before.get(pool, {})
                self._resolved_before[pool] = kept | resolved
            self._drop(pool, nodes)

    def _drop(self, pool: PoolId, nodes: Collection[str] | None) -> None:
        self._resolved.pop(pool, None)
        self._slices_of.pop(pool, None)
        if nodes is None:
            self._offers.clear()
        else:
            for name in nodes:
                self._offers.pop(name, None)

    def _offer(self, node: Node) -> Offer:
        resolved = [self._resolve(pool, node) for pool in self._reach.pools_of(node)]
        offered = {pool.id: ready for pool, ready in filter(None, resolved) if ready is not None}
        pools = sort_pools(one[0] for one in resolved if one is not None)
        return Offer(pools, tuple(offered[pool.id] for pool in pools if pool.id in offered))

    def _resolve(self, pool: PoolId, node: Node) -> _Resolved:
        slices = self._slices_of.get(pool)
        if slices is None:
            slices = PoolSlices(map(self._prepare, self._pools[pool]), self._features)
            self._slices_of[pool] = slices
        reach = slices.reach_of(node)
        by_reach = self._resolved.setdefault(pool, {})
        if reach not in by_reach:
            found = resolve(slices, node)
            ready = None
            if isinstance(found, ReadyPool):
                before = self._resolved_before.get(pool, {}).pop(reach, None)
                ready = (before and before[1]) or OfferedPool(found, self._features)
                ready.retaint(found)
            by_reach[reach] = None if found is None else (found, ready)
        return by_reach[reach]

    def _prepare(self, name: str) -> PoolSlice:
        known = self._prepared.get(name)
        if known is None:
            before = self._prepared_before.pop(name, None)
            known = (
                PoolSlice.of(self._slices[name], self._rules)
                if before is None
                else before.tainted_by(self._rules)
            )
            self._prepared[name] = known
        return known
