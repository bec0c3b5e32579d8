"""What claims and pods count in a queue's account: as asked, and as given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carina_dra.allocator.usage import DeviceId
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    Allocation,
    CapacityRequirements,
    DeviceResult,
    DeviceSelector,
    ExactCount,
    Exactly,
    FirstAvailable,
    ResourceClaim,
)
from controller.model.pod import PodNeeds
from controller.model.resource import Amounts, CapacityOf, Cpu, DevicesOf, Memory, Pods
from controller.state.queue_tree import QueueTree


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as it counts until it has its devices: by its first alternative."""

    name: str
    device_class: str
    selectors: tuple[DeviceSelector, ...]
    count: int
    capacity: CapacityRequirements | None


class Asking:
    """Counts in the resources of a tree of queues."""

    def __init__(
        self,
        tree: QueueTree,
        least: Callable[[str, tuple[DeviceSelector, ...], str], int],
        published: Callable[[DeviceId], dict[str, Quantity]],
    ) -> None:
        """`least` is the least of a capacity that a device of a class has which selectors match.

        `published` has the capacities of a device by their qualified names.
        """
        self._resources = tree.resources
        self._least = least
        self._published = published
        self._zero = (0,) * len(tree.resources)
        self._has_devices = any(isinstance(one, DevicesOf | CapacityOf) for one in tree.resources)
        self._of_needs: dict[PodNeeds, Amounts] = {}

    def of_pod(self, needs: PodNeeds) -> Amounts:
        """What a pod counts without its claims."""
        known = self._of_needs.get(needs)
        if known is None:
            known = self._of_needs[needs] = tuple(
                needs.cpu
                if isinstance(resource, Cpu)
                else needs.memory
                if isinstance(resource, Memory)
                else 1
                if isinstance(resource, Pods)
                else 0
                for resource in self._resources
            )
        return known

    def asked(self, claim: ResourceClaim) -> Amounts:
        """What a claim counts until it is allocated.

        A request counts by its first alternative, one for all devices as one device, admin access
        as nothing. A whole device counts with the least capacity that a device has which it may
        get.
        """
        if not self._has_devices:
            return self._zero
        amounts = list(self._zero)
        for request in _asked(claim):
            for at, resource in enumerate(self._resources):
                match resource:
                    case DevicesOf(device_class=name):
                        amounts[at] += request.count * (name == request.device_class)
                    case CapacityOf(name=name):
                        amounts[at] += request.count * self._amount(request, name)
                    case Cpu() | Memory() | Pods():
                        pass
        return tuple(amounts)

    def given(self, claim: ResourceClaim, allocation: Allocation) -> Amounts:
        """What an allocated claim counts."""
        if not self._has_devices:
            return self._zero
        classes = dict(_classes(claim))
        amounts = list(self._zero)
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            for at, resource in enumerate(self._resources):
                match resource:
                    case DevicesOf(device_class=name):
                        amounts[at] += classes.get(result.request) == name
                    case CapacityOf(name=name):
                        amounts[at] += self._consumed(result, name)
                    case Cpu() | Memory() | Pods():
                        pass
        return tuple(amounts)

    def _amount(self, request: _Asked, capacity: str) -> int:
        domain, _, bare = capacity.rpartition("/")
        wanted = request.capacity.requests if request.capacity else {}
        least = self._least(request.device_class, request.selectors, capacity)
        if capacity in wanted:
            return _units(wanted[capacity])
        if bare in wanted and domain and least:
            return _units(wanted[bare])
        return least

    def _consumed(self, result: DeviceResult, capacity: str) -> int:
        domain, _, bare = capacity.rpartition("/")
        if result.share_id is not None:
            consumed = result.consumed_capacity
            amount = consumed.get(capacity)
            if amount is None and domain == result.driver:
                amount = consumed.get(bare)
            return 0 if amount is None else _units(amount)
        published = self._published(DeviceId(result.driver, result.pool, result.device))
        amount = published.get(capacity)
        return 0 if amount is None else _units(amount)


def _asked(claim: ResourceClaim) -> Iterator[_Asked]:
    for request in claim.spec.devices.requests:
        match request.wants:
            case Exactly(request=exact):
                if exact.admin_access:
                    continue
                wanted = exact.device_class_name, exact.selectors, exact.mode, exact.capacity
            case FirstAvailable(alternatives=(first, *_)):
                wanted = first.device_class_name, first.selectors, first.mode, first.capacity
            case _:
                continue  # no node can satisfy it
        device_class, selectors, mode, capacity = wanted
        match mode:
            case ExactCount(count=count):
                yield _Asked(request.name, device_class, selectors, count, capacity)
            case All():
                yield _Asked(request.name, device_class, selectors, 1, capacity)
            case _:
                continue


def _classes(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """The class of each request, and of each alternative, by the name in results."""
    for request in claim.spec.devices.requests:
        match request.wants:
            case Exactly(request=exact):
                yield request.name, exact.device_class_name
            case FirstAvailable(alternatives=alternatives):
                for one in alternatives:
                    yield f"{request.name}/{one.name}", one.device_class_name
            case None:
                continue


def _units(amount: Quantity) -> int:
    """In base units, rounded up."""
    return -(-amount.nanos // 1_000_000_000)


def qualified(driver: str, name: str) -> str:
    """The name of a capacity with its domain, which is the driver's unless it has one."""
    return name if "/" in name else f"{driver}/{name}"
