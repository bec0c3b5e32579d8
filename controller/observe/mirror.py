"""The mirror: what is watched of a cluster, kept as the state on which the engine decides.

What the controller has decided and is writing counts at once, before any watch shows it
(`assume`); what fails counts no longer (`forget`). Allocations that are in effect for nobody yet
(`observe.claim`) are hidden from the engine and offered to it as nominations, so that it keeps
what still holds, whoever wrote it.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from controller.api.pod_group import DeclaredGroup
from controller.api.queue import DeclaredQueue
from controller.model.node import ClusterNode
from controller.model.plan import Nomination
from controller.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod, PodNeeds, PodState
from controller.model.snapshot import Snapshot
from controller.names import TAINT
from controller.observe.alarms import Alarms
from controller.observe.budget import Budget, budgets_of
from controller.observe.claim import is_pod, is_tentative, node_of
from controller.observe.collision import Collisions
from controller.observe.member import place_of
from controller.observe.pod import ObservedPod
from controller.observe.roster import Roster
from controller.observe.standalone import (
    StandaloneClaim,
    Standing,
    key_of_standalone,
    standalone_claim,
)
from controller.state.state import State

_REMEMBERED: Final = 10_000
"""UIDs of pods that are gone; an answer to an older write must not bring them back."""
_STUCK_SECONDS: Final = 60.0
"""After this time beyond its grace period, a pod counts as one that does not end."""
_NOT_EVICTABLE: Final = "(refused)"
"""Stands for a budget that is spent: the API server has refused to evict the pod."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """A group is not placed."""

    until: float
    """A Unix time."""
    keeps: bool
    """Whether it keeps tentative allocations meanwhile."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """The start of a pod that is being written."""

    node: str
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    """What its claims get, by claim."""
    preemptible: bool = True
    """Whether its group was, when the start was decided."""


class Mirror:
    """The cluster as it is watched. Used by one thread.

    `put_*` and `remove_*` take notice of a change; `refresh` brings the state up to date.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """`snapshot` has the time and the settings, and no objects."""
        self.state = State(snapshot)
        self.roster = Roster()
        self.pods: dict[str, ObservedPod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.assumed: dict[str, Assumed] = {}
        """By pod."""
        self.evicting: dict[str, str] = {}
        """The pods that are being evicted, with their UIDs."""
        self.refused: dict[str, float] = {}
        """The pods without a gate that kube-scheduler finds no node for, and since when."""
        self._last_node: dict[str, str] = {}
        """By pod: the node that it was given last."""
        self._now = snapshot.now
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._referrers: dict[str, dict[str, None]] = {}
        """By claim: the pods that refer to it."""
        self._budgets: dict[str, dict[str, Budget]] = {}
        """By namespace and key."""
        self._given: dict[str, Allocation] = {}
        """By claim: what it gets with a start that is being written."""
        self._tentative: dict[str, Allocation] = {}
        """By claim: its allocation that is not in effect."""
        self._releasing: dict[str, float] = {}
        """By claim: until when its tentative allocation is taken back, and counts as in use."""
        self._avoided: dict[str, dict[str, float]] = {}
        """By group: the nodes that kube-scheduler has refused, and until when they are avoided."""
        self._held_back: dict[str, _Hold] = {}
        """The groups that are not placed for a while."""
        self.collisions = Collisions()
        self.standalone: dict[str, StandaloneClaim] = {}
        """The claims that ask for devices by themselves."""
        self._claim_of: dict[str, str] = {}
        """By the pod that stands for it: such a claim."""
        self._not_evictable: dict[str, float] = {}
        """By pod: until when the API server need not be asked again."""
        self._in_namespace: dict[str, dict[str, None]] = {}
        """By namespace: the pods that name a queue."""
        self._changed_pods: dict[str, None] = {}
        self._changed_claims: dict[str, None] = {}
        self._queues_changed = self._budgets_changed = False
        self._due_pods = Alarms()
        self._due_claims = Alarms()
        self._due_groups = Alarms()
        """When what is remembered of groups is over, which may have no pods by then."""

    # What is watched ---------------------------------------------------------------------------

    def put_pod(self, pod: ObservedPod) -> None:
        """Adds or updates a pod; an older version changes nothing."""
        before = self.pods.get(pod.key)
        if pod.uid in self._gone:
            return
        if before is not None:
            if before.uid == pod.uid and before.version >= pod.version:
                return
            if before.uid != pod.uid:
                self.remove_pod(before)
                before = None
        self.pods[pod.key] = pod
        if before is not None and before.claims != pod.claims:
            self._unrefer(before)
        for claim in pod.claims:
            self._referrers.setdefault(claim, {})[pod.key] = None
        if pod.queue is not None:
            self._in_namespace.setdefault(pod.namespace, {})[pod.key] = None
            self.roster.put(pod)
        else:
            self._leave_roster(pod)
        self._note_verdict(pod)
        self._change_pod(pod)

    def remove_pod(self, pod: ObservedPod) -> None:
        """Applies that a pod is gone; only its UID matters, not the version."""
        self._note_gone(pod.uid)
        known = self.pods.get(pod.key)
        if known is None or known.uid != pod.uid:
            return
        del self.pods[pod.key]
        self._unrefer(known)
        # What is being written for it may be stored yet: its claims count until that has ended.
        self.assumed.pop(pod.key, None)
        for known_of in (self.evicting, self._not_evictable, self.refused, self._last_node):
            known_of.pop(pod.key, None)
        self._due_pods.cancel(pod.key)
        self._leave_roster(known)
        self._change_pod(known)

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim; an older version changes nothing."""
        before, uid = self.claims.get(claim.key), claim.metadata.uid
        if uid in self._gone:
            return
        if before is not None and before.metadata.uid != uid:
            self.remove_claim(before)
        elif before is not None and _version_of(before) >= _version_of(claim):
            return
        self.claims[claim.key] = claim
        self.collisions.put(claim)
        self._change_claim(claim.key)

    def remove_claim(self, claim: ResourceClaim) -> None:
        """Applies that a claim is gone."""
        self._note_gone(claim.metadata.uid)
        known = self.claims.get(claim.key)
        if known is not None and known.metadata.uid == claim.metadata.uid:
            del self.claims[claim.key]
            self.collisions.remove(claim.key)
            self._releasing.pop(claim.key, None)
            self._due_claims.cancel(claim.key)
            self._change_claim(claim.key)

    def put_node(self, node: ClusterNode) -> None:
        """Adds or updates a node."""
        self.state.put_node(node)

    def remove_node(self, name: str) -> None:
        """Applies that a node is gone."""
        self.state.remove_node(name)

    def put_devices(self, watched: ResourceSlice | DeviceClass | DeviceTaintRule) -> None:
        """Adds or updates what devices there are; the controller's own taint is for others."""
        if not _is_own_taint(watched):
            self.state.put_devices(watched)

    def remove_devices(self, watched: ResourceSlice | DeviceClass | DeviceTaintRule) -> None:
        """Applies that such an object is gone."""
        if not _is_own_taint(watched):
            self.state.remove_devices(watched)

    def put_queue(self, name: str, queue: DeclaredQueue | None) -> None:
        """Takes notice of a Queue, or that it is gone."""
        self._queues_changed |= self.roster.put_queue(name, queue)

    def put_budget(self, namespace: str, key: str, budget: Budget | None) -> None:
        """Takes notice of a disruption budget, or that it is gone."""
        budgets = self._budgets.setdefault(namespace, {})
        before = budgets.pop(key, None)
        if budget is not None:
            budgets[key] = budget
        self._budgets_changed = True
        if not budgets:
            del self._budgets[namespace]
        if before is None or budget is None or before.selector != budget.selector:
            self._changed_pods |= self._in_namespace.get(namespace, {})

    def declare(self, key: str, declared: DeclaredGroup | None) -> None:
        """Takes notice of a PodGroup, or that it is gone."""
        self.roster.declare(key, declared)

    # What the controller does ------------------------------------------------------------------

    def assume(self, pod: str, assumed: Assumed) -> None:
        """Has a pod count as placed, and its claims as allocated, from now on."""
        self.assumed[pod] = assumed
        self._last_node[pod] = assumed.node
        self.refused.pop(pod, None)
        for claim, allocation in assumed.allocations.items():
            self._given[claim] = allocation
            self._change_claim(claim)
        self._change(pod)

    def forget(self, starts: Mapping[str, Assumed]) -> None:
        """Has pods count as they are watched: their starts are written, or cannot be."""
        for key, assumed in starts.items():
            for claim, allocation in assumed.allocations.items():
                if self._given.get(claim) is allocation:
                    del self._given[claim]
                    self._change_claim(claim)
            if self.assumed.get(key) is assumed:
                del self.assumed[key]
                self._change(key)
                if key in self.pods:
                    self._note_verdict(self.pods[key])

    def release(self, claim: str) -> None:
        """Has a tentative allocation count as in use, while it is being taken back."""
        self._releasing[claim] = math.inf
        self._change_claim(claim)

    def end_release(self, claim: str, until: float) -> None:
        """Has an allocation count as tentative again from a Unix time on, if it is still there."""
        if claim in self._releasing:
            self._releasing[claim] = until
            self._due_claims.set(claim, until)
            self._change_claim(claim)

    def assume_evicted(self, pod: str) -> None:
        """Has a pod count as one that is leaving."""
        self.evicting[pod] = self.pods[pod].uid
        self._changed_pods[pod] = None

    def forget_eviction(self, pod: ObservedPod, until: float) -> None:
        """Has a pod count as before; the API server is not asked to evict it until a Unix time."""
        if self.evicting.get(pod.key) == pod.uid:
            del self.evicting[pod.key]
            self._not_evictable[pod.key] = until
            self._changed_pods[pod.key] = None
            self._budgets_changed = True

    def avoid(self, group: str, node: str, until: float) -> None:
        """Has a group not be placed on a node until a Unix time."""
        self._avoided.setdefault(group, {})[node] = until
        self._due_groups.set(group, until)
        self._change_group(group)

    def last_node(self, pod: ObservedPod) -> str | None:
        """The node that a pod was given last."""
        return self._last_node.get(pod.key, pod.given)

    def hold_back(self, group: str, until: float, *, keeps: bool) -> None:
        """Has a group not be placed until a Unix time; it may keep tentative allocations."""
        self._held_back[group] = _Hold(until, keeps)
        self._due_groups.set(group, until)
        self._change_group(group)

    def standalone_of(self, group: str) -> ResourceClaim | None:
        """The standalone claim that is a group by itself."""
        key = self._claim_of.get(group)
        return None if key is None else self.claims.get(key)

    def refusals(self) -> dict[str, str]:
        """The groups that cannot be decided on: why, and the remedy."""
        of_claims = {
            each.group.key: each.refusal
            for each in self.standalone.values()
            if each.refusal is not None
        }
        return self.roster.refused | of_claims

    def tentative(self) -> Mapping[str, Allocation]:
        """By claim: the allocations that are not in effect, as the API server has them."""
        return self._tentative

    # The state ---------------------------------------------------------------------------------

    @property
    def wake(self) -> float | None:
        """When something changes by time alone, as a Unix time."""
        due = (self._due_pods.next, self._due_claims.next, self._due_groups.next)
        return min((at for at in due if at is not None), default=None)

    def refresh(self, now: float) -> bool:
        """Brings the state up to date with what has changed; whether anything had."""
        self._now = now
        self._look_at_what_is_due()
        busy = bool(self.roster.has_changed or self._changed_pods or self._changed_claims)
        groups = self.roster.refresh()
        busy |= self._queues_changed or self._budgets_changed
        if self._queues_changed:
            self._queues_changed = False
            self.state.put_queues(each.queue for each in self.roster.queues.values())
            self._changed_claims |= dict.fromkeys(self.standalone)
        for claim in self._take_changed_claims():
            self._refresh_claim(claim)
        for key, group in groups.items():
            if (group is None) == (key in self.state.groups):
                # Its pods can be decided on from now on, or no longer; nothing else concerns them.
                self._changed_pods |= dict.fromkeys(self.roster.pods_of(key))
            if group is None:
                self.state.remove_group(key)
            else:
                self.state.put_group(group)
        for key in self.roster.turned:
            self._changed_pods |= dict.fromkeys(self.roster.pods_of(key))
        self.roster.turned.clear()
        changed, self._changed_pods = self._changed_pods, {}
        for key in changed:
            made = self._engine_pod(key)
            if made is None:
                self.state.remove_pod(key)
            else:
                self.state.put_pod(made)
        if self._budgets_changed:
            self._budgets_changed = False
            self.state.put_budgets(self._allowed())
        self._nominate()
        self.state.advance(now)
        return busy

    def _look_at_what_is_due(self) -> None:
        self._changed_pods |= dict.fromkeys(self._due_pods.take_due(self._now))
        for claim in self._due_claims.take_due(self._now):
            until = self._releasing.get(claim, math.inf)
            if until <= self._now:
                del self._releasing[claim]
            elif until < math.inf:
                self._due_claims.set(claim, until)
            self._change_claim(claim)
        for group in self._due_groups.take_due(self._now):
            avoided = self._avoided.pop(group, {})
            for node, until in avoided.items():
                if until > self._now:
                    self.avoid(group, node, until)
            hold = self._held_back.pop(group, None)
            if hold is not None and hold.until > self._now:
                self.hold_back(group, hold.until, keeps=hold.keeps)
            self._change_group(group)

    def _take_changed_claims(self) -> dict[str, None]:
        changed, self._changed_claims = self._changed_claims, {}
        return changed

    def _refresh_claim(self, key: str) -> None:
        claim = self.claims.get(key)
        self._tentative.pop(key, None)
        if claim is None:
            self.state.remove_claim(key)
            self.state.remove_pod(_leaver_of(key))
            self._refresh_standalone(key, None)
            return
        given = self._given.get(key)
        allocation = claim.status.allocation
        if given is not None:
            claim = replace(claim, status=replace(claim.status, allocation=given))
        elif allocation is not None and self._is_hidden(claim):
            self._tentative[key] = allocation
            claim = replace(claim, status=ResourceClaimStatus())
        self.state.put_claim(claim)
        self._refresh_leaver(claim)
        self._refresh_standalone(key, standalone_claim(claim, self._now, self.roster.refusal))

    def _refresh_leaver(self, claim: ResourceClaim) -> None:
        """Has the devices of a claim be about to become free, if all who could use it have ended.

        kube-controller-manager takes them back a moment after the last of its pods. Until then it
        would seem that nobody leaves, and that others have to be evicted.
        """
        allocation, consumers = claim.status.allocation, claim.status.reserved_for
        node = None if allocation is None else node_of(allocation)
        alive = {pod.uid for pod in self.users_of(claim.key) if pod.succeeded is None}
        if node and consumers and all(is_pod(by) and by.uid not in alive for by in consumers):
            leaver = Pod(_leaver_of(claim.key), PodNeeds(), Evicting(node), claims=(claim.key,))
            self.state.put_pod(leaver)
        else:
            self.state.remove_pod(_leaver_of(claim.key))

    def _refresh_standalone(self, key: str, wanted: StandaloneClaim | None) -> None:
        before, group = self.standalone.pop(key, None), key_of_standalone(key)
        self._claim_of.pop(group, None)
        if wanted is not None:
            self.standalone[key] = wanted
            self._claim_of[group] = key
            if wanted.until is not None and wanted.until > self._now:
                self._due_claims.set(key, wanted.until)
        if wanted is None or wanted.standing in (Standing.ENDS, Standing.OVER) or wanted.refusal:
            if before is not None:
                self.state.remove_pod(group)
                self.state.remove_group(group)
            return
        self.state.put_group(wanted.group)
        pod = wanted.pod
        if group in self._held_back and isinstance(pod.state, Pending):
            pod = replace(pod, state=Gated())
        self.state.put_pod(pod)

    def _is_hidden(self, claim: ResourceClaim) -> bool:
        """Whether the engine decides about an allocation; if not, it counts as in use."""
        pods = [self.pods[pod] for pod in self._referrers.get(claim.key, ())]
        if not pods or not all(pod.is_held for pod in pods):
            return False
        if claim.key in self._releasing or any(self._keeps(pod.key) for pod in pods):
            return False
        return is_tentative(claim, {pod.uid for pod in pods})

    def _keeps(self, pod: str) -> bool:
        """Whether the group of a pod keeps its tentative allocations for a while."""
        hold = self._held_back.get(self.roster.group_of(pod) or "")
        return hold is not None and hold.keeps

    def _engine_pod(self, key: str) -> Pod | None:
        self._due_pods.cancel(key)  # what follows sets it again
        pod = self.pods.get(key)
        if pod is None:
            return None
        if pod.queue is None:
            if pod.node is None or pod.succeeded is not None:
                return None
            state: PodState = (
                Placed(pod.node) if pod.deleted is None else self._leaving(pod, pod.node)
            )
            return Pod(key, pod.needs, state, claims=pod.claims, labels=pod.labels)
        group, place = self.roster.group_of(key), place_of(pod)
        budgets = budgets_of(
            self._budgets.get(pod.namespace, {}).values(), pod.namespace, pod.labels
        )
        if (until := self._not_evictable.get(key, 0)) > self._now:
            budgets = (*budgets, _NOT_EVICTABLE)
            self._due_pods.set(key, until)
        return Pod(
            key=key,
            needs=self._without_avoided(pod.needs, group or ""),
            state=self._state_of(pod),
            group=group,
            pod_set=place.pod_set,
            rank=place.rank,
            claims=pod.claims,
            created=pod.created,
            budgets=budgets,
            firm=pod.firm or (key in self.assumed and not self.assumed[key].preemptible),
            labels=pod.labels,
        )

    def _state_of(self, pod: ObservedPod) -> PodState:
        assumed = self.assumed.get(pod.key)
        if pod.succeeded is not None:
            return Ended(pod.succeeded)
        if pod.deleted is not None:
            return Ended(succeeded=False) if pod.node is None else self._leaving(pod, pod.node)
        node = pod.node or (assumed.node if assumed is not None else self._given_node(pod))
        if node is not None:
            return Evicting(node) if pod.key in self.evicting else Placed(node)
        if pod.is_held:
            is_released = self._releasing.keys().isdisjoint(pod.claims)
            is_ready = len(pod.gates) == 1 and not pod.lacks_claims and is_released
            return Pending() if is_ready and self._is_decided_on(pod) else Gated()
        return Pending() if self.is_taken_back(pod) and self._is_decided_on(pod) else Gated()

    def _note_verdict(self, pod: ObservedPod) -> None:
        is_refused = pod.verdict is not None and pod.given is not None and pod.is_waiting
        if pod.queue is not None and is_refused and pod.key not in self.assumed:
            self.refused.setdefault(pod.key, self._now)
        else:
            self.refused.pop(pod.key, None)

    def _is_decided_on(self, pod: ObservedPod) -> bool:
        group = self.roster.group_of(pod.key)
        known = self.roster
        return group in known.groups and group not in known.refused and group not in self._held_back

    def _given_node(self, pod: ObservedPod) -> str | None:
        """Where the controller has placed a pod that is not bound yet, if that still holds."""
        if pod.is_held or self.is_taken_back(pod):
            return None
        known = [self.claims[key] for key in pod.claims if key in self.claims]
        nodes = [node_of(one.status.allocation) for one in known if one.status.allocation]
        return next((node for node in nodes if node is not None), pod.given)

    def is_taken_back(self, pod: ObservedPod) -> bool:
        """Whether a pod lost its gate with devices that it has no more."""
        if pod.is_held or pod.given is None:
            return False
        known = [self.claims.get(key) for key in pod.claims]
        return any(one is None or one.status.allocation is None for one in known)

    def _leaving(self, pod: ObservedPod, node: str) -> Evicting:
        end = (pod.deleted or 0) + _STUCK_SECONDS
        if self._now < end:
            self._due_pods.set(pod.key, end)
        return Evicting(node, stuck=self._now >= end)

    def _without_avoided(self, needs: PodNeeds, group: str) -> PodNeeds:
        nodes = self._avoided.get(group)
        return replace(needs, affinity=_avoiding(needs.affinity, nodes)) if nodes else needs

    def _allowed(self) -> dict[str, int]:
        allowed = {
            key: budget.allowed for of in self._budgets.values() for key, budget in of.items()
        }
        return allowed | {_NOT_EVICTABLE: 0}

    def _nominate(self) -> None:
        """Offers tentative allocations to the engine as places that pods have been promised."""
        memory = self.state.memory
        promised = {nomination.pod for nomination in memory.nominations}
        found: dict[str, list[tuple[str, Allocation]]] = {}
        for claim, allocation in self._tentative.items():
            referrers = self._referrers.get(claim, {})
            pod = min(referrers, default=None)
            if pod is not None and pod not in promised and pod not in self.assumed:
                found.setdefault(pod, []).append((claim, allocation))
        new = []
        for key, allocations in found.items():
            nodes = {node_of(allocation) for _, allocation in allocations}
            if len(nodes) == 1 and (node := nodes.pop()) is not None:
                new.append(Nomination(key, node, tuple(allocations)))
        if new:
            self.state.memory = replace(memory, nominations=(*memory.nominations, *new))

    def _note_gone(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def _leave_roster(self, pod: ObservedPod) -> None:
        of_namespace = self._in_namespace.get(pod.namespace, {})
        of_namespace.pop(pod.key, None)
        if not of_namespace:
            self._in_namespace.pop(pod.namespace, None)
        self.roster.remove(pod.key)

    def _unrefer(self, pod: ObservedPod) -> None:
        for claim in pod.claims:
            referrers = self._referrers.get(claim, {})
            referrers.pop(pod.key, None)
            if not referrers:
                self._referrers.pop(claim, None)
            self._changed_claims[claim] = None

    def _change(self, key: str) -> None:
        """Has a pod be looked at, or the claim that it stands for."""
        if key in self._claim_of:
            self._changed_claims[self._claim_of[key]] = None
        else:
            self._changed_pods[key] = None

    def _change_pod(self, pod: ObservedPod) -> None:
        self._changed_pods[pod.key] = None
        self._changed_claims |= dict.fromkeys(pod.claims)

    def _change_group(self, group: str) -> None:
        for pod in self.roster.members(group):
            self._change_pod(pod)
        if group in self._claim_of:
            self._changed_claims[self._claim_of[group]] = None

    def _change_claim(self, key: str) -> None:
        self._changed_claims[key] = None
        for pod in self._referrers.get(key, ()):
            if self.pods[pod].queue is not None:
                self._changed_pods[pod] = None

    def users_of(self, claim: str) -> Iterator[ObservedPod]:
        """The pods that refer to a claim."""
        return (self.pods[pod] for pod in self._referrers.get(claim, ()))


def _leaver_of(claim: str) -> str:
    """The key of a pod that stands for those who had a claim, which no pod can have."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/resourceclaim/{name}/left"


def _version_of(claim: ResourceClaim) -> int:
    return int(claim.metadata.resource_version)


def _is_own_taint(watched: ResourceSlice | DeviceClass | DeviceTaintRule) -> bool:
    return isinstance(watched, DeviceTaintRule) and watched.spec.taint.key == TAINT


def _avoiding(affinity: NodeSelector | None, nodes: Iterable[str]) -> NodeSelector:
    """A node selector that matches none of some nodes."""
    other = tuple(
        NodeSelectorRequirement("metadata.name", NodeSelectorOperator.NOT_IN, (node,))
        for node in sorted(nodes)
    )
    if affinity is None:
        return NodeSelector((NodeSelectorTerm(match_fields=other),))
    return NodeSelector(
        tuple(
            replace(term, match_fields=(*term.match_fields, *other))
            if term.match_expressions or term.match_fields
            else term
            for term in affinity.node_selector_terms
        )
    )
