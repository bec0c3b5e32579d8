"""Which devices of a cluster the allocated claims have."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from carina_dra.allocator.usage import PoolId, Usage
from carina_dra.placement.cluster.offer import NOTHING
from carina_dra.resource import Allocation, DeviceResult


class Holdings:
    """The usage of each pool, kept while claims come and go."""

    def __init__(self, changed: Callable[[PoolId, Collection[str]], None]) -> None:
        """`changed` is called for each pool whose usage changes, with the names of the devices."""
        self._changed = changed
        self._allocations: dict[str, Allocation] = {}
        self._usage: dict[PoolId, Usage] = {}

    def usage(self, pool: PoolId) -> Usage:
        """The devices of a pool that are in use."""
        return self._usage.get(pool, NOTHING)

    def allocation(self, claim: str) -> Allocation | None:
        """What a claim has."""
        return self._allocations.get(claim)

    def allocate(self, claim: str, allocation: Allocation) -> None:
        """Gives a claim that has nothing its devices."""
        self._allocations[claim] = allocation
        self._use(allocation.devices.results, Usage.plus)

    def release(self, claim: str) -> None:
        """Takes the devices of a claim; the exact inverse of `allocate`."""
        self._use(self._allocations.pop(claim).devices.results, Usage.minus)

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
            self._changed(pool, {result.device for result in of_pool})


def _by_pool(results: Iterable[DeviceResult]) -> Mapping[PoolId, Sequence[DeviceResult]]:
    by_pool: dict[PoolId, list[DeviceResult]] = {}
    for result in results:
        by_pool.setdefault(PoolId(result.driver, result.pool), []).append(result)
    return by_pool
