"""What queues forbid: limits, and quotas for what is not preemptible."""

from controller.model.reason import OverLimit, OverQuota
from controller.model.resource import Amounts
from controller.state.state import State


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
