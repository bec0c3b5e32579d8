"""Allocations that are not in effect: being written, tentative, or being taken back.

What is being written counts at once, what is being taken back still counts. In between, the engine
decides about it: it is hidden, and offered as a nomination, so that what still holds is kept.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from carina_dra.resource import Allocation, ResourceClaim, ResourceClaimStatus
from controller.engine.model.plan import Nomination
from controller.observe.alarms import Alarms
from controller.observe.claim import is_tentative, node_of
from controller.observe.pod import ObservedPod


@dataclass(frozen=True, slots=True)
class Assumed:
    """The start of a pod that is being written."""

    node: str
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    """What its claims get, by claim."""
    preemptible: bool = True
    """Whether its group was, when the start was decided."""
    planned: Mapping[str, Allocation] = field(default_factory=dict)
    """What claims get, by planned claim, that kube-scheduler is to make."""


Starts: TypeAlias = Mapping[str, Assumed]


class TentativeAllocations:
    """By claim. Times are Unix times in seconds."""

    def __init__(self) -> None:
        self.assumed: dict[str, Assumed] = {}
        """By pod: the start that is being written."""
        self.allocations: dict[str, Allocation] = {}
        """The allocations that are hidden, as the API server has them."""
        self._given: dict[str, Allocation] = {}
        """What claims get with a start that is being written."""
        self._releasing: dict[str, float] = {}
        """Until when an allocation is taken back, and counts as in use."""
        self._due = Alarms()

    def assume(self, pod: str, assumed: Assumed) -> Iterable[str]:
        """Adds a start that is being written; returns the claims that change by it."""
        self.assumed[pod] = assumed
        self._given |= assumed.allocations
        return assumed.allocations

    def forget(self, pod: str, assumed: Assumed) -> tuple[Iterable[str], bool]:
        """Removes a start that is written or failed.

        Returns the claims that change by it, and whether the pod does.
        What has been decided since stays.
        """
        over = [
            claim
            for claim, allocation in assumed.allocations.items()
            if self._given.get(claim) is allocation
        ]
        for claim in over:
            del self._given[claim]
        is_latest = self.assumed.get(pod) is assumed
        if is_latest:
            del self.assumed[pod]
        return over, is_latest

    def release(self, claim: str) -> None:
        """Has an allocation count as in use, while it is being taken back."""
        self._releasing[claim] = math.inf

    def end_release(self, claim: str, until: float) -> bool:
        """Has an allocation count as tentative again from a time on; false if it does already."""
        if claim not in self._releasing:
            return False
        self._releasing[claim] = until
        self._due.set(claim, until)
        return True

    def are_released(self, claims: Iterable[str]) -> bool:
        """Whether the allocation of one of some claims is being taken back."""
        return not self._releasing.keys().isdisjoint(claims)

    def remove(self, claim: str) -> None:
        """Applies that a claim is gone. What it gets may be stored yet, and counts."""
        self.allocations.pop(claim, None)
        self._releasing.pop(claim, None)
        self._due.cancel(claim)

    @property
    def wake(self) -> float | None:
        """When an allocation counts as tentative again."""
        return self._due.next

    def take_due(self, now: float) -> list[str]:
        """Ends what is over; returns the claims that it concerned."""
        due = self._due.take_due(now)
        for claim in due:
            until = self._releasing.get(claim, math.inf)
            if until <= now:
                del self._releasing[claim]
            elif until < math.inf:
                self._due.set(claim, until)
        return due

    def counted(
        self, claim: ResourceClaim, pods: Iterable[ObservedPod], keeps: Callable[[str], bool]
    ) -> ResourceClaim:
        """A claim as the engine is to see it. `keeps` says that a pod keeps what is tentative."""
        self.allocations.pop(claim.key, None)
        given, allocation = self._given.get(claim.key), claim.status.allocation
        if given is not None:
            return replace(claim, status=replace(claim.status, allocation=given))
        if allocation is not None and self._is_hidden(claim, list(pods), keeps):
            self.allocations[claim.key] = allocation
            return replace(claim, status=ResourceClaimStatus())
        return claim

    def _is_hidden(
        self, claim: ResourceClaim, pods: list[ObservedPod], keeps: Callable[[str], bool]
    ) -> bool:
        """Whether the engine decides about an allocation; if not, it counts as in use."""
        if not pods or not all(pod.is_held for pod in pods):
            return False
        if any(pod.key in self.assumed for pod in pods):  # a start that is being written needs it
            return False
        if claim.key in self._releasing or any(keeps(pod.key) for pod in pods):
            return False
        return is_tentative(claim, {pod.uid for pod in pods})

    def nominations(
        self, known: Iterable[Nomination], users: Mapping[str, Iterable[str]]
    ) -> tuple[Nomination, ...]:
        """Hidden allocations as places that pods have been promised, of pods that have none yet.

        users: by claim, the pods that refer to it.
        """
        promised = {nomination.pod for nomination in known}
        found: dict[str, list[tuple[str, Allocation]]] = {}
        for claim, allocation in self.allocations.items():
            pod = min(users.get(claim, ()), default=None)
            if pod is not None and pod not in promised and pod not in self.assumed:
                found.setdefault(pod, []).append((claim, allocation))
        new = []
        for key, allocations in found.items():
            nodes = {node_of(allocation) for _, allocation in allocations}
            if len(nodes) == 1 and (node := nodes.pop()) is not None:
                new.append(Nomination(key, node, tuple(allocations)))
        return tuple(new)
