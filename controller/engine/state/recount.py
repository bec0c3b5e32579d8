"""Which claims count differently in accounts since slices or classes have changed."""

from collections.abc import Collection

from carina_dra.allocator.usage import PoolId
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from controller.engine.model.resource import DevicesOf, Resource


class Recount:
    """The allocated claims of each pool, and the pools and classes that have changed."""

    def __init__(self) -> None:
        self._claims: dict[PoolId, dict[str, None]] = {}
        """By pool: the claims that have devices of it."""
        self._pools: dict[PoolId, None] = {}
        self._classes: set[str] = set()

    def follow(self, key: str, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Applies what a claim has, and had."""
        for pool in _pools_of(before):
            claims = self._claims[pool]
            del claims[key]
            if not claims:
                del self._claims[pool]
        for pool in _pools_of(after):
            self._claims.setdefault(pool, {})[key] = None

    def note(self, changed: ResourceSlice | DeviceClass | DeviceTaintRule | None) -> None:
        """Records that an object has changed, in the state before or after the change."""
        match changed:
            case ResourceSlice(spec=spec):
                self._pools[PoolId(spec.driver, spec.pool.name)] = None
            case DeviceClass(metadata=metadata):
                self._classes.add(metadata.name)
            case DeviceTaintRule() | None:
                pass  # what claims have counts in spite of taints

    def take(self, resources: Collection[Resource]) -> list[str]:
        """The claims to be counted again since it was last asked, of those that have devices."""
        classes, pools = self._classes, self._pools
        self._classes, self._pools = set(), {}
        if any(isinstance(one, DevicesOf) and one.device_class in classes for one in resources):
            pools = dict.fromkeys(self._claims)
        return list({key: None for pool in pools for key in self._claims.get(pool, ())})


def _pools_of(claim: ResourceClaim | None) -> frozenset[PoolId]:
    allocation = None if claim is None else claim.status.allocation
    if allocation is None:
        return frozenset()
    return frozenset(PoolId(one.driver, one.pool) for one in allocation.devices.results)
