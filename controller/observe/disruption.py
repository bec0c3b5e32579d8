"""Who is being evicted, and what keeps pods from being evicted: budgets, and the API server."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from controller.observe.budget import DisruptionBudget
from controller.observe.pod import ObservedPod

_NOT_EVICTABLE: Final = "(refused)"
"""Stands for a budget that is spent: the API server has refused to evict the pod."""
_MOST_BUDGETS: Final = 256
"""The most budgets of a namespace that are looked at; the API server knows the others."""
_MOST_OF_POD: Final = 8
"""The most budgets of one pod that are looked for; the eviction API refuses more than one."""


class _Namespace:
    """The budgets of a namespace, and which of its pods they count.

    A budget is asked about a pod once, not whenever somebody asks for the budgets of the pod.
    """

    def __init__(self) -> None:
        self.budgets: dict[str, DisruptionBudget] = {}
        """By key."""
        self._bits: dict[str, int] = {}
        """The budgets that are looked at: the bit of each in the sets of budgets."""
        self._pods: dict[str, ObservedPod] = {}
        """The pods that name a queue."""
        self._counting: dict[str, int] = {}
        """By pod: the set of the budgets that count it."""

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a budget nor a pod."""
        return not self.budgets and not self._pods

    def put_pod(self, pod: ObservedPod) -> None:
        """Applies a pod; only other labels have the budgets be asked."""
        before = self._pods.get(pod.key)
        self._pods[pod.key] = pod
        if before is None or before.labels != pod.labels:
            asked = self._bits.items()
            self._counting[pod.key] = sum(bit for key, bit in asked if self._counts(key, pod))

    def remove_pod(self, key: str) -> None:
        """Applies that a pod is gone, or names no queue any more."""
        self._pods.pop(key, None)
        self._counting.pop(key, None)

    def put_budget(self, key: str, budget: DisruptionBudget) -> dict[str, None]:
        """Adds or updates a budget; the pods that it counts, or does not count any more."""
        before = self.budgets.get(key)
        self.budgets[key] = budget
        if before is None and len(self._bits) < _MOST_BUDGETS:
            return self._look_at(key)
        if key not in self._bits or (before is not None and before.selector == budget.selector):
            return {}
        return self._ask(key)

    def remove_budget(self, key: str) -> dict[str, None]:
        """Applies that a budget is gone; the pods that have other budgets now."""
        self.budgets.pop(key, None)
        if key not in self._bits:
            return {}
        changed = self._ask(key)
        del self._bits[key]
        following = next((each for each in self.budgets if each not in self._bits), None)
        return changed if following is None else changed | self._look_at(following)

    def budgets_of(self, pod: str) -> Iterator[str]:
        """The keys of the budgets that count a pod; of many, some."""
        counting = self._counting.get(pod, 0)
        return islice((key for key, bit in self._bits.items() if counting & bit), _MOST_OF_POD)

    def _look_at(self, key: str) -> dict[str, None]:
        taken = sum(self._bits.values())
        self._bits[key] = ~taken & (taken + 1)  # the lowest one that is free
        return self._ask(key)

    def _ask(self, key: str) -> dict[str, None]:
        """Asks a budget about all pods; those for which the answer is another one than before."""
        bit, changed = self._bits[key], dict[str, None]()
        for pod in self._pods.values():
            counting = self._counting[pod.key]
            if self._counts(key, pod) != bool(counting & bit):
                self._counting[pod.key] = counting ^ bit
                changed[pod.key] = None
        return changed

    def _counts(self, key: str, pod: ObservedPod) -> bool:
        budget = self.budgets.get(key)
        return budget is not None and budget.counts(pod.namespace, pod.labels)


class Disruptions:
    """Disruption budgets, and the evictions that the controller has asked for."""

    def __init__(self) -> None:
        self.evicting: dict[str, str] = {}
        """The pods that are being evicted, with their UIDs."""
        self._evicted_at: dict[str, float] = {}
        """Since when, as Unix times."""
        self._namespaces: dict[str, _Namespace] = {}
        self._refused_until: dict[str, float] = {}
        """By pod: until when the API server need not be asked again."""

    def put_pod(self, pod: ObservedPod) -> None:
        """Applies a pod; budgets matter for those that name a queue."""
        if pod.queue is not None:
            self._namespaces.setdefault(pod.namespace, _Namespace()).put_pod(pod)
        else:
            self._leave_namespace(pod)

    def remove_pod(self, pod: ObservedPod) -> None:
        """Applies that a pod is gone."""
        self.evicting.pop(pod.key, None)
        self._evicted_at.pop(pod.key, None)
        self._refused_until.pop(pod.key, None)
        self._leave_namespace(pod)

    def put_budget(
        self, namespace: str, key: str, budget: DisruptionBudget | None
    ) -> dict[str, None]:
        """Applies a budget, or its removal; the pods whose budgets are others now."""
        known = self._namespaces.setdefault(namespace, _Namespace())
        changed = known.remove_budget(key) if budget is None else known.put_budget(key, budget)
        self._drop_if_empty(namespace)
        return changed

    def assume_evicted(self, pod: ObservedPod, now: float) -> None:
        """Has a pod count as one that is leaving."""
        self.evicting[pod.key] = pod.uid
        self._evicted_at[pod.key] = now

    def evicted_at(self, pod: ObservedPod) -> float | None:
        """When the controller evicted a pod, or made it end sooner; None if it did not."""
        return self._evicted_at[pod.key] if self.evicting.get(pod.key) == pod.uid else None

    def forget_eviction(self, pod: ObservedPod, until: float) -> bool:
        """Keeps a pod from being evicted until a Unix time; false if it was not being evicted."""
        if self.evicting.get(pod.key) != pod.uid:
            return False
        del self.evicting[pod.key]
        del self._evicted_at[pod.key]
        self._refused_until[pod.key] = until
        return True

    def may_be_evicted(self, pod: str, now: float) -> bool:
        """Whether the API server may be asked to evict a pod now."""
        return pod not in self.evicting and self._refused_until.get(pod, 0) <= now

    def budgets_of(self, pod: ObservedPod, now: float) -> tuple[tuple[str, ...], float | None]:
        """The budgets that count a pod, and when there are fewer by time alone.

        None keeps a pod that is being deleted from ending sooner.
        """
        known = None if pod.deleted is not None else self._namespaces.get(pod.namespace)
        budgets = () if known is None else tuple(sorted(known.budgets_of(pod.key)))
        until = self._refused_until.get(pod.key, 0)
        return ((*budgets, _NOT_EVICTABLE), until) if until > now else (budgets, None)

    def allowed(self) -> dict[str, int]:
        """By budget: how many pods it still allows to be disrupted."""
        allowed = {
            key: budget.allowed
            for known in self._namespaces.values()
            for key, budget in known.budgets.items()
        }
        return allowed | {_NOT_EVICTABLE: 0}

    def _leave_namespace(self, pod: ObservedPod) -> None:
        known = self._namespaces.get(pod.namespace)
        if known is not None:
            known.remove_pod(pod.key)
            self._drop_if_empty(pod.namespace)

    def _drop_if_empty(self, namespace: str) -> None:
        if self._namespaces[namespace].is_empty:
            del self._namespaces[namespace]
