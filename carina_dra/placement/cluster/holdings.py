"""Who has which devices of a cluster: allocated claims, and reservations for claims."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from carina_dra.allocator.group import CounterKey
from carina_dra.allocator.usage import DeviceId, PoolId, Usage
from carina_dra.placement.cluster.offer import NOTHING
from carina_dra.placement.cluster.reservation import Reservation, held
from carina_dra.resource import Allocation, DeviceResult

K = TypeVar("K")


class Holdings:
    """The usage of each pool, kept while claims and reservations come and go."""

    def __init__(
        self,
        changed: Callable[[PoolId, Collection[str]], None],
        consumed: Callable[[DeviceId], Mapping[CounterKey, int]],
    ) -> None:
        """`changed` is told of each pool whose usage changes, with the names of the devices.

        `consumed` says what a device consumes of counters, as it is published now, in billionths.
        """
        self._changed = changed
        self._consumed = consumed
        self._allocations: dict[str, Allocation] = {}
        self._reservations: dict[str, Reservation] = {}
        self._reserved_for: dict[str, frozenset[str]] = {}
        """The reservations that each claim may use."""
        self._reserved_in: dict[PoolId, frozenset[str]] = {}
        """The reservations of devices of each pool."""
        self._held: dict[str, Mapping[PoolId, Sequence[DeviceResult]]] = {}
        """What each reservation keeps from other claims."""
        self._usage: dict[PoolId, Usage] = {}

    def usage(self, pool: PoolId) -> Usage:
        """The devices of a pool that are in use or reserved."""
        return self._usage.get(pool, NOTHING)

    def allocation(self, claim: str) -> Allocation | None:
        """What a claim has."""
        return self._allocations.get(claim)

    def allocate(self, claim: str, allocation: Allocation) -> None:
        """Gives a claim that has nothing its devices."""
        self._allocations[claim] = allocation
        self._use(allocation.devices.results, Usage.plus)
        self._hold_again(self._reserved_for.get(claim, ()))

    def release(self, claim: str) -> None:
        """Takes the devices of a claim; the exact inverse of `allocate`."""
        allocation = self._allocations.pop(claim)
        self._use(allocation.devices.results, Usage.minus)
        self._hold_again(self._reserved_for.get(claim, ()))

    def reservation(self, name: str) -> Reservation | None:
        """What is reserved under a name."""
        return self._reservations.get(name)

    def reserve(self, name: str, reservation: Reservation) -> None:
        """Keeps devices for claims, under a name that is not in use."""
        self._reservations[name] = reservation
        _add(self._reserved_for, reservation.claims, name)
        _add(self._reserved_in, _by_pool(reservation.devices), name)
        self._hold_again([name])

    def unreserve(self, name: str) -> None:
        """Ends a reservation; the exact inverse of `reserve`."""
        reservation = self._reservations.pop(name)
        _discard(self._reserved_for, reservation.claims, name)
        _discard(self._reserved_in, _by_pool(reservation.devices), name)
        self._hold_again([name])

    def reserved_for(self, claims: Collection[str]) -> frozenset[str]:
        """The reservations that all of the claims may use."""
        of_claims = [self._reserved_for.get(claim, frozenset()) for claim in claims]
        return frozenset.intersection(*of_claims) if of_claims else frozenset()

    def held_by(self, reservation: str) -> Mapping[PoolId, Sequence[DeviceResult]]:
        """What a reservation still keeps from other claims, of each pool."""
        return self._held.get(reservation, {})

    def publish(self, pool: PoolId) -> None:
        """Takes notice that the devices of a pool are published anew."""
        self._hold_again(self._reserved_in.get(pool, ()))

    def _hold_again(self, names: Iterable[str]) -> None:
        """Puts in use what reservations hold, in place of what they held before.

        Pools of which a reservation holds the same as before have not changed.
        """
        for name in names:
            before, after = self._held.pop(name, {}), _by_pool(self._to_hold(name))
            if after:
                self._held[name] = after
            for pool in dict.fromkeys([*before, *after]):
                of_pool = before.get(pool, ()), after.get(pool, ())
                if of_pool[0] != of_pool[1]:
                    self._use(of_pool[0], Usage.minus)
                    self._use(of_pool[1], Usage.plus)

    def _to_hold(self, name: str) -> tuple[DeviceResult, ...]:
        reservation = self._reservations.get(name)
        if reservation is None:
            return ()
        allocations = filter(None, map(self._allocations.get, reservation.claims))
        in_use = [result for one in allocations for result in one.devices.results]
        return held(reservation, in_use, self._consumed)

    def _use(
        self,
        results: Iterable[DeviceResult],
        change: Callable[[Usage, Iterable[DeviceResult]], Usage],
    ) -> None:
        for pool, of_pool in _by_pool(results).items():
            usage = change(self.usage(pool), of_pool)
            if usage.dedicated or usage.shared:
                self._usage[pool] = usage
            else:
                self._usage.pop(pool, None)
            self._changed(pool, {one.device for one in of_pool})


def _by_pool(results: Iterable[DeviceResult]) -> Mapping[PoolId, Sequence[DeviceResult]]:
    by_pool: dict[PoolId, list[DeviceResult]] = {}
    for result in results:
        by_pool.setdefault(PoolId(result.driver, result.pool), []).append(result)
    return by_pool


def _add(index: dict[K, frozenset[str]], keys: Iterable[K], name: str) -> None:
    for key in keys:
        index[key] = index.get(key, frozenset()) | {name}


def _discard(index: dict[K, frozenset[str]], keys: Iterable[K], name: str) -> None:
    for key in keys:
        index[key] -= {name}
        if not index[key]:
            del index[key]
