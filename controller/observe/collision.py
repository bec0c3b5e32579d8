"""Devices that two claims have: kube-scheduler and the controller allocated at the same time.

No transaction spans two claims, so this can happen wherever both allocate. What others allocate is
never touched, so their claim keeps the device. Among the controller's own, the first keeps it; the
time of an allocation has a resolution of a second, and the name decides between equal times.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from carina_dra.allocator.usage import DeviceId
from carina_dra.resource import ResourceClaim


class Holder(Enum):
    """Whose a claim is that has a device."""

    OTHERS = "others"
    """Only pods without a queue use it, so kube-scheduler has allocated it."""
    OURS = "ours"
    """The controller decides about it."""
    NOBODY = "nobody"
    """It is not in effect: the controller takes its devices back without harm."""


@dataclass(frozen=True, slots=True)
class Collision:
    """A device that belongs to one claim and was given to two."""

    device: DeviceId
    keeper: str
    """The claim that keeps it, as `namespace/name`."""
    loser: str
    """A claim of the controller's own."""


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
        """Applies what a claim has now."""
        self.remove(claim.key)
        allocation = claim.status.allocation
        if allocation is None:
            return
        stamp = allocation.allocation_timestamp
        since = 0.0 if stamp is None else stamp.timestamp()
        devices = tuple(
            dict.fromkeys(  # others may write a device twice
                DeviceId(result.driver, result.pool, result.device)
                for result in allocation.devices.results
                if result.share_id is None and not result.admin_access
            )
        )
        self._devices[claim.key] = devices
        for device in devices:
            holders = self._holders.setdefault(device, {})
            holders[claim.key] = since
            if len(holders) > 1:
                self._contested[device] = None

    def remove(self, claim: str) -> None:
        """Records that a claim has nothing."""
        for device in self._devices.pop(claim, ()):
            holders = self._holders[device]
            del holders[claim]
            if len(holders) < 2:
                self._contested.pop(device, None)
            if not holders:
                del self._holders[device]

    @property
    def contested(self) -> list[DeviceId]:
        """The devices with several claims."""
        return list(self._contested)

    def at(self, device: DeviceId, holder_of: Callable[[str], Holder]) -> Iterator[Collision]:
        """Who loses a device to whom. `holder_of` says whose a claim is."""
        since = self._holders[device]
        whose = {claim: holder_of(claim) for claim in since}
        keeper, *others = sorted(
            since, key=lambda claim: (_RANK[whose[claim]], since[claim], claim)
        )
        for loser in others:
            if whose[loser] is Holder.OURS:
                yield Collision(device, keeper, loser)


_RANK = {Holder.OTHERS: 0, Holder.OURS: 1, Holder.NOBODY: 2}
