"""What claims and pods count in a queue's account: as asked, and as given."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.request import Alternative, check
from carina_dra.allocator.usage import DeviceId
from carina_dra.placement.cluster.gpu import GPU, GpuId
from carina_dra.price import EXPRESSION_CHARACTERS, LEAST_OF_CLAIM
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    Allocation,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    ResourceClaimSpec,
)
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.model.planned_claim import is_planned
from controller.engine.model.pod import PodNeeds
from controller.engine.model.resource import (
    Amounts,
    CapacityOf,
    Cpu,
    DeviceResource,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    is_of_devices,
    plus,
)
from controller.engine.state.charge import Charge, GpuPart
from controller.engine.state.plugin_gpus import has_plugin_gpus, plugin_gpus
from controller.engine.state.queue_tree import QueueTree
from controller.engine.state.remembered import Remembered

_REMEMBERED: Final = 20_000
"""Devices of which it is remembered what they count."""

_OF_PLUGINS: Final = GpuId("", "", "")
"""Stands for all GPUs that device plugins serve, which nobody tells apart."""


@dataclass(frozen=True, slots=True)
class GpuOfDevice:
    """What an allocated device is of its GPU."""

    id: GpuId
    part: int
    model: str
    is_gone: bool = False
    """Whether the device is not published any more, so that it is a whole GPU, to be safe."""


class _Given(NamedTuple):
    """What an allocated device counts."""

    amounts: Amounts
    """Without the part of its GPU."""
    gpu: GpuPart | None


class Published(Protocol):
    """Says what allocated devices are."""

    def capacities(self, device: DeviceId) -> Mapping[str, Quantity]:
        """The capacities of a published device by their qualified names."""

    def gpu(self, result: DeviceResult) -> GpuOfDevice | None:
        """The GPU, and the part of it, that an allocated device is; None if it is no GPU's."""

    def is_of(self, result: DeviceResult, device_class: str, named: str | None) -> bool:
        """Whether a class selects an allocated device; `named` is the class of its request."""

    def is_about_gpus(self, resource: Resource) -> bool:
        """Whether a resource counts GPUs, or something of them."""


class Asking:
    """Counts in the resources of a tree of queues."""

    def __init__(
        self,
        tree: QueueTree,
        classes: Mapping[str, DeviceClass],
        features: Features,
        least: Callable[[Alternative, DeviceResource, StepBudget], int],
        published: Published,
        pods: Sized,
        claims: Sized,
    ) -> None:
        """`least` is the least that a request for one device counts of a resource; all requests of
        a claim have one budget to find it out.

        `published` says what allocated devices are. `pods` and `claims` are those that there are.
        """
        self._resources = tree.resources
        self._classes = classes
        self._features = features
        self._least = least
        self._published = published
        self._zero = (0,) * len(tree.resources)
        self._has_devices = any(map(is_of_devices, tree.resources))
        self.depends_on_devices = self._has_devices
        """Whether what is asked for counts differently when the devices of the cluster change."""
        self._of_needs: Remembered[PodNeeds, Amounts] = Remembered(lambda: len(pods))
        self._of_specs: Remembered[int, tuple[ResourceClaimSpec, Amounts]] = Remembered(
            lambda: len(claims)
        )
        """By the identity of a spec, which claims of one template share."""
        self._of_allocations: Remembered[int, tuple[ResourceClaimSpec, Allocation, Charge]] = (
            Remembered(lambda: len(claims))
        )
        """By the identity of an allocation, which is kept."""
        self._of_devices: dict[tuple[str, str, str, str | None], _Given] = {}
        """By driver, pool, device and class of the request: what devices count that are not shared.
        """
        self._named: frozenset[int] | None = None

    def forget_claims(self) -> None:
        """Records that classes or devices have changed."""
        self._of_specs.clear()
        self._of_devices.clear()
        self._of_allocations.clear()

    def look_again(self) -> bool:
        """Finds out again which resources are about GPUs; whether others are.

        Until then `given` counts as before, so that all charges agree on it.
        """
        before, self._named = self._named, None
        self._of_devices.clear()
        self._of_allocations.clear()
        return before is not None and self._about_gpus() != before

    def of_pod(self, needs: PodNeeds) -> Amounts:
        """What a pod counts without its claims."""
        known = self._of_needs.get(needs)
        if known is None:
            known = tuple(_of_pod(needs, resource) for resource in self._resources)
            self._of_needs[needs] = known
        return known

    def plugin_gpus(self, needs: PodNeeds) -> tuple[GpuPart, ...]:
        """What device plugins serve a pod of GPUs, by what counts it: its amount is in `of_pod`."""
        if not (self._has_devices and needs.extended and has_plugin_gpus(needs.extended)):
            return ()
        is_counted = plugin_gpus(needs.extended) > 0
        counted = frozenset(
            at for at, resource in enumerate(self._resources) if resource == Gpus() and is_counted
        )
        return (GpuPart(_OF_PLUGINS, 0, (), counted, self._about_gpus()),)

    def asked(self, claim: ResourceClaim) -> Amounts:
        """What a claim counts until it is allocated.

        A request counts as its cheapest alternative, with the device that counts least of those
        which it may get; one for all devices as one device, admin access as nothing. A claim that
        no node can satisfy counts nothing, and neither does one that costs too much to look at.
        """
        if not self._has_devices:
            return self._zero
        spec = claim.spec
        known = self._of_specs.get(id(spec))
        if known is None:
            known = self._of_specs[id(spec)] = (spec, self._asked(claim))
        return known[1]

    def _asked(self, claim: ResourceClaim) -> Amounts:
        budget = StepBudget(LEAST_OF_CLAIM)
        try:
            for expression in set(expressions_of(claim)):
                budget.spend(len(expression) // EXPRESSION_CHARACTERS)
        except OutOfStepsError:
            return self._zero  # what it gets is counted all the same
        try:
            checked = check(claim, self._classes, self._features)
        except AllocationError:
            return self._zero
        amounts = list(self._zero)
        for request in checked.requests:
            if any(alternative.admin_access for alternative in request.alternatives):
                continue
            for at, resource in enumerate(self._resources):
                match resource:
                    case Gpus() | DevicesOf() | CapacityOf():
                        amounts[at] += min(
                            _count(alternative.mode) * self._least(alternative, resource, budget)
                            for alternative in request.alternatives
                        )
                    case Cpu() | Memory() | Pods():
                        pass
        return tuple(amounts)

    def given(self, claim: ResourceClaim, allocation: Allocation) -> Charge:
        """What an allocated claim counts.

        kube-scheduler may give the devices that are planned for one pod to another, so what is
        planned counts beside all else, whichever devices it names.
        """
        charge = self._of_allocation(claim.spec, allocation)
        return charge.apart(claim.key) if is_planned(claim) else charge

    def _of_allocation(self, spec: ResourceClaimSpec, allocation: Allocation) -> Charge:
        if not self._has_devices:
            return self._charge(allocation, {})
        known = self._of_allocations.get(id(allocation))
        if known is None or known[0] is not spec:
            charge = self._charge(allocation, dict(_classes(spec)))
            known = self._of_allocations[id(allocation)] = spec, allocation, charge
        return known[2]

    def given_to_come(self, allocation: Allocation) -> Charge:
        """What a claim counts that does not exist yet, once it has devices."""
        return self._charge(allocation, {})

    def _charge(self, allocation: Allocation, classes: Mapping[str, str]) -> Charge:
        if not self._has_devices:
            return Charge(self._zero)
        amounts = self._zero
        gpus: list[GpuPart] = []
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            given = self._given(result, classes.get(result.request))
            amounts = plus(amounts, given.amounts)
            if given.gpu is not None:
                gpus.append(given.gpu)
        return Charge(amounts, tuple(gpus))

    def _given(self, result: DeviceResult, of_class: str | None) -> _Given:
        """What an allocated device counts; `of_class` is the class of its request."""
        if result.share_id is not None:
            return self._find_given(result, of_class)
        key = result.driver, result.pool, result.device, of_class
        known = self._of_devices.get(key)
        if known is None:
            if len(self._of_devices) >= _REMEMBERED:
                self._of_devices.clear()
            known = self._of_devices[key] = self._find_given(result, of_class)
        return known

    def _find_given(self, result: DeviceResult, of_class: str | None) -> _Given:
        amounts = tuple(self._amount(result, one, of_class) for one in self._resources)
        found = self._published.gpu(result)
        if found is None:
            return _Given(amounts, None)
        counted = (at for at, amount in enumerate(amounts) if amount)
        return _Given(amounts, self._gpu_part(found, counted))

    def _amount(self, result: DeviceResult, resource: Resource, of_class: str | None) -> int:
        """What an allocated device counts, but as a part of its GPU."""
        match resource:
            case DevicesOf(device_class=name):
                return int(self._published.is_of(result, name, of_class))
            case CapacityOf(name=name):
                return self._consumed(result, name)
            case Gpus() | Cpu() | Memory() | Pods():
                return 0
        assert_never(resource)

    def _gpu_part(self, found: GpuOfDevice, counted: Iterable[int]) -> GpuPart:
        """A device as a part of its GPU; `counted` are the other resources that count it."""
        columns = tuple(
            at
            for at, resource in enumerate(self._resources)
            if isinstance(resource, Gpus) and resource.model in ("", found.model)
        )
        named = self._about_gpus()
        counts = named if found.is_gone else frozenset((*columns, *counted))
        return GpuPart(found.id, found.part, columns, counts, named)

    def _about_gpus(self) -> frozenset[int]:
        """The resources that are about GPUs."""
        if self._named is None:
            self._named = frozenset(
                at
                for at, resource in enumerate(self._resources)
                if self._published.is_about_gpus(resource)
            )
        return self._named

    def _consumed(self, result: DeviceResult, capacity: str) -> int:
        if result.share_id is None:
            device = DeviceId(result.driver, result.pool, result.device)
            amount = self._published.capacities(device).get(capacity)
        else:
            named = {
                qualified(result.driver, key): of for key, of in result.consumed_capacity.items()
            }
            amount = named.get(capacity)
        return 0 if amount is None else base_units(amount.nanos)


def expressions_of(claim: ResourceClaim) -> Iterator[str]:
    """The expressions that are written in a claim."""
    for request in claim.spec.devices.requests:
        for one in _alternatives(request):
            for selector in one.selectors:
                if selector.cel is not None:
                    yield selector.cel.expression
            for derived in one.derived_attributes:
                yield derived.expression


def _alternatives(request: DeviceRequest) -> Sequence[ExactDeviceRequest | DeviceSubRequest]:
    match request.wants:
        case Exactly(request=exact):
            return (exact,)
        case FirstAvailable(alternatives=alternatives):
            return alternatives
        case None:
            return ()
    assert_never(request.wants)


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


def asked_devices(claim: ResourceClaim) -> int:
    """How many devices a claim asks for by number, not counting those with admin access."""
    return sum(
        request.wants.request.mode.count
        for request in claim.spec.devices.requests
        if isinstance(request.wants, Exactly)
        and isinstance(request.wants.request.mode, ExactCount)
        and not request.wants.request.admin_access
    )


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
        case Gpus(model=""):
            return GPU * plugin_gpus(needs.extended)
        case Gpus() | DevicesOf() | CapacityOf():
            return 0
    assert_never(resource)


def _count(mode: ExactCount | All) -> int:
    match mode:
        case ExactCount(count=count):
            return count
        case All():
            return 1
    assert_never(mode)


def _classes(spec: ResourceClaimSpec) -> Iterator[tuple[str, str]]:
    """The class of each request, and of each alternative, by the name in results."""
    for request in spec.devices.requests:
        match request.wants:
            case Exactly(request=exact):
                yield request.name, exact.device_class_name
            case FirstAvailable(alternatives=alternatives):
                for one in alternatives:
                    yield f"{request.name}/{one.name}", one.device_class_name
            case None:
                continue
