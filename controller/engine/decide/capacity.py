"""What queues forbid: limits, and quotas for what is not preemptible."""

from collections.abc import Mapping
from typing import TypeAlias

from controller.engine.model.reason import OverLimit, OverQuota, UncountedGpus
from controller.engine.model.resource import Amounts
from controller.engine.state.state import State


def refusal(
    state: State, queue: str, asked: Amounts, *, preemptible: bool
) -> OverLimit | OverQuota | None:
    """Why a queue, or one above it, does not let a group have more; None if they do.

    Only resources of which it asks for some matter.
    """
    tree, accounts = state.tree, state.accounts
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


Balance: TypeAlias = Mapping[str, tuple[Amounts, Amounts, int]]
"""What a queue and those above it have, the part of it that is not preemptible, and how many
devices of GPUs no resource of theirs counts."""


def balance(state: State, queue: str) -> Balance:
    """What a queue and those above it have now."""
    accounts = state.accounts
    return {
        name: (accounts.allocated[name], accounts.firm[name], accounts.uncounted[name])
        for name in state.tree.paths[queue]
    }


def excess(state: State, before: Balance) -> OverLimit | OverQuota | UncountedGpus | None:
    """What has been exceeded since then: devices may count more than was asked for."""
    tree = state.tree
    for name, (allocated, firm, uncounted) in before.items():
        if state.accounts.uncounted[name] > uncounted:
            return UncountedGpus(name)
        quotas, limits = tree.quotas(name), tree.limits(name)
        then, firm_then = state.accounts.allocated[name], state.accounts.firm[name]
        for at, resource in enumerate(tree.resources):
            got, limit = then[at] - allocated[at], limits[at]
            if got > 0 and limit is not None and then[at] > limit:
                return OverLimit(name, resource, limit, allocated[at], got)
            got, quota = firm_then[at] - firm[at], quotas[at]
            if got > 0 and quota is not None and firm_then[at] > quota:
                return OverQuota(name, resource, quota, firm[at], got)
    return None
