"""The fair share of each queue in each resource, from what there is and what all ask for."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.decide.queues.fair_share import Claimant, divide_tree
from controller.engine.model.resource import (
    Amounts,
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    total,
)
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.plugin_gpus import plugin_gpus
from controller.engine.state.queue_tree import ROOT
from controller.engine.state.state import State


class Shares:
    """The fair shares, computed again when something they depend on has changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of: Mapping[str, Amounts] = {}
        self.totals: Amounts = ()
        """What there is of each resource for all queues together."""
        self._known: object = None
        self._requested: dict[str, Amounts] = {}

    def refresh(self) -> None:
        """Takes the state as it is now."""
        state = self._state
        self.totals = self._totals()
        inputs = (
            self.totals,
            state.occupancy.accounts,
            dict(state.occupancy.accounts.requested),
            self._held(),
            state.usage,
        )
        if inputs == self._known:
            return
        self._known = inputs
        tree = state.occupancy.tree
        self._requested = {}
        for name in tree.children[ROOT]:
            self._roll_up(name)
        by_resource = [self._divided(at) for at in range(len(tree.resources))]
        self._of = {
            name: tuple(shares.get(name, 0) for shares in by_resource) for name in tree.queues
        }

    def fair(self, queue: str) -> Amounts:
        """The fair share of a queue."""
        return self._of[queue]

    def allocatable(self, queue: str) -> Sequence[int]:
        """What a queue may count on: its quota, or its fair share if that is more, to its limit."""
        tree = self._state.occupancy.tree
        return [
            _allocatable(quota, limit, share, total)
            for quota, limit, share, total in zip(
                tree.quotas(queue), tree.limits(queue), self._of[queue], self.totals, strict=True
            )
        ]

    def _held(self) -> Mapping[str, Amounts]:
        """What queues have in which nothing starts, which is all that counts for them."""
        tree, accounts = self._state.occupancy.tree, self._state.occupancy.accounts
        if all(queue.admits for queue in tree.queues.values()):
            return {}
        stopped = (name for name in tree.queues if tree.stopped_by(name) is not None)
        return {name: accounts.allocated[name] for name in stopped}

    def _roll_up(self, name: str) -> Amounts:
        """What a queue asks for: what its children do, each up to its limit."""
        tree = self._state.occupancy.tree
        below = [self._roll_up(child) for child in tree.children.get(name, ())]
        asked = total(below, len(self.totals)) if below else self._asked(name)
        limits = tree.limits(name)
        capped = tuple(
            amount if limit is None else min(amount, limit)
            for amount, limit in zip(asked, limits, strict=True)
        )
        self._requested[name] = capped
        return capped

    def _asked(self, name: str) -> Amounts:
        """What the groups of a queue ask for; what waits where nothing starts asks for nothing."""
        tree, accounts = self._state.occupancy.tree, self._state.occupancy.accounts
        if tree.takes_work(name):
            return accounts.requested[name]
        pairs = zip(accounts.requested[name], accounts.allocated[name], strict=True)
        return tuple(map(min, pairs))

    def _divided(self, at: int) -> Mapping[str, int]:
        state = self._state
        tree, requested = state.occupancy.tree, self._requested
        resource = tree.resources[at]
        children: dict[str | None, Sequence[Claimant]] = {}
        for parent, names in tree.children.items():
            children[parent or None] = [
                self._claimant(name, at, requested[name][at], resource) for name in names
            ]
        unit = GPU if isinstance(resource, Gpus) else 1
        return divide_tree(self.totals[at], children, unit=unit, k=state.settings.usage_weight)

    def _claimant(self, name: str, at: int, request: int, resource: Resource) -> Claimant:
        queue, entitlement = (
            self._state.occupancy.tree.queues[name],
            self._state.occupancy.tree.entitlements(name)[at],
        )
        return Claimant(
            name=name,
            priority=queue.priority,
            age=round(queue.created * 1_000_000),
            quota=entitlement.quota,
            limit=entitlement.limit,
            weight=entitlement.weight,
            request=request,
            usage=self._state.usage.get(name, {}).get(resource, Fraction(0)),
        )

    def _totals(self) -> Amounts:
        """What nodes and devices offer, without what no queue is responsible for."""
        state = self._state
        foreign = state.occupancy.accounts.allocated[ROOT]
        return tuple(
            max(0, cluster_total(state.occupancy, resource) - foreign[at])
            for at, resource in enumerate(state.occupancy.tree.resources)
        )


def cluster_total(occupancy: Occupancy, resource: Resource) -> int:
    """How much of a resource nodes and devices offer at most at one time."""
    match resource:
        case Gpus(model=""):
            plugin = sum(
                plugin_gpus(node.extended.items())
                for node in occupancy.nodes.values()
                if not node.unschedulable
            )
            return occupancy.devices.total(resource) + GPU * plugin
        case Gpus() | DevicesOf() | CapacityOf():
            return occupancy.devices.total(resource)
        case Cpu():
            return occupancy.capacity.cpu
        case Memory():
            return occupancy.capacity.memory
        case Pods():
            return occupancy.capacity.pods
    assert_never(resource)


def _allocatable(quota: int | None, limit: int | None, share: int, total: int) -> int:
    wanted = (total if limit is None else limit) if quota is None else max(quota, share)
    return wanted if limit is None else min(limit, wanted)
