"""What claims and pods count in a queue's account: as asked, and as given."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.request import Alternative, check
from carina_dra.allocator.usage import DeviceId
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    Allocation,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    ExactCount,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    ResourceClaimSpec,
)
from controller.model.pod import PodNeeds
from controller.model.resource import (
    Amounts,
    CapacityOf,
    Cpu,
    DevicesOf,
    Memory,
    Pods,
    Resource,
    is_of_devices,
)
from controller.state.queue_tree import QueueTree

_REMEMBERED: Final = 20_000
"""Needs of pods, and specs of claims, of which it is remembered what they ask for."""


class Asking:
    """Counts in the resources of a tree of queues."""

    def __init__(
        self,
        tree: QueueTree,
        classes: Mapping[str, DeviceClass],
        features: Features,
        least: Callable[[Alternative, str], int],
        capacities: Callable[[DeviceId], Mapping[str, Quantity]],
    ) -> None:
        """`least` is the least that a request counts of a capacity, in base units.

        `capacities` are those of a published device by their qualified names.
        """
        self._resources = tree.resources
        self._classes = classes
        self._features = features
        self._least = least
        self._capacities = capacities
        self._zero = (0,) * len(tree.resources)
        self._has_devices = any(map(is_of_devices, tree.resources))
        self.depends_on_devices = any(isinstance(one, CapacityOf) for one in tree.resources)
        """Whether what is asked for counts differently when the devices of the cluster change."""
        self._of_needs: dict[PodNeeds, Amounts] = {}
        self._of_specs: dict[int, tuple[ResourceClaimSpec, Amounts]] = {}
        """By the identity of a spec, which claims of one template share."""

    def forget_claims(self) -> None:
        """Takes notice that classes or devices have changed."""
        self._of_specs.clear()

    def of_pod(self, needs: PodNeeds) -> Amounts:
        """What a pod counts without its claims."""
        known = self._of_needs.get(needs)
        if known is None:
            if len(self._of_needs) >= _REMEMBERED:
                self._of_needs.clear()
            known = tuple(_of_pod(needs, resource) for resource in self._resources)
            self._of_needs[needs] = known
        return known

    def asked(self, claim: ResourceClaim) -> Amounts:
        """What a claim counts until it is allocated.

        A request counts by its first alternative, one for all devices as one device, admin access
        as nothing. A whole device counts with the least capacity that a device has which it may
        get. A claim that no node can satisfy counts nothing.
        """
        if not self._has_devices:
            return self._zero
        spec = claim.spec
        known = self._of_specs.get(id(spec))
        if known is None:
            if len(self._of_specs) >= _REMEMBERED:
                self._of_specs.clear()
            known = self._of_specs[id(spec)] = spec, self._asked(claim)
        return known[1]

    def _asked(self, claim: ResourceClaim) -> Amounts:
        try:
            checked = check(claim, self._classes, self._features)
        except AllocationError:
            return self._zero
        amounts = list(self._zero)
        for request in checked.requests:
            first = request.alternatives[0]
            if first.admin_access:
                continue
            count = _count(first.mode)
            for at, resource in enumerate(self._resources):
                match resource:
                    case DevicesOf(device_class=name):
                        amounts[at] += count * (name == first.device_class.metadata.name)
                    case CapacityOf(name=name):
                        amounts[at] += count * self._least(first, name)
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

    def _consumed(self, result: DeviceResult, capacity: str) -> int:
        if result.share_id is None:
            device = DeviceId(result.driver, result.pool, result.device)
            amount = self._capacities(device).get(capacity)
        else:
            named = {
                qualified(result.driver, key): of for key, of in result.consumed_capacity.items()
            }
            amount = named.get(capacity)
        return 0 if amount is None else base_units(amount.nanos)


def qualified(driver: str, name: str) -> str:
    """The name of a capacity with its domain, which is the driver's unless it has one."""
    return name if "/" in name else f"{driver}/{name}"


def base_units(nanos: int) -> int:
    """An amount in base units, such as bytes, rounded up."""
    return -(-nanos // 1_000_000_000)


def replaceable(claim: ResourceClaim) -> int:
    """How many devices a claim has that might get fewer if it were allocated again."""
    allocation = claim.status.allocation
    if allocation is None or all(map(_is_fixed, claim.spec.devices.requests)):
        return 0
    return len(allocation.devices.results)


def _is_fixed(request: DeviceRequest) -> bool:
    """Whether a request always gets the same number of devices."""
    match request.wants:
        case Exactly(request=exact):
            return isinstance(exact.mode, ExactCount)
        case FirstAvailable() | None:
            return False
    assert_never(request.wants)


def _of_pod(needs: PodNeeds, resource: Resource) -> int:
    match resource:
        case Cpu():
            return needs.cpu
        case Memory():
            return needs.memory
        case Pods():
            return 1
        case DevicesOf() | CapacityOf():
            return 0
    assert_never(resource)


def _count(mode: ExactCount | All) -> int:
    match mode:
        case ExactCount(count=count):
            return count
        case All():
            return 1
    assert_never(mode)


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
