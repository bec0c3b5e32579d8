"""What the engine is shown of a pod, from what is watched and what the controller is doing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from carina_dra.resource import ResourceClaim
from controller.engine.model.plan import CarriedOver
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod, PodState
from controller.engine.model.queue import EVICTION_GRACE
from controller.observe.backoff import Backoffs
from controller.observe.claim import node_of
from controller.observe.deferral import Deferrals, avoiding
from controller.observe.disruption import Disruptions
from controller.observe.group_registry import GroupRegistry
from controller.observe.leaving import leaving, longest_grace
from controller.observe.member import place_of
from controller.observe.planned_claims import PlannedClaims
from controller.observe.pod import ObservedPod
from controller.observe.standalone import StandaloneClaim
from controller.observe.tentative import TentativeAllocations


@dataclass(frozen=True, slots=True)
class PodView:
    """The parts of a mirror that pods depend on."""

    roster: GroupRegistry
    claims: Mapping[str, ResourceClaim]
    tentative: TentativeAllocations
    disruptions: Disruptions
    deferrals: Deferrals
    backoffs: Backoffs
    planned: PlannedClaims
    memory: Callable[[], CarriedOver]
    """What the last cycle has left."""

    def of(self, pod: ObservedPod, now: float) -> tuple[Pod | None, float | None]:
        """A pod as the engine sees it, and when that changes by time alone.

        None for a pod that holds nothing and that the controller does not decide on.
        """
        if pod.queue is None:
            return self._of_others(pod, now)
        group, place = self.roster.group_of(pod.key), place_of(pod)
        budgets, fewer_at = self.disruptions.budgets_of(pod, now)
        state, stuck_at = self._state_of(pod, now)
        made = Pod(
            key=pod.key,
            needs=avoiding(
                self.planned.needs(pod),
                {*self.deferrals.avoided_by(group or ""), *self.backoffs.avoided_by(pod.key)},
            ),
            state=state,
            group=group,
            pod_set=place.pod_set,
            rank=place.rank,
            claims=self.planned.claims(pod),
            planned=self.planned.planned(pod),
            created=pod.created,
            budgets=budgets,
            firm=pod.firm or self._starts_firm(pod),
            line=_line(pod),
            labels=pod.labels,
            volumes=pod.volumes,
        )
        return made, min((at for at in (fewer_at, stuck_at) if at is not None), default=None)

    def of_claim(self, claim: StandaloneClaim) -> Pod:
        """The pod that stands for a claim, which waits while it is held back."""
        is_held_back = self.deferrals.is_held_back(claim.group.key)
        waits = is_held_back and isinstance(claim.pod.state, Pending)
        return replace(claim.pod, state=Gated()) if waits else claim.pod

    def is_taken_back(self, pod: ObservedPod) -> bool:
        """Whether a pod lost its gate with devices that it has no more."""
        if pod.is_held or pod.given is None:
            return False
        known = [self.claims.get(key) for key in pod.claims]
        return any(one is None or one.status.allocation is None for one in known)

    def _of_others(self, pod: ObservedPod, now: float) -> tuple[Pod | None, float | None]:
        if pod.node is None or pod.succeeded is not None:
            return None, None
        state: PodState = Placed(pod.node)
        until: float | None = None
        if pod.deleted is not None:
            state, until = leaving(pod, pod.node, now, longest=EVICTION_GRACE, evicted=pod.deleted)
        made = Pod(
            pod.key,
            pod.needs,
            state,
            claims=self.planned.claims(pod),
            labels=pod.labels,
            volumes=pod.volumes,
        )
        return made, until

    def _state_of(self, pod: ObservedPod, now: float) -> tuple[PodState, float | None]:
        if pod.succeeded is not None:
            return Ended(pod.succeeded), None
        if pod.deleted is not None:
            if pod.node is None:
                return Ended(succeeded=False), None
            longest = self.roster.queues.eviction_grace(pod.queue or "")
            evicted = self.disruptions.evicted_at(pod)
            if evicted is None:
                longest = longest_grace(self.memory(), pod.queue or "", longest, pod.deleted)
            return leaving(pod, pod.node, now, longest=longest, evicted=evicted)
        assumed = self.tentative.assumed.get(pod.key)
        node = pod.node or (assumed.node if assumed is not None else self._given_node(pod))
        if node is not None:
            is_evicted = pod.key in self.disruptions.evicting
            return Evicting(node) if is_evicted else Placed(node), None
        return Pending() if self._waits(pod) else Gated(), None

    def _waits(self, pod: ObservedPod) -> bool:
        """Whether a pod without a node can be given one."""
        if not self._is_decided_on(pod):
            return False
        if pod.is_held:
            is_only_gate = len(pod.gates) == 1
            is_released = self.tentative.are_released(pod.claims)
            return is_only_gate and not pod.lacks_claims and not is_released
        return self.is_taken_back(pod) and not pod.is_pinned

    def _starts_firm(self, pod: ObservedPod) -> bool:
        assumed = self.tentative.assumed.get(pod.key)
        return assumed is not None and not assumed.preemptible

    def _is_decided_on(self, pod: ObservedPod) -> bool:
        group, known = self.roster.group_of(pod.key), self.roster
        if group is None or group not in known.groups or group in known.refused:
            return False
        return not self.deferrals.is_held_back(group)

    def _given_node(self, pod: ObservedPod) -> str | None:
        """Where the controller has placed a pod that is not bound yet, if that still holds."""
        if pod.is_held or self.is_taken_back(pod):
            return None
        known = [self.claims[key] for key in pod.claims if key in self.claims]
        nodes = [node_of(one.status.allocation) for one in known if one.status.allocation]
        return next((node for node in nodes if node is not None), pod.given)


def _line(pod: ObservedPod) -> str:
    """Which pods replace a pod: those of its owner and template.

    Users may name the owners of others, so namespace and queue count.
    """
    if pod.owner is None:
        return ""
    return f"{pod.namespace}/{pod.queue}/{pod.owner.uid}/{pod.template}"
