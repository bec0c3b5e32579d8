"""What a cluster can give at one time if nothing is in use: what quotas and fair shares divide.

Each pool is evaluated when it is first asked for, and again when its slices or taints change. The
devices of pools that cannot be used, and devices with a taint that prevents allocation, are not
counted.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.group import groups
from carina_dra.allocator.matching import amounts_of
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.request import Alternative, NamedSelector, selectors_of
from carina_dra.allocator.usage import PoolId
from carina_dra.cel import CelDevice, CompileError, EvaluationError
from carina_dra.placement.bounds.most_together import amount_of, most_capacity, most_claims, most_of
from carina_dra.placement.bounds.tally import DeviceSelection, Tally, View
from carina_dra.placement.cluster.card import NOTHING, Card, CardParts, is_card, least_of
from carina_dra.placement.cluster.changes import Changes
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.gpu import (
    GPU,
    PoolGpus,
    attributes_read,
    gpu_name,
    is_gpu,
    is_partition,
    model_of,
)
from carina_dra.placement.cluster.offer import OfferedPool, Taints
from carina_dra.placement.cluster.pool_kind import PoolKinds
from carina_dra.price import LEAST
from carina_dra.resource import DeviceClass, lookup
from carina_dra.step_budget import OutOfStepsError, StepBudget

T = TypeVar("T")
V = TypeVar("V")

_REMEMBERED: Final = 128
"""The number of questions of each sort of which the answers for each pool are kept."""
_GONE: Final = 1_024
"""About how many pools that are gone are remembered as changed."""


class Supply:
    """What the nodes of a cluster can give, kept while the cluster changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left_out: frozenset[str] = frozenset()
        self._moments = (-1, -1, -1, -1)
        self._seen: dict[str, Sequence[tuple[OfferedPool, Taints]]] = {}
        """The pools of each node, with their devices that have taints."""
        self._kinds = PoolKinds()
        self._views: dict[PoolId, dict[OfferedPool, View]] = {}
        self._changed = Changes[PoolId]()
        self._devices: _Remembered[Tally[int, int]] = _Remembered()
        self._capacities: _Remembered[Tally[int, int]] = _Remembered()
        self._gpus: _Remembered[Tally[int, int]] = _Remembered()
        self._least: _Remembered[Tally[int | None, int | None]] = _Remembered()
        self._parts: _Remembered[Tally[CardParts | None, CardParts | None]] = _Remembered()

    def leave_out(self, nodes: Collection[str]) -> None:
        """Counts no devices of these nodes any more, and those of all others."""
        before, self._left_out = self._left_out, frozenset(nodes)
        for name in before ^ self._left_out:
            self._look(name)

    def devices(self, device_class: DeviceClass) -> int:
        """How many claims can have a device of a class at one time.

        A device of which claims get shares counts as many times as its smallest shares fit. The
        number is a lower bound where devices draw differently from the same counters.
        """
        selection, features = DeviceSelection(selectors_of(device_class)), self._cluster.features
        measure = partial(most_claims, features=features)
        tally = self._devices.get(selection.key, lambda: Tally(selection, measure, sum, features))
        return self._answer(tally)

    def capacity(self, name: str) -> int:
        """How much of a capacity claims can have at one time, in billionths.

        The name is qualified, such as `gpu.carina.dev/memory`. The amount is a lower bound where
        devices draw differently from the same counters.
        """
        features = self._cluster.features
        measure = partial(most_capacity, capacity=name, features=features)
        tally = self._capacities.get(name, lambda: Tally(DeviceSelection(), measure, sum, features))
        return self._answer(tally)

    def least(
        self, wanted: Alternative, capacity: str, budget: StepBudget | None = None
    ) -> int | None:
        """The least that a request takes of a capacity if it gets a device, in billionths.

        The device is one that the request could have if nothing were in use. Of a device that is
        shared, it is what the request consumes; of another, all that it has. None if no device that
        the request could have has the capacity.

        Raises:
            OutOfStepsError: the selectors cost more than `LEAST` steps, or than the budget.
        """
        selection = DeviceSelection(wanted.selectors, wanted.tolerations)
        features = self._cluster.features
        requests = wanted.capacity.requests if wanted.capacity else {}

        def measure(devices: Iterable[Candidate], _: ReadyPool) -> int | None:
            taken = (_taken(wanted, device, capacity, features) for device in devices)
            return _least(taken)

        key = selection.key, capacity, frozenset(requests.items())
        tally = self._least.get(key, lambda: Tally(selection, measure, _least, features))
        return self._least_of(key, tally, budget)

    def gpus(
        self, model: str, drivers: frozenset[str], *, selected_by: DeviceClass | None = None
    ) -> int:
        """How many GPUs claims can have at one time, in `GPU`.

        A GPU of which only partitions can be had counts as much as they are together.

        model: the product name of those that count; empty for all.
        selected_by: a class; only GPUs of which it selects a device count.
        """
        features = self._cluster.features
        selectors = () if selected_by is None else selectors_of(selected_by)
        selection = DeviceSelection(selectors, measured=attributes_read(drivers))

        def measure(devices: Iterable[Candidate], pool: ReadyPool) -> int:
            among = (device for device in devices if _counts(device, model, drivers))
            return _gpus_of(among, pool, features)

        tally = self._gpus.get(
            (selection.key, model, drivers), lambda: Tally(selection, measure, sum, features)
        )
        return self._answer(tally)

    def least_gpus(
        self,
        wanted: Alternative,
        model: str,
        drivers: frozenset[str],
        budget: StepBudget | None = None,
    ) -> int | None:
        """The least part of a GPU that a request counts if it gets a device, in `GPU`.

        It is 0 if the request may get a device that does not count, and None if it gets none.

        Raises:
            OutOfStepsError: the selectors cost more than `LEAST` steps, or than the budget.
        """
        reads = attributes_read(drivers)
        selection = DeviceSelection(wanted.selectors, wanted.tolerations, reads)
        features = self._cluster.features
        requests = wanted.capacity.requests if wanted.capacity else {}

        def measure(devices: Iterable[Candidate], pool: ReadyPool) -> int | None:
            gpus = _pool_gpus(pool)
            return _least(
                _part(wanted, device, gpus, features) if _counts(device, model, drivers) else 0
                for device in devices
            )

        key = selection.key, "gpus", model, drivers, frozenset(requests.items())
        tally = self._least.get(key, lambda: Tally(selection, measure, _least, features))
        return self._least_of(key, tally, budget)

    def least_parts(
        self, wanted: Alternative, drivers: frozenset[str], budget: StepBudget | None = None
    ) -> CardParts | None:
        """The least parts of the cards of a node that a request takes for a device.

        None if it gets none. `drivers` are those of which some devices only show others.

        Raises:
            OutOfStepsError: the selectors cost more than `LEAST` steps, or than the budget.
        """
        reads = tuple(f"{driver}/type" for driver in sorted(drivers))
        selection = DeviceSelection(wanted.selectors, wanted.tolerations, reads)
        features = self._cluster.features
        requests = wanted.capacity.requests if wanted.capacity else {}

        def measure(devices: Iterable[Candidate], pool: ReadyPool) -> CardParts | None:
            cards = {
                member.id: card
                for group in groups(pool)
                if is_card(group)
                for card in [Card(group, features)]
                for member in group.members
            }
            return least_of(
                cards[device.id].least(wanted, device.id) if device.id in cards else NOTHING
                for device in devices
            )

        key = selection.key, "parts", drivers, wanted.admin_access, frozenset(requests.items())
        tally = self._parts.get(key, lambda: Tally(selection, measure, least_of, features))
        return self._least_of(key, tally, budget)

    @property
    def moment(self) -> int:
        """How often what nodes offer has changed."""
        self._catch_up()
        return self._changed.now

    def least_selected(
        self, wanted: Alternative, device_class: DeviceClass, budget: StepBudget | None = None
    ) -> int | None:
        """1 if all devices that a request may get are of a class, 0 if not, None if there is none.

        Raises:
            OutOfStepsError: the selectors cost more than `LEAST` steps, or than the budget.
        """
        selectors = selectors_of(device_class)
        reads = DeviceSelection(selectors).reads
        measured = None if reads is None else tuple(reads)
        selection = DeviceSelection(wanted.selectors, wanted.tolerations, measured)
        features = self._cluster.features

        def measure(devices: Iterable[Candidate], _: ReadyPool) -> int | None:
            return _least(int(selects(selectors, device.view)) for device in devices)

        key = selection.key, "class", tuple(named.selector for named in selectors)
        tally = self._least.get(key, lambda: Tally(selection, measure, _least, features))
        return self._least_of(key, tally, budget)

    def _least_of(self, key: Hashable, tally: Tally[V, T], budget: StepBudget | None) -> T:
        """The least that a request takes; the budget is charged as if nothing were known."""
        if budget is not None:
            budget.spend(0)  # nothing is begun that cannot be paid
        try:
            answer = self._answer(tally, LEAST)
        except OutOfStepsError:
            if budget is not None:
                budget.spend_once(key, LEAST)
            raise
        if budget is not None:
            budget.spend_once(key, tally.steps)
        return answer

    def _answer(self, tally: Tally[V, T], most: int | None = None) -> T:
        self._catch_up()
        return tally.answer(self._views, self._changed, most)

    # What has changed.

    def _catch_up(self) -> None:
        cluster = self._cluster
        nodes, pools = cluster.changed_nodes, cluster.changed_pools
        before = self._moments
        now = cluster.wide_moment, cluster.taint_moment, nodes.now, pools.now
        if before == now:
            return
        is_listed = before[:2] == now[:2] and nodes.is_known_since(before[2])
        if is_listed:
            changed = {*nodes.since(before[2]), *self._nodes_of(pools.since(before[3]))}
        else:
            changed = {*cluster.nodes, *self._seen}
        for name in changed:
            self._look(name)
        self._moments = now
        if len(self._changed) > 2 * len(self._views) + _GONE:
            self._changed.forget_all_but(self._views)

    def _nodes_of(self, pools: Iterable[PoolId]) -> Iterator[str]:
        """The nodes that see wide pools differently now: mostly only their usage has changed."""
        for pool in pools:
            for view in self._views.get(pool, {}).values():
                first = next(iter(view.nodes))  # all nodes of a view see the same of the pool
                if tuple(self._offered(first)) != self._seen[first]:
                    yield from view.nodes

    def _look(self, node: str) -> None:
        """Applies the pools that a node offers now."""
        before, after = self._seen.get(node, ()), tuple(self._offered(node))
        if before == after:
            return
        if after:
            self._seen[node] = after
        else:
            del self._seen[node]
        for offered, _ in after:
            views = self._views.setdefault(offered.pool.id, {})
            if offered not in views:
                views[offered] = View(self._kinds.of(offered))
            views[offered].nodes.add(node)
            self._changed.add(offered.pool.id)
        for offered in {offered for offered, _ in before} - {offered for offered, _ in after}:
            pool = offered.pool.id
            views = self._views[pool]
            views[offered].nodes.remove(node)
            if not views[offered].nodes:
                del views[offered]
            if not views:
                del self._views[pool]
            self._changed.add(pool)

    def _offered(self, node: str) -> Iterator[tuple[OfferedPool, Taints]]:
        if node in self._left_out or node not in self._cluster.nodes:
            return
        try:
            offer = self._cluster.offer(node)
        except AllocationError:  # the node's allocations fail
            return
        for offered in offer.ready:
            yield offered, offered.taints


class _Remembered(Generic[T]):
    """The values that were asked for last."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, new: Callable[[], T]) -> T:
        """The value of a key; a new one if it is not remembered."""
        value = self._values.pop(key, None)
        if value is None:
            value = new()
            if len(self._values) >= _REMEMBERED:
                self._values.popitem(last=False)
        self._values[key] = value
        return value


def _taken(wanted: Alternative, device: Candidate, capacity: str, features: Features) -> int | None:
    """What a request takes of a capacity of a selected device; None if it cannot have any."""
    is_shared = features.consumable_capacity and device.device.allow_multiple_allocations
    if wanted.capacity is None and not is_shared:
        return amount_of(device, capacity) or None
    try:
        amounts = amounts_of(wanted, device, features)
    except AllocationError:
        return None
    if amounts is None or not fits(amounts, device.device.capacity):
        return None
    if not is_shared:
        return amount_of(device, capacity) or None
    amount = lookup(amounts, capacity, device.id.driver)
    return None if amount is None else amount.nanos or None


def selects(selectors: Iterable[NamedSelector], device: CelDevice) -> bool:
    """Whether all selectors of a class select a device; one that fails does not."""
    try:
        return all(
            not isinstance(named.selector, CompileError) and named.selector.matches(device)
            for named in selectors
        )
    except EvaluationError:
        return False


def _counts(device: Candidate, model: str, drivers: frozenset[str]) -> bool:
    """Whether a device is of a GPU, of a model if there is one."""
    driver = device.id.driver
    if not is_gpu(device.device, driver, drivers):
        return False
    return not model or model_of(device.device, driver) == model


def _pool_gpus(pool: ReadyPool) -> PoolGpus:
    devices = [one.device for one in (*pool.devices, *pool.elsewhere)]
    return PoolGpus(pool.id.driver, devices, pool.counters)


def _part(wanted: Alternative, device: Candidate, gpus: PoolGpus, features: Features) -> int | None:
    """The part of its GPU that a request takes of a selected device; None if it cannot have any."""
    is_shared = features.consumable_capacity and device.device.allow_multiple_allocations
    if wanted.capacity is None and not is_shared:
        return gpus.part(device.device)
    try:
        amounts = amounts_of(wanted, device, features)
    except AllocationError:
        return None
    if amounts is None or not fits(amounts, device.device.capacity):
        return None
    return gpus.part(device.device, amounts if is_shared else None)


def _gpus_of(devices: Iterable[Candidate], pool: ReadyPool, features: Features) -> int:
    parts: dict[str, dict[Candidate, int]] = {}
    whole: set[str] = set()
    gpus = _pool_gpus(pool)
    for device in devices:
        name = gpu_name(device.device, device.id.driver)
        parts.setdefault(name, {})[device] = gpus.part(device.device)
        if not is_partition(device.device, device.id.driver):
            whole.add(name)
    return sum(
        GPU if name in whole else min(GPU, most_of(partitions, pool, features))
        for name, partitions in parts.items()
    )


def _least(amounts: Iterable[int | None]) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)
