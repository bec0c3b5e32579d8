"""The pools that offer devices on a node: which slices count, and whether they are sound.

A pool counts with its newest generation, if all its slices are there. (Upstream: KEP-4381, and
`GatherPools` of k8s.io/dynamic-resource-allocation v0.37.0.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node, reaches
from carina_dra.allocator.taint import added_by_rules
from carina_dra.allocator.usage import Amounts, DeviceId, PoolId
from carina_dra.cel import CelDevice
from carina_dra.resource import (
    CounterSet,
    Device,
    DeviceTaintRule,
    PerDevice,
    ResourceSlice,
    ResourceSliceSpec,
)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device that a pool offers."""

    id: DeviceId
    device: Device
    """As published, with the taints that rules add."""
    slice: ResourceSliceSpec
    view: CelDevice
    """The device as selectors see it."""
    here: bool = True
    """Whether it is usable on the node; what is not may still be in the node's slices."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolSlice:
    """A slice, ready to be looked at for many nodes."""

    name: str
    spec: ResourceSliceSpec
    devices: tuple[Candidate, ...]

    @classmethod
    def of(cls, published: ResourceSlice, rules: Sequence[DeviceTaintRule] = ()) -> "PoolSlice":
        """Prepares what was published."""
        spec = published.spec
        prepared = []
        for device in spec.devices:
            added = added_by_rules(rules, spec.driver, spec.pool.name, device.name)
            tainted = replace(device, taints=device.taints + added) if added else device
            prepared.append(
                Candidate(
                    id=DeviceId(spec.driver, spec.pool.name, device.name),
                    device=tainted,
                    slice=spec,
                    view=CelDevice.of(spec.driver, device),
                )
            )
        return cls(published.metadata.name, spec, tuple(prepared))

    @property
    def pool(self) -> PoolId:
        """The pool it is part of."""
        return PoolId(self.spec.driver, self.spec.pool.name)


@dataclass(frozen=True, slots=True, eq=False)
class ReadyPool:
    """A pool that devices can be allocated from."""

    id: PoolId
    devices: tuple[Candidate, ...]
    """Those of the slices that reach the node, in the order in which upstream tries them."""
    elsewhere: tuple[Candidate, ...]
    """Those of other slices, which draw from the same counters."""
    counters: Mapping[str, Amounts]
    """What each counter set has in all."""


@dataclass(frozen=True, slots=True)
class IncompletePool:
    """A pool of which slices are missing: its driver is about to publish them."""

    id: PoolId


@dataclass(frozen=True, slots=True)
class InvalidPool:
    """A pool whose slices contradict each other."""

    id: PoolId
    reason: str


Pool: TypeAlias = ReadyPool | IncompletePool | InvalidPool


def gather(slices: Iterable[PoolSlice], node: Node, features: Features) -> tuple[Pool, ...]:
    """The pools that offer anything on the node, in the order in which upstream tries them.

    Raises:
        AllocationError: a slice's node selector is not valid.
    """
    by_pool: dict[PoolId, list[PoolSlice]] = {}
    for each in slices:
        by_pool.setdefault(each.pool, []).append(each)
    found = (resolve(of_pool, node, features) for of_pool in by_pool.values())
    return in_order(pool for pool in found if pool is not None)


def in_order(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Pools by driver and name, those with binding conditions last (KEP-5007)."""
    return tuple(sorted(pools, key=lambda pool: (_has_binding_conditions(pool), pool.id)))


def resolve(slices: Iterable[PoolSlice], node: Node, features: Features) -> Pool | None:
    """What the slices of one pool offer on a node; None for nothing at all.

    Raises:
        AllocationError: a slice's node selector is not valid.
    """
    known = sorted(slices, key=lambda each: each.name)
    reaching = [each for each in known if _counts(each, features) and _reaches(each, node)]
    if not reaching:
        return None
    generation = max(each.spec.pool.generation for each in reaching)
    current = [each for each in reaching if each.spec.pool.generation == generation]
    expected = current[0].spec.pool.resource_slice_count
    whole = current
    if len(current) != expected:
        # A newer generation may have nothing for this node any more.
        if any(each.spec.pool.generation > generation for each in known):
            return None
        whole = [
            each
            for each in known
            if each.spec.pool.generation == generation and _is_understood(each, features)
        ]
        if len(whole) != expected:
            return IncompletePool(current[0].pool)
    return _build(current, [each for each in whole if each not in current], node, features)


def _counts(each: PoolSlice, features: Features) -> bool:
    partitioned = isinstance(each.spec.nodes, PerDevice) or each.spec.shared_counters
    return _is_understood(each, features) and not (
        partitioned and not features.partitionable_devices
    )


def _is_understood(each: PoolSlice, features: Features) -> bool:
    """Slices with groups that nobody would check are as good as missing."""
    return features.compatibility_groups or not any(
        consumption.compatibility_groups
        for candidate in each.devices
        for consumption in candidate.device.consumes_counters
    )


def _reaches(each: PoolSlice, node: Node) -> bool:
    if isinstance(each.spec.nodes, PerDevice):
        return any(reaches(candidate.device.nodes, node) for candidate in each.devices)
    return reaches(each.spec.nodes, node)


def _build(
    current: Sequence[PoolSlice], others: Sequence[PoolSlice], node: Node, features: Features
) -> Pool:
    pool = current[0].pool
    offering = [each for each in current if not _has_counters(each, features)]
    elsewhere = [each for each in others if not _has_counters(each, features)]
    names: set[str] = set()
    for candidate in _devices(offering):
        if candidate.id.device in names:
            return InvalidPool(pool, f"duplicate device name {candidate.id.device}")
        names.add(candidate.id.device)
    counters: dict[str, Amounts] = {}
    if features.partitionable_devices:
        for each in chain(current, others):
            for counter_set in each.spec.shared_counters:
                if counter_set.name in counters:
                    return InvalidPool(pool, f"duplicate counter set name {counter_set.name}")
                counters[counter_set.name] = _amounts(counter_set)
        for candidate in chain(_devices(offering), _devices(elsewhere)):
            if reason := _dangling(candidate.device, counters):
                return InvalidPool(pool, reason)
    return ReadyPool(
        id=pool,
        devices=tuple(chain.from_iterable(_on_node(each, node) for each in offering)),
        elsewhere=tuple(_devices(elsewhere)),
        counters=counters,
    )


def _on_node(each: PoolSlice, node: Node) -> Iterable[Candidate]:
    if not isinstance(each.spec.nodes, PerDevice):
        return each.devices
    return [
        candidate if reaches(candidate.device.nodes, node) else replace(candidate, here=False)
        for candidate in each.devices
    ]


def _devices(slices: Iterable[PoolSlice]) -> Iterable[Candidate]:
    return chain.from_iterable(each.devices for each in slices)


def _has_counters(each: PoolSlice, features: Features) -> bool:
    return features.partitionable_devices and bool(each.spec.shared_counters)


def _amounts(counter_set: CounterSet) -> Amounts:
    return {name: counter.value.nanos for name, counter in counter_set.counters.items()}


def _dangling(device: Device, counters: Mapping[str, Amounts]) -> str | None:
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
