"""A question about all pools of a cluster, answered pool by pool.

The answer for a pool is kept until the pool changes, and holds for pools of the same kind. If each
pool were evaluated, the first plan after a load of the engine would take 1.5 times as long, and the
supply of `published` 3 times.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from carina_dra.allocator.features import Features
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.allocator.request import NamedSelector
from carina_dra.allocator.taint import untolerated
from carina_dra.allocator.usage import DeviceAmounts, DeviceId, PoolId
from carina_dra.cel import CompileError
from carina_dra.placement.cluster.changes import Changes
from carina_dra.placement.cluster.offer import OfferedPool, devices_of
from carina_dra.placement.cluster.pool_kind import PoolKind
from carina_dra.resource import DeviceToleration
from carina_dra.step_budget import OutOfStepsError, StepBudget
from carina_dra.work import Work

V = TypeVar("V")
T = TypeVar("T")

_Price: TypeAlias = tuple[Hashable, int]
"""What an evaluation was about, and its steps."""
_ANSWERS: Final = 1_024
"""The number of answers that are kept of pools of a kind, by the values of attributes."""


@dataclass(frozen=True, slots=True)
class View:
    """A pool as some nodes see it."""

    kind: PoolKind
    nodes: set[str] = field(default_factory=set)


Views: TypeAlias = Mapping[OfferedPool, View]
"""A pool as all nodes see it: they may reach different devices of it."""


@dataclass(frozen=True, slots=True)
class DeviceSelection:
    """Which devices a question is about."""

    selectors: tuple[NamedSelector, ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    """Devices with other taints that prevent allocation are left out."""
    measured: tuple[str, ...] | None = ()
    """The attributes that the measure reads beside them; None if they are not known."""

    @property
    def key(self) -> Hashable:
        """Equal for selections of the same devices."""
        return tuple(named.selector for named in self.selectors), self.tolerations

    @property
    def reads(self) -> Collection[str] | None:
        """The attributes that the selectors read; None if they are not known."""
        if self.measured is None:
            return None
        read = set(self.measured)
        for named in self.selectors:
            if isinstance(named.selector, CompileError):
                continue  # it selects nothing
            if named.selector.reads is None:
                return None
            read |= named.selector.reads
        return sorted(read)


class Tally(Generic[V, T]):
    """The answer to a question, made of the answers for each pool."""

    def __init__(
        self,
        selection: DeviceSelection,
        measure: Callable[[Collection[Candidate], ReadyPool], V],
        together: Callable[[Iterable[V]], T],
        features: Features,
    ) -> None:
        """`measure` answers for the selected devices of a pool, `together` for all pools."""
        self._selection = selection
        self._reads = selection.reads
        self._measure = measure
        self._together = together
        self._features = features
        self._moment = -1
        self._of_kind: WeakKeyDictionary[PoolKind, dict[Hashable, tuple[V, int]]] = (
            WeakKeyDictionary()
        )
        self._of_pool: dict[PoolId, V] = {}
        self._prices: dict[PoolId, _Price] = {}
        self._failed_at = -1
        self._answer = together(())
        self.steps = 0
        """What the answer costs if nothing is known: alike pools cost once."""

    def answer(
        self,
        pools: Mapping[PoolId, Views],
        changed: Changes[PoolId],
        most: int | None = None,
    ) -> T:
        """The answer for all pools; those that have changed are evaluated.

        Raises:
            OutOfStepsError: it costs more than `most` steps to evaluate all pools.
        """
        if self._moment == changed.now:
            return self._answer
        if self._failed_at == changed.now and most is not None:
            raise OutOfStepsError(most)
        budget = StepBudget.unlimited() if most is None else StepBudget(most)
        try:
            self._catch_up(pools, changed, budget)
        except OutOfStepsError:
            self._failed_at = changed.now
            raise
        self._moment = changed.now
        self._answer = self._together(self._of_pool.values())
        return self._answer

    def _catch_up(
        self, pools: Mapping[PoolId, Views], changed: Changes[PoolId], budget: StepBudget
    ) -> None:
        names: Iterable[PoolId] = changed.since(self._moment)
        if not changed.is_known_since(self._moment):
            names = pools.keys() | self._of_pool.keys()
        for name in names:
            if name in pools:
                self._of_pool[name], self._prices[name] = self._evaluate(name, pools[name], budget)
            else:
                self._of_pool.pop(name, None)
                self._prices.pop(name, None)
        self.steps = sum(dict(self._prices.values()).values())
        StepBudget(budget.limit).spend(self.steps)  # as much as if nothing had been known

    def _evaluate(self, name: PoolId, views: Views, budget: StepBudget) -> tuple[V, _Price]:
        """The answer for a pool, and the price of it, which alike pools have in common."""
        usable = {offered: self._usable(offered) for offered in _in_order(views)}
        if len(usable) > 1 or self._reads is None:
            value, steps = self._measured(usable, budget)
            return value, (name, steps)
        ((offered, mask),) = usable.items()
        kind = views[offered].kind
        known = self._of_kind.setdefault(kind, {})
        key = mask, kind.values(offered, self._reads)
        if key not in known:
            if len(known) >= _ANSWERS:
                known.clear()
            known[key] = self._measured(usable, budget)
        value, steps = known[key]
        return value, ((id(known), key), steps)

    def _usable(self, offered: OfferedPool) -> int:
        """The devices that can be allocated if they are selected."""
        mask = offered.here
        for bit, device in devices_of(mask & offered.tainted, offered.devices):
            if untolerated(device.device, self._selection.tolerations):
                mask &= ~bit
        if not self._features.binding_conditions:
            for bit, device in devices_of(mask, offered.devices):
                if device.device.binding_conditions:
                    mask &= ~bit
        return mask

    def _measured(self, usable: Mapping[OfferedPool, int], budget: StepBudget) -> tuple[V, int]:
        """The answer for a pool, and what it costs in steps."""
        work = Work(budget)
        found: dict[DeviceId, Candidate] = {}
        for offered, among in usable.items():
            mask = among
            for named in self._selection.selectors:
                mask &= offered.selected(named.selector, mask, work).mask
            for _, device in devices_of(mask, offered.devices):
                found.setdefault(device.id, device)
        budget.spend(work.steps)
        together = _together([offered.pool for offered in usable])
        return self._measure(found.values(), together), work.steps


def _in_order(views: Views) -> Collection[OfferedPool]:
    """The views of a pool, in an order that does not depend on what has changed when."""
    if len(views) == 1:
        return views.keys()
    return sorted(views, key=lambda offered: min(views[offered].nodes))


def _together(views: Sequence[ReadyPool]) -> ReadyPool:
    """A pool as all of its nodes see it; they differ in counters only while it is published."""
    first = views[0]
    if len(views) == 1:
        return first
    counters: dict[str, DeviceAmounts] = {}
    for view in views:
        for name, amounts in view.counters.items():
            counters[name] = {**amounts, **counters.get(name, {})}
    return ReadyPool(first.id, first.devices, first.elsewhere, counters)
