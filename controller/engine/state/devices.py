"""What queues and reasons need to know of the devices of a cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import is_own
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.usage import DeviceId, PoolId
from carina_dra.placement.bounds.membership import Membership
from carina_dra.placement.bounds.supply import Supply
from carina_dra.placement.cluster.card import NOTHING, CardParts, least_of, together
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.gpu import (
    DRIVERS,
    GPU,
    GpuId,
    PoolGpus,
    gpu_name,
    is_gpu,
    model_of,
)
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.quantity import Quantity
from carina_dra.resource import All, Device, DeviceClass, DeviceResult
from carina_dra.step_budget import OutOfStepsError, StepBudget
from carina_dra.work import Work
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DeviceResource,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
)
from controller.engine.state.asking import GpuOfDevice, base_units, qualified
from controller.engine.state.cards import Cards
from controller.engine.state.spare import Spare

_REMEMBERED: Final = 20_000
"""Of how many devices it is remembered which GPUs they are of."""
_POOLS: Final = 256
"""Of how many pools it is remembered what their GPUs have."""
_MANY: Final = 1_000_000
"""Stands for the shares of a device."""
_CARD: Final = 1_000_000


class NodeGpus(NamedTuple):
    """The GPUs of a node."""

    model: str
    number: int
    ways: int
    """How many ways there are to use each, such as its partitions; 1 if it is used as a whole."""


class Devices:
    """Counts devices and their capacities, and remembers them until the devices change."""

    def __init__(
        self, cluster: Cluster, classes: Mapping[str, DeviceClass], gpu_driver: str
    ) -> None:
        self._cluster = cluster
        self._supply = Supply(cluster)
        self._spare = Spare(cluster)
        self.cards = Cards(cluster)
        self._drivers = DRIVERS | {gpu_driver}
        self._members: dict[str, Membership] = {}
        """By class, once it is asked for."""
        self._pools: dict[PoolId, PoolGpus] = {}
        self._gpus: dict[DeviceId, GpuOfDevice | None] = {}
        """What devices that are not shared are of their GPUs."""
        self.classes = classes
        """The device classes by name."""
        self.class_moment = 0
        """How often classes have changed."""

    def forget_classes(self) -> None:
        """Records that the device classes have changed."""
        self.class_moment += 1
        self._members.clear()

    def forget_published(self) -> None:
        """Records that slices have changed."""
        self._pools.clear()
        self._gpus.clear()

    def has_any(self, node: str) -> bool:
        """Whether a node offers devices."""
        offer = self._offer(node)
        return offer is not None and bool(offer.pools)

    def spare(self) -> int:
        """How many more devices claims could have at most, if others kept as many as they have."""
        return self._spare.devices()

    def most_free(self, node: str) -> int:
        """How many requests for a device could have one of a node at most."""
        free = 0
        for offered in self._ready(node):
            pool = self._cluster.pool_state(offered)
            usable = pool.free & offered.here
            free += _MANY if usable & offered.shareable else usable.bit_count()
        return free

    def free_cards(self, node: str) -> int:
        """What is free of the node's own devices, in millionths of a card."""
        return sum(
            _CARD - used
            for offered in self._ready(node)
            for group, used in self._cluster.pool_state(offered).uses
            if group.is_own
        )

    def part(self, result: DeviceResult) -> int:
        """Which part of its GPU an allocated device is, in millionths; 0 if it is no GPU's."""
        if result.admin_access or result.driver not in self._drivers:
            return 0
        found = self.gpu(result)
        if found is not None:
            return max(1, found.part * _CARD // GPU)
        if result.share_id is None:
            return _CARD
        has = self.capacities(DeviceId(result.driver, result.pool, result.device))
        consumed = {
            qualified(result.driver, key): amount
            for key, amount in result.consumed_capacity.items()
        }
        return _largest_part(consumed, has)

    def least_part(self, wanted: Alternative, node: str, budget: StepBudget) -> int | None:
        """The least part of the first of a node's GPUs that a request selects, in millionths.

        None if it selects none.

        Raises:
            OutOfStepsError: the selectors cost more than the budget.
        """
        for offered in self._ready(node):
            group = next((own for own in offered.groups if own.is_own), None)
            if group is None or offered.pool.id.driver not in self._drivers:
                continue
            mask, work = group.mask, Work(budget)
            for named in wanted.selectors:
                mask &= offered.selected(named.selector, mask, work).mask
            budget.spend(work.steps)
            parts = [
                self._part_of(wanted, member)
                for member, bit in zip(group.members, group.bits, strict=True)
                if mask & bit
            ]
            return min(parts, default=None)
        return None

    def _part_of(self, wanted: Alternative, member: Candidate) -> int:
        asked = wanted.capacity.requests if wanted.capacity else {}
        driver = member.id.driver
        if asked and member.device.allow_multiple_allocations:
            consumed = {qualified(driver, key): of for key, of in asked.items()}
            return _largest_part(consumed, self.capacities(member.id))
        return self.part(DeviceResult("", driver, member.id.pool, member.id.device))

    def free_parts(self, node: str) -> tuple[int, ...]:
        """What is free of each GPU of a node, in millionths, the most first.

        Raises:
            AllocationError: nothing can be allocated there, since a slice is wrong.
        """
        used: list[int] = []
        for offered in self._cluster.offer(node).ready:
            if offered.pool.id.driver in self._drivers:
                if self._cluster.is_in_use(node):
                    uses = self._cluster.pool_state(offered).uses
                    used += [use for group, use in uses if group.is_own]
                else:
                    used += [0 for group in offered.groups if group.is_own]
        used.sort()
        return tuple([_CARD - use for use in used])

    def model(self, node: str) -> NodeGpus:
        """What the GPUs of a node are, by the first of them."""
        own = list(self._own_gpus(node))
        if not own:
            return NodeGpus("", 0, 0)
        first = own[0][0]
        shared = sum(bool(one.device.allow_multiple_allocations) for one in own[0])
        model = model_of(first.device, first.id.driver)
        return NodeGpus(model, len(own), len(own[0]) + shared)

    def _own_gpus(self, node: str) -> Iterator[Sequence[Candidate]]:
        """The GPUs of a node, with the devices of each."""
        for offered in self._ready(node):
            if offered.pool.id.driver not in self._drivers:
                continue
            if offered.pool.counters:
                yield from (group.members for group in offered.groups if group.is_own)
            else:
                yield from ((device,) for device in offered.devices if is_own(device))

    def offered(self, node: str) -> Offer | None:
        """What a node offers; the same object until that changes."""
        return self._offer(node) if node in self._cluster.nodes else None

    def _offer(self, node: str) -> Offer | None:
        """The pools of a node; None if nothing can be allocated there, since a slice is wrong."""
        try:
            return self._cluster.offer(node)
        except AllocationError:
            return None

    def _ready(self, node: str) -> Sequence[OfferedPool]:
        offer = self._offer(node)
        return () if offer is None else offer.ready

    def leave_out(self, nodes: Collection[str]) -> None:
        """Counts none of the devices of some nodes in what there is."""
        self._supply.leave_out(nodes)

    def total(self, resource: DeviceResource) -> int:
        """How much of a resource there is at most at one time."""
        match resource:
            case Gpus(model=model):
                return self._supply.gpus(model, self._drivers)
            case DevicesOf(device_class=name):
                device_class = self.classes.get(name)
                return 0 if device_class is None else self._supply.devices(device_class)
            case CapacityOf(name=name):
                return base_units(self._supply.capacity(name))

    def least(self, wanted: Alternative, resource: DeviceResource, budget: StepBudget) -> int:
        """The least of a resource that a request for one device counts; 0 if it gets none.

        It is 0 too if its selectors cost too much to say: what it gets is counted all the same.
        """
        try:
            return self._least(wanted, resource, budget) or 0
        except OutOfStepsError:
            return 0

    @property
    def least_moment(self) -> tuple[int, int]:
        """While it is the same, the least that requests take is the same."""
        return self.class_moment, self._supply.moment

    def least_of(self, claims: Iterable[Claim], budget: StepBudget) -> CardParts:
        """What claims take of the cards of their node at least, as far as that is known.

        Nodes that are left out do not count. What costs too much to say is nothing.
        """
        return together(
            [
                least_of(self._least_of(wanted, budget) for wanted in request.alternatives)
                or NOTHING
                for claim in claims
                for request in claim.requests
            ]
        )

    def _least_of(self, wanted: Alternative, budget: StepBudget) -> CardParts:
        count = 1 if isinstance(wanted.mode, All) else wanted.mode.count
        return self._least_parts(wanted, budget).times(count)

    def _least_parts(self, wanted: Alternative, budget: StepBudget) -> CardParts:
        try:
            return self._supply.least_parts(wanted, self._drivers, budget) or NOTHING
        except OutOfStepsError:
            return NOTHING

    def _least(
        self, wanted: Alternative, resource: DeviceResource, budget: StepBudget
    ) -> int | None:
        match resource:
            case Gpus(model=model):
                return self._supply.least_gpus(wanted, model, self._drivers, budget)
            case DevicesOf(device_class=name):
                if name == wanted.device_class.metadata.name:
                    return 1
                device_class = self.classes.get(name)
                if device_class is None:
                    return None
                return self._supply.least_selected(wanted, device_class, budget)
            case CapacityOf(name=name):
                least = self._supply.least(wanted, name, budget)
                return None if least is None else base_units(least)
        assert_never(resource)

    def is_about_gpus(self, resource: Resource) -> bool:
        """Whether a resource counts GPUs, or something of them."""
        match resource:
            case Gpus():
                return True
            case CapacityOf(name=name):
                return name.partition("/")[0] in self._drivers
            case DevicesOf(device_class=name):
                device_class = self.classes.get(name)
                return device_class is not None and self._selects_gpus(device_class)
            case Cpu() | Memory() | Pods():
                return False
        assert_never(resource)

    def _selects_gpus(self, device_class: DeviceClass) -> bool:
        expressions = (
            one.cel.expression for one in device_class.spec.selectors if one.cel is not None
        )
        if any(driver in text for text in expressions for driver in self._drivers):
            return True
        return self._supply.gpus("", self._drivers, selected_by=device_class) > 0

    def gpu(self, result: DeviceResult) -> GpuOfDevice | None:
        """The GPU, and the part of it, that an allocated device is; None if it is no GPU's."""
        if result.driver not in self._drivers:
            return None
        if result.share_id is not None:
            return self._find_gpu(result)
        key = DeviceId(result.driver, result.pool, result.device)
        if key not in self._gpus:
            if len(self._gpus) >= _REMEMBERED:
                self._gpus.clear()
            self._gpus[key] = self._find_gpu(result)
        return self._gpus[key]

    def _find_gpu(self, result: DeviceResult) -> GpuOfDevice | None:
        driver, pool = result.driver, result.pool
        device = self._cluster.published(DeviceId(driver, pool, result.device))
        if device is None:
            return GpuOfDevice(GpuId(driver, pool, result.device), GPU, "", is_gone=True)
        if not is_gpu(device, driver, self._drivers):
            return None
        consumed = None if result.share_id is None else result.consumed_capacity
        part = self._pool(PoolId(driver, pool)).part(device, consumed)
        return GpuOfDevice(
            GpuId(driver, pool, gpu_name(device, driver)), part, model_of(device, driver)
        )

    def is_of(self, result: DeviceResult, device_class: str, named: str | None) -> bool:
        """Whether a class selects an allocated device; `named` is the class of its request.

        A device that is not published any more is of the class of its request.
        """
        device = self._cluster.published(DeviceId(result.driver, result.pool, result.device))
        if device is None or device_class not in self.classes:
            return named == device_class
        members = self._members.get(device_class)
        if members is None:
            members = self._members[device_class] = Membership(self.classes[device_class])
        return members.has(device, result.driver)

    def _pool(self, pool: PoolId) -> PoolGpus:
        known = self._pools.get(pool)
        if known is None:
            if len(self._pools) >= _POOLS:
                self._pools.clear()
            known = self._pools[pool] = _pool_gpus(pool, self._cluster)
        return known

    def capacities(self, device: DeviceId) -> dict[str, Quantity]:
        """The capacities of a published device by their qualified names."""
        found = self._cluster.published(device)
        if found is None:
            return {}
        return {
            qualified(device.driver, name): capacity.value
            for name, capacity in found.capacity.items()
        }


def _largest_part(amounts: Mapping[str, Quantity], capacities: Mapping[str, Quantity]) -> int:
    """The largest part that amounts are of capacities, in millionths."""
    parts = [
        amount.nanos * _CARD // capacities[name].nanos
        for name, amount in amounts.items()
        if name in capacities and capacities[name].nanos > 0
    ]
    return min(_CARD, max(1, max(parts, default=_CARD)))


def _pool_gpus(pool: PoolId, cluster: Cluster) -> PoolGpus:
    devices: list[Device] = []
    counters: dict[str, dict[str, int]] = {}
    for published in cluster.slices_of(pool):
        devices += published.spec.devices
        for shared in published.spec.shared_counters:
            amounts = {name: counter.value.nanos for name, counter in shared.counters.items()}
            counters[shared.name] = amounts
    return PoolGpus(pool.driver, devices, counters)
