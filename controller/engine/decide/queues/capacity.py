"""What queues forbid: limits, and quotas for what is not preemptible."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from carina_dra.allocator.usage import PoolId
from controller.engine.model.reason import OverLimit, OverQuota, TooManyGpus, UncountedGpus
from controller.engine.model.resource import Amounts
from controller.engine.state.occupancy import Occupancy


def refusal(
    occupancy: Occupancy, queue: str, asked: Amounts, *, preemptible: bool
) -> OverLimit | OverQuota | None:
    """Why a queue, or one above it, does not let a group have more; None if they do.

    Only resources of which it asks for some matter.
    """
    tree, accounts = occupancy.tree, occupancy.accounts
    for name in tree.paths[queue]:
        allocated, firm = accounts.allocated[name], accounts.firm[name]
        quotas, limits = tree.quotas(name), tree.limits(name)
        for at, amount in enumerate(asked):
            if amount <= 0:
                continue
            limit, quota = limits[at], quotas[at]
            if limit is not None and allocated[at] + amount > limit:
                return OverLimit(name, tree.resources[at], limit, allocated[at], amount)
            if not preemptible and quota is not None and firm[at] + amount > quota:
                return OverQuota(name, tree.resources[at], quota, firm[at], amount)
    return None


class QueueAccount(NamedTuple):
    """What a queue has at one time."""

    allocated: Amounts
    firm: Amounts
    """The part of it that is not preemptible."""
    firmly_keeps: Amounts
    """The same, each GPU as a whole one."""
    uncounted: int
    """How many devices of GPUs no resource of the queue counts."""


Balance: TypeAlias = Mapping[str, QueueAccount]
"""The accounts of a queue and of those above it."""


def balance(occupancy: Occupancy, queue: str) -> Balance:
    """What a queue and those above it have now."""
    return {name: _account(occupancy, name) for name in occupancy.tree.paths[queue]}


def excess(
    occupancy: Occupancy, before: Balance
) -> OverLimit | OverQuota | TooManyGpus | UncountedGpus | None:
    """What has been exceeded since then: devices may count more than was asked for."""
    tree = occupancy.tree
    for name, was in before.items():
        now = _account(occupancy, name)
        if now.uncounted > was.uncounted:
            return UncountedGpus(name)
        quotas, kept, limits = tree.quotas(name), tree.kept_quotas(name), tree.limits(name)
        for at, resource in enumerate(tree.resources):
            got, limit = now.allocated[at] - was.allocated[at], limits[at]
            if got > 0 and limit is not None and now.allocated[at] > limit:
                return OverLimit(name, resource, limit, was.allocated[at], got)
            got, quota = now.firm[at] - was.firm[at], quotas[at]
            if got > 0 and quota is not None and now.firm[at] > quota:
                return OverQuota(name, resource, quota, was.firm[at], got)
            keeps, most = now.firmly_keeps[at], kept[at]
            if most is not None and keeps > max(most, was.firmly_keeps[at]):
                return TooManyGpus(name, resource, most, keeps)
    return None


def nodes_of_firm_gpus(occupancy: Occupancy, queue: str) -> frozenset[str]:
    """The nodes with GPUs of which groups of a queue that are not preemptible have parts."""
    pools = {PoolId(gpu.driver, gpu.pool) for gpu in occupancy.accounts.firm_gpus(queue)}
    return frozenset(node for pool in pools for node in occupancy.cluster.nodes_of(pool))


def _account(occupancy: Occupancy, name: str) -> QueueAccount:
    accounts = occupancy.accounts
    return QueueAccount(
        accounts.allocated[name],
        accounts.firm[name],
        accounts.firmly_keeps(name),
        accounts.uncounted[name],
    )
