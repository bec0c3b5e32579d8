"""Who is being evicted, and what keeps pods from being evicted: budgets, and the API server."""

from typing import Final

from controller.observe.budget import Budget, budgets_of
from controller.observe.pod import ObservedPod

_NOT_EVICTABLE: Final = "(refused)"
"""Stands for a budget that is spent: the API server has refused to evict the pod."""


class Disruptions:
    """Disruption budgets, and the evictions that the controller has asked for."""

    def __init__(self) -> None:
        self.evicting: dict[str, str] = {}
        """The pods that are being evicted, with their UIDs."""
        self._budgets: dict[str, dict[str, Budget]] = {}
        """By namespace and key."""
        self._refused_until: dict[str, float] = {}
        """By pod: until when the API server need not be asked again."""
        self._in_namespace: dict[str, dict[str, None]] = {}
        """By namespace: the pods that name a queue."""

    def put_pod(self, pod: ObservedPod) -> None:
        """Takes notice of a pod; budgets matter for those that name a queue."""
        if pod.queue is not None:
            self._in_namespace.setdefault(pod.namespace, {})[pod.key] = None
        else:
            self._leave_namespace(pod)

    def remove_pod(self, pod: ObservedPod) -> None:
        """Applies that a pod is gone."""
        self.evicting.pop(pod.key, None)
        self._refused_until.pop(pod.key, None)
        self._leave_namespace(pod)

    def put_budget(self, namespace: str, key: str, budget: Budget | None) -> dict[str, None]:
        """Takes notice of a budget, or that it is gone; the pods that it may count, or did."""
        budgets = self._budgets.setdefault(namespace, {})
        before = budgets.pop(key, None)
        if budget is not None:
            budgets[key] = budget
        if not budgets:
            del self._budgets[namespace]
        if before is None or budget is None or before.selector != budget.selector:
            return self._in_namespace.get(namespace, {})
        return {}

    def assume_evicted(self, pod: ObservedPod) -> None:
        """Has a pod count as one that is leaving."""
        self.evicting[pod.key] = pod.uid

    def forget_eviction(self, pod: ObservedPod, until: float) -> bool:
        """Has a pod not be evicted until a Unix time; false if it was not being evicted."""
        if self.evicting.get(pod.key) != pod.uid:
            return False
        del self.evicting[pod.key]
        self._refused_until[pod.key] = until
        return True

    def may_be_evicted(self, pod: str, now: float) -> bool:
        """Whether the API server may be asked to evict a pod now."""
        return pod not in self.evicting and self._refused_until.get(pod, 0) <= now

    def budgets_of(self, pod: ObservedPod, now: float) -> tuple[tuple[str, ...], float | None]:
        """The budgets that count a pod, and when there are fewer by time alone."""
        budgets = budgets_of(
            self._budgets.get(pod.namespace, {}).values(), pod.namespace, pod.labels
        )
        until = self._refused_until.get(pod.key, 0)
        return ((*budgets, _NOT_EVICTABLE), until) if until > now else (budgets, None)

    def allowed(self) -> dict[str, int]:
        """By budget: how many pods it still allows to be disrupted."""
        allowed = {
            key: budget.allowed for of in self._budgets.values() for key, budget in of.items()
        }
        return allowed | {_NOT_EVICTABLE: 0}

    def _leave_namespace(self, pod: ObservedPod) -> None:
        pods = self._in_namespace.get(pod.namespace, {})
        pods.pop(pod.key, None)
        if not pods:
            self._in_namespace.pop(pod.namespace, None)
