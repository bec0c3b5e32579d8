"""Devices with taints that keep claims away or evict pods, and the claims that have such devices.

Nothing is looked up as long as no device has such a taint.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias

from carina_dra.allocator.taint import (
    added_by_rules,
    may_apply,
    prevents_allocation,
    tolerates,
)
from carina_dra.allocator.usage import PoolId
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import (
    Allocation,
    DeviceResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    TaintEffect,
)

_Taints: TypeAlias = tuple[DeviceTaint, ...]
_NONE: Final[Mapping[str, _Taints]] = {}


class TaintedDevices:
    """The taints of devices, as slices publish them and as rules evict by them."""

    def __init__(self, cluster: Cluster, claims: Mapping[str, ResourceClaim]) -> None:
        """`claims` are those of the state, by `namespace/name`."""
        self._cluster = cluster
        self._claims = claims
        self._published: dict[PoolId, Mapping[str, _Taints]] = {}
        """By pool with a device that its driver has tainted: the taints by device."""
        self._evicting: set[PoolId] = set()
        """Those of these pools of which a device has a taint with the effect NoExecute."""
        self._ruled: set[PoolId] = set()
        """The pools of which rules may evict."""
        self._rules: tuple[DeviceTaintRule, ...] = ()
        """Those with the effect NoExecute."""
        self._holders: dict[PoolId, dict[str, None]] = {}
        """By pool with a tainted device: the claims that have a device of it."""
        self._is_outdated = False
        """Whether pools have been tainted of which the holders are not known yet."""
        self._turned: set[str] | None = None
        """The claims whose evictions may be others than at the last `take_turned`; None for all."""

    def note_slice(self, *versions: ResourceSlice | None) -> None:
        """Records that a slice has changed, of which these are the states before and after."""
        for pool in {_pool_of(published) for published in versions if published is not None}:
            if pool not in self._published and not any(map(_has_taints, filter(None, versions))):
                continue
            taints = _newest(self._cluster.slices_of(pool))
            if taints == self._published.get(pool, _NONE):
                continue
            self._turn(self._holders.get(pool, ()))
            self._published.pop(pool, None)
            self._evicting.discard(pool)
            if taints:
                self._published[pool] = taints
            if any(map(_evicts, chain.from_iterable(taints.values()))):
                self._evicting.add(pool)
            self._is_outdated = True
        if self._rules and None in versions:  # a pool has come, or is gone
            self._is_outdated, self._turned = True, None

    def note_rules(self) -> None:
        """Records that a rule has changed."""
        evicting = tuple(rule for rule in self._cluster.rules.values() if _evicts(rule.spec.taint))
        if evicting != self._rules:
            self._rules = evicting
            self._is_outdated, self._turned = True, None

    def follow(self, key: str, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Records that a claim has changed."""
        if not self._holders:
            return
        for pool in _pools_of(before):
            self._holders.get(pool, {}).pop(key, None)
        for pool in _pools_of(after):
            if pool in self._holders:
                self._holders[pool][key] = None

    def note_users(self, claim: str) -> None:
        """Records that a claim has changed, or a pod that refers to it."""
        if self._holders:
            self._turn((claim,))

    def take_turned(self) -> list[str] | None:
        """The claims whose evictions may be others than at the last call, in order; None for all.

        Those that are gone are among them.
        """
        if self._is_outdated:
            self._find_holders()
        turned, self._turned = self._turned, set()
        return None if turned is None else sorted(turned)

    def tainted_claims(self) -> list[str]:
        """The claims that may have a device which its driver has tainted, in order."""
        return self._holders_of(self._published)

    def evicted_claims(self) -> list[str]:
        """The claims that may have a device with a taint of the effect NoExecute, in order."""
        if self._is_outdated:
            self._find_holders()
        return self._holders_of(self._evicting | self._ruled)

    def _holders_of(self, pools: Collection[PoolId]) -> list[str]:
        if self._is_outdated:
            self._find_holders()
        return sorted({key for pool in pools for key in self._holders[pool]})

    def of_driver(self, result: DeviceResult) -> _Taints:
        """The taints that keep claims away with which its driver publishes a device."""
        taints = self._published.get(PoolId(result.driver, result.pool), _NONE)
        return taints.get(result.device, ())

    def keep_away(self, allocation: Allocation) -> bool:
        """Whether a taint that the claim does not tolerate keeps it from these devices now."""
        if not self._cluster.features.device_taints:
            return False
        rules = self._cluster.rules.values()
        return any(
            prevents_allocation(taint)
            and not any(tolerates(toleration, taint) for toleration in result.tolerations)
            for result in allocation.devices.results
            for taint in (
                *self.of_driver(result),
                *added_by_rules(rules, result.driver, result.pool, result.device),
            )
        )

    def evicting(self, result: DeviceResult) -> _Taints:
        """The taints of a device with the effect NoExecute, those of rules too."""
        of_rules = added_by_rules(self._rules, result.driver, result.pool, result.device)
        of_driver = self.of_driver(result)
        return tuple(filter(_evicts, (*of_driver, *of_rules)))

    def _turn(self, claims: Iterable[str]) -> None:
        if self._turned is not None:
            self._turned.update(claims)

    def _find_holders(self) -> None:
        self._is_outdated = False
        self._ruled = set()
        if self._rules:
            self._ruled = {
                pool
                for pool in map(_pool_of, self._cluster.slices.values())
                if any(may_apply(rule, pool.driver, pool.pool) for rule in self._rules)
            }
        pools = self._published.keys() | self._ruled
        known = self._holders
        self._holders = {pool: known.get(pool, {}) for pool in pools}
        if pools <= known.keys():
            return
        for key, claim in self._claims.items():
            for pool in _pools_of(claim):
                if pool in self._holders:
                    self._holders[pool][key] = None
                    if pool not in known:
                        self._turn((key,))


def _pools_of(claim: ResourceClaim | None) -> set[PoolId]:
    allocation = None if claim is None else claim.status.allocation
    if allocation is None:
        return set()
    return {PoolId(result.driver, result.pool) for result in allocation.devices.results}


def _pool_of(published: ResourceSlice) -> PoolId:
    return PoolId(published.spec.driver, published.spec.pool.name)


def _evicts(taint: DeviceTaint) -> bool:
    return taint.effect == TaintEffect.NO_EXECUTE


def _has_taints(published: ResourceSlice) -> bool:
    return any(device.taints for device in published.spec.devices)


def _newest(slices: Iterable[ResourceSlice]) -> Mapping[str, _Taints]:
    """The taints of the devices of a pool that have some which keep claims away.

    Of a pool that is being replaced, the newest generation counts.
    """
    slices = tuple(slices)
    newest = max((published.spec.pool.generation for published in slices), default=0)
    taints = {
        device.name: tuple(filter(prevents_allocation, device.taints))
        for published in slices
        if published.spec.pool.generation == newest
        for device in published.spec.devices
        if device.taints
    }
    return {name: found for name, found in taints.items() if found}
