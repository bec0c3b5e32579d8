"""Devices that two claims have: kube-scheduler and the controller allocated at the same time.

No transaction spans two claims, so this can happen wherever both allocate. Who reserved first
keeps the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from carina_dra.allocator.usage import DeviceId
from carina_dra.resource import ResourceClaim


@dataclass(frozen=True, slots=True)
class Collision:
    """A device that belongs to one claim and was given to two."""

    device: DeviceId
    keeper: str
    """The claim that was allocated first."""
    loser: str


class Collisions:
    """Finds devices with several claims, as claims come and go. Shares and admin access are none.

    Partitions of a GPU that overlap another device are not looked at; preparing a claim refuses
    them on the node.
    """

    def __init__(self) -> None:
        self._holders: dict[DeviceId, dict[str, float]] = {}
        """By device: the claims that have it, and since when."""
        self._devices: dict[str, tuple[DeviceId, ...]] = {}
        """By claim."""
        self._contested: dict[DeviceId, None] = {}

    def put(self, claim: ResourceClaim) -> None:
        """Takes notice of what a claim has now."""
        self.remove(claim.key)
        allocation = claim.status.allocation
        if allocation is None:
            return
        stamp = allocation.allocation_timestamp
        since = 0.0 if stamp is None else stamp.timestamp()
        devices = tuple(
            DeviceId(result.driver, result.pool, result.device)
            for result in allocation.devices.results
            if result.share_id is None and not result.admin_access
        )
        self._devices[claim.key] = devices
        for device in devices:
            holders = self._holders.setdefault(device, {})
            holders[claim.key] = since
            if len(holders) > 1:
                self._contested[device] = None

    def remove(self, claim: str) -> None:
        """Takes notice that a claim has nothing."""
        for device in self._devices.pop(claim, ()):
            holders = self._holders[device]
            del holders[claim]
            if len(holders) < 2:
                self._contested.pop(device, None)
            if not holders:
                del self._holders[device]

    def __iter__(self) -> Iterator[Collision]:
        for device in self._contested:
            keeper, *losers = sorted(
                self._holders[device], key=lambda claim: (self._holders[device][claim], claim)
            )
            for loser in losers:
                yield Collision(device, keeper, loser)
