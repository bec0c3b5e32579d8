"""Resolves the resource pools of a node from the published slices.

The slices of a pool's newest generation count, once all of them are published. (Source: KEP-4381,
and `GatherPools` of k8s.io/dynamic-resource-allocation v0.37.0.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TypeAlias

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node, reaches
from carina_dra.allocator.taint import added_by_rules
from carina_dra.allocator.usage import DeviceAmounts, DeviceId, PoolId, Usage
from carina_dra.cel import CelDevice
from carina_dra.resource import (
    CounterSet,
    Device,
    DeviceTaintRule,
    OnNode,
    PerDevice,
    ResourceSlice,
    ResourceSliceSpec,
)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device of a pool."""

    id: DeviceId
    device: Device
    """The published device, with the taints of DeviceTaintRules added."""
    slice: ResourceSliceSpec
    view: CelDevice
    """The device as selectors see it."""
    here: bool = True
    """Whether it is usable on the node. A slice of the node may have devices of other nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolSlice:
    """A slice, prepared once for all nodes."""

    name: str
    spec: ResourceSliceSpec
    devices: tuple[Candidate, ...]
    consumers: tuple[Candidate, ...]
    """The devices that consume counters."""
    has_groups: bool
    """Whether a device has compatibility groups."""

    @property
    def counts(self) -> bool:
        """Whether it matters to the counters of other slices of its pool."""
        return bool(self.consumers or self.spec.shared_counters)

    @classmethod
    def of(cls, published: ResourceSlice, rules: Sequence[DeviceTaintRule] = ()) -> "PoolSlice":
        """Prepares a slice, and adds the taints of the rules to its devices."""
        spec = published.spec
        devices = tuple(
            Candidate(
                id=DeviceId(spec.driver, spec.pool.name, device.name),
                device=device,
                slice=spec,
                view=CelDevice.of(spec.driver, device),
            )
            for device in spec.devices
        )
        consumers = tuple(candidate for candidate in devices if candidate.device.consumes_counters)
        has_groups = any(
            consumption.compatibility_groups
            for consumer in consumers
            for consumption in consumer.device.consumes_counters
        )
        prepared = cls(published.metadata.name, spec, devices, consumers, has_groups)
        return prepared.tainted_by(rules) if rules else prepared

    def tainted_by(self, rules: Sequence[DeviceTaintRule]) -> "PoolSlice":
        """The slice with the taints of these rules in place of those of other rules."""
        devices = tuple(
            _tainted(candidate, published, rules)
            for candidate, published in zip(self.devices, self.spec.devices, strict=True)
        )
        consumers = tuple(one for one in devices if one.device.consumes_counters)
        return replace(self, devices=devices, consumers=consumers)

    @property
    def pool(self) -> PoolId:
        """The pool of the slice."""
        return PoolId(self.spec.driver, self.spec.pool.name)


@dataclass(frozen=True, eq=False)
class ReadyPool:
    """A pool that devices can be allocated from."""

    id: PoolId
    devices: tuple[Candidate, ...]
    """The devices of slices that reach the node, in the order in which upstream tries them."""
    elsewhere: tuple[Candidate, ...]
    """The devices of the other slices that consume counters."""
    counters: Mapping[str, DeviceAmounts]
    """The total of each counter in billionths, by counter set."""

    @cached_property
    def positions(self) -> Mapping[DeviceId, int]:
        """The index of each of `devices`."""
        return {candidate.id: index for index, candidate in enumerate(self.devices)}

    @cached_property
    def may_gain(self) -> bool:
        """Whether a device consumes less than nothing, and so leaves more to others.

        The API does not forbid it. Then claims may be possible though a part of them alone is not.
        """
        return any(
            counter.value.nanos < 0
            for candidate in self.devices
            for consumption in candidate.device.consumes_counters
            for counter in consumption.counters.values()
        )

    def in_use(self, usage: Usage) -> Iterator[Candidate]:
        """The devices in use, in their order; those elsewhere that consume counters come last."""
        positions = self.positions
        here = positions.keys() & usage.dedicated.keys()
        if usage.shared:
            here |= positions.keys() & usage.shared.keys()
        for index in sorted(positions[device] for device in here):
            yield self.devices[index]
        for candidate in self.elsewhere:
            if candidate.id in usage:
                yield candidate


@dataclass(frozen=True, slots=True)
class IncompletePool:
    """A pool with missing slices, which its driver has not published yet."""

    id: PoolId


@dataclass(frozen=True, slots=True)
class InvalidPool:
    """A pool whose slices contradict each other."""

    id: PoolId
    reason: str


Pool: TypeAlias = ReadyPool | IncompletePool | InvalidPool


def _tainted(
    candidate: Candidate, published: Device, rules: Sequence[DeviceTaintRule]
) -> Candidate:
    """The published device with the taints of the rules; itself if it has the same already."""
    added = added_by_rules(rules, *candidate.id)
    taints = (*published.taints, *added)
    if candidate.device.taints == taints:
        return candidate
    return replace(candidate, device=replace(published, taints=taints) if added else published)


class PoolSlices:
    """All slices of a pool, arranged so that a node is resolved from those that concern it."""

    def __init__(self, slices: Iterable[PoolSlice], features: Features) -> None:
        """`slices` is not empty."""
        self.features = features
        self._known = sorted(slices, key=lambda pool_slice: pool_slice.name)
        self._newest = max(pool_slice.spec.pool.generation for pool_slice in self._known)
        self._of_node: dict[str, list[PoolSlice]] = {}
        self._of_nodes: list[PoolSlice] = []
        """The slices that do not name one node."""
        self._sizes: dict[int, int] = {}
        """The number of slices of each generation, without those that are ignored."""
        self._counting: dict[int, list[PoolSlice]] = {}
        """Those of them that have counters or consume them."""
        for pool_slice in self._known:
            nodes = pool_slice.spec.nodes
            if isinstance(nodes, OnNode):
                self._of_node.setdefault(nodes.node_name, []).append(pool_slice)
            else:
                self._of_nodes.append(pool_slice)
            if _is_supported(pool_slice, features):
                generation = pool_slice.spec.pool.generation
                self._sizes[generation] = self._sizes.get(generation, 0) + 1
                if pool_slice.counts:
                    self._counting.setdefault(generation, []).append(pool_slice)

    def reaching(self, node: Node) -> list[PoolSlice]:
        """The slices with devices or counters for the node, by name.

        Raises:
            AllocationError: a slice's node selector is not valid.
        """
        near = sorted(
            (*self._of_node.get(node.name, ()), *self._of_nodes),
            key=lambda pool_slice: pool_slice.name,
        )
        return [one for one in near if _counts(one, self.features) and _reaches(one, node)]

    def reach_of(self, node: Node) -> tuple[object, ...]:
        """Which of the slices and devices reach a node: `resolve` depends on nothing else of it.

        Raises:
            AllocationError: a slice's node selector is not valid.
        """
        of_nodes = (
            tuple(reaches(candidate.device.nodes, node) for candidate in pool_slice.devices)
            if isinstance(pool_slice.spec.nodes, PerDevice)
            else reaches(pool_slice.spec.nodes, node)
            for pool_slice in self._of_nodes
        )
        return (node.name if node.name in self._of_node else None, *of_nodes)

    def is_newest(self, generation: int) -> bool:
        """Whether no slice is of a newer generation."""
        return generation >= self._newest

    def size(self, generation: int) -> int:
        """The number of slices of a generation."""
        return self._sizes.get(generation, 0)

    def counting(self, generation: int) -> Sequence[PoolSlice]:
        """The slices of a generation that have counters, or devices that consume them."""
        return self._counting.get(generation, ())


def gather(slices: Iterable[PoolSlice], node: Node, features: Features) -> tuple[Pool, ...]:
    """The pools with slices for the node, in the order in which upstream tries them.

    Raises:
        AllocationError: a slice's node selector is not valid.
    """
    by_pool: dict[PoolId, list[PoolSlice]] = {}
    for pool_slice in slices:
        by_pool.setdefault(pool_slice.pool, []).append(pool_slice)
    found = (resolve(PoolSlices(of_pool, features), node) for of_pool in by_pool.values())
    return sort_pools(pool for pool in found if pool is not None)


def sort_pools(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """The pools by driver and name, those with binding conditions last (KEP-5007)."""
    return tuple(sorted(pools, key=lambda pool: (_has_binding_conditions(pool), pool.id)))


def resolve(slices: PoolSlices, node: Node) -> Pool | None:
    """The pool of these slices as seen from a node; None if none of them concerns it.

    Raises:
        AllocationError: a slice's node selector is not valid.
    """
    reaching = slices.reaching(node)
    if not reaching:
        return None
    generation = max(pool_slice.spec.pool.generation for pool_slice in reaching)
    current = [
        pool_slice for pool_slice in reaching if pool_slice.spec.pool.generation == generation
    ]
    expected = current[0].spec.pool.resource_slice_count
    if len(current) == expected:
        return _build(current, (), node, slices.features)
    # A newer generation without a slice for this node: the pool has left it.
    if not slices.is_newest(generation):
        return None
    if slices.size(generation) != expected:
        return IncompletePool(current[0].pool)
    reached = set(map(id, current))
    others = [
        pool_slice for pool_slice in slices.counting(generation) if id(pool_slice) not in reached
    ]
    return _build(current, others, node, slices.features)


def _counts(pool_slice: PoolSlice, features: Features) -> bool:
    spec = pool_slice.spec
    partitioned = isinstance(spec.nodes, PerDevice) or spec.shared_counters
    return _is_supported(pool_slice, features) and not (
        partitioned and not features.partitionable_devices
    )


def _is_supported(pool_slice: PoolSlice, features: Features) -> bool:
    """A slice with compatibility groups is ignored if the feature is disabled."""
    return features.compatibility_groups or not pool_slice.has_groups


def _reaches(pool_slice: PoolSlice, node: Node) -> bool:
    nodes = pool_slice.spec.nodes
    if isinstance(nodes, PerDevice):
        return any(reaches(candidate.device.nodes, node) for candidate in pool_slice.devices)
    return reaches(nodes, node)


def _build(
    current: Sequence[PoolSlice], others: Sequence[PoolSlice], node: Node, features: Features
) -> Pool:
    pool = current[0].pool
    offering = [pool_slice for pool_slice in current if not _has_counter_sets(pool_slice, features)]
    elsewhere = [pool_slice for pool_slice in others if not _has_counter_sets(pool_slice, features)]
    names: set[str] = set()
    for candidate in _devices(offering):
        if candidate.id.device in names:
            return InvalidPool(pool, f"duplicate device name {candidate.id.device}")
        names.add(candidate.id.device)
    counters: dict[str, DeviceAmounts] = {}
    if features.partitionable_devices:
        for pool_slice in chain(current, others):
            for counter_set in pool_slice.spec.shared_counters:
                if counter_set.name in counters:
                    return InvalidPool(pool, f"duplicate counter set name {counter_set.name}")
                counters[counter_set.name] = _amounts(counter_set)
        for candidate in _consumers(chain(offering, elsewhere)):
            if reason := _dangling(candidate.device, counters):
                return InvalidPool(pool, reason)
    return ReadyPool(
        id=pool,
        devices=tuple(chain.from_iterable(_on_node(pool_slice, node) for pool_slice in offering)),
        elsewhere=tuple(_consumers(elsewhere)),
        counters=counters,
    )


def _on_node(pool_slice: PoolSlice, node: Node) -> Iterable[Candidate]:
    if not isinstance(pool_slice.spec.nodes, PerDevice):
        return pool_slice.devices
    return [
        candidate if reaches(candidate.device.nodes, node) else replace(candidate, here=False)
        for candidate in pool_slice.devices
    ]


def _devices(slices: Iterable[PoolSlice]) -> Iterable[Candidate]:
    return chain.from_iterable(pool_slice.devices for pool_slice in slices)


def _consumers(slices: Iterable[PoolSlice]) -> Iterable[Candidate]:
    return chain.from_iterable(pool_slice.consumers for pool_slice in slices)


def _has_counter_sets(pool_slice: PoolSlice, features: Features) -> bool:
    return features.partitionable_devices and bool(pool_slice.spec.shared_counters)


def _amounts(counter_set: CounterSet) -> DeviceAmounts:
    return {name: counter.value.nanos for name, counter in counter_set.counters.items()}


def _dangling(device: Device, counters: Mapping[str, DeviceAmounts]) -> str | None:
    for consumption in device.consumes_counters:
        counter_set = counters.get(consumption.counter_set)
        if counter_set is None:
            return f"counter set {consumption.counter_set} not found"
        for name in consumption.counters:
            if name not in counter_set:
                return f"counter {name} not found in counter set {consumption.counter_set}"
    return None


def _has_binding_conditions(pool: Pool) -> bool:
    return isinstance(pool, ReadyPool) and any(
        candidate.device.binding_conditions for candidate in pool.devices
    )
