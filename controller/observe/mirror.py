"""The mirror: what is watched of a cluster, kept as the state on which the engine decides.

What the controller has decided and is writing counts at once, before any watch shows it
(`assume`); what fails counts no longer (`forget`). Allocations that are in effect for nobody yet
(`observe.claim`) are hidden from the engine and offered to it as nominations, so that it keeps
what still holds, also of an earlier leader.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from controller.api.pod_group import DeclaredGroup
from controller.api.queue import DeclaredQueue
from controller.engine.decide.nodes.expected import expected_devices
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Pod
from controller.engine.model.snapshot import Snapshot
from controller.engine.model.volume import StorageClass, StorageObject, Volume, VolumeClaim
from controller.engine.state.state import State
from controller.names import TAINT
from controller.observe.alarms import Alarms
from controller.observe.backoff import Backoffs, is_accepted
from controller.observe.budget import DisruptionBudget
from controller.observe.collision import Collisions
from controller.observe.deferral import Deferrals
from controller.observe.disruption import Disruptions
from controller.observe.group_registry import GROUPS, GroupRegistry
from controller.observe.leaving import Leavers, leaver_key
from controller.observe.planned_claims import DeviceChoice, PlannedClaims
from controller.observe.pod import ObservedPod
from controller.observe.pod_view import PodView
from controller.observe.refusal import Refusals
from controller.observe.set_aside import SetAsideObjects
from controller.observe.standalone import (
    StandaloneClaim,
    StandaloneClaims,
    key_of_standalone,
    standalone_claim,
)
from controller.observe.tentative import Assumed, TentativeAllocations
from controller.observe.watched import Watched

__all__ = ["Assumed", "Mirror"]

_DECIDED_ON: Final = "decided on"
PODS: Final = "pods"
"""What pods are called among the objects that are set aside."""
CLAIMS: Final = "resourceclaims.resource.k8s.io"
"""What ResourceClaims are called there."""


class Mirror:
    """The cluster as it is watched. Used by one thread.

    `put_*` and `remove_*` record a change; `refresh` brings the state up to date.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """`snapshot` has the time and the settings, and no objects."""
        self.state = State(snapshot)
        self.set_aside = SetAsideObjects(clock=lambda: self._now)
        """The objects that cannot be read, applied or acted on."""
        self.roster = GroupRegistry(self.set_aside)
        self._watched = Watched()
        self.pods = self._watched.pods
        self.claims = self._watched.claims
        self._now = snapshot.now
        self._leavers = Leavers()
        self._tentative = TentativeAllocations()
        self._refusals = Refusals()
        self._disruptions = Disruptions()
        self._deferrals = Deferrals()
        self._backoffs = Backoffs()
        self._standalone = StandaloneClaims()
        self._planned = PlannedClaims(self.claims)
        self._view = PodView(
            self.roster,
            self.claims,
            self._tentative,
            self._disruptions,
            self._deferrals,
            self._backoffs,
            self._planned,
            lambda: self.state.memory,
        )
        self.collisions = Collisions()
        self._changed_pods: dict[str, None] = {}
        self._changed_claims: dict[str, None] = {}
        self._queues_changed = self._budgets_changed = False
        self._due_pods = Alarms()
        self._due_claims = Alarms()

    # What is watched ---------------------------------------------------------------------------

    def put_pod(self, pod: ObservedPod) -> None:
        """Adds or updates a pod; an older version changes nothing."""
        if not self._watched.is_newer_pod(pod):
            return
        before = self.pods.get(pod.key)
        if before is not None and before.uid != pod.uid:
            self.remove_pod(before)
        self._changed_claims |= dict.fromkeys(self._watched.put_pod(pod))
        self._disruptions.put_pod(pod)
        if pod.queue is not None:
            self.roster.put(pod)
            if before is not None and before.uid == pod.uid and is_accepted(before, pod):
                self._backoffs.accept(pod, self._now)
            self._backoffs.put_pod(pod, self.roster.group_of(pod.key) or "", self._now)
        else:
            self.roster.remove(pod.key)
            self._backoffs.remove_pod(pod.key)
        self._note_verdict(pod)
        self._changed_pods[pod.key] = None

    def remove_pod(self, pod: ObservedPod) -> None:
        """Applies that a pod is gone; only its UID matters, not the version."""
        known = self._watched.remove_pod(pod, self._now)
        if known is None:
            return
        # What is being written for it may be stored yet: its claims count until that has ended.
        self.assumed.pop(pod.key, None)
        self._note_unanswered(known, is_gone=True)
        self._planned.remove(pod.key)
        self._refusals.remove_pod(pod.key)
        self._disruptions.remove_pod(known)
        self._due_pods.cancel(pod.key)
        self.roster.remove(pod.key)
        self._backoffs.remove_pod(pod.key)
        self._change_pod(known)

    def put_claim(self, claim: ResourceClaim) -> None:
        """Adds or updates a claim; an older version changes nothing."""
        if not self._watched.is_newer_claim(claim):
            return
        before = self.claims.get(claim.key)
        if before is not None and before.metadata.uid != claim.metadata.uid:
            self.remove_claim(before)
        self._watched.put_claim(claim)
        self.collisions.put(claim)
        self._change_claim(claim.key)

    def remove_claim(self, claim: ResourceClaim) -> None:
        """Applies that a claim is gone."""
        if self._watched.remove_claim(claim, self._now):
            self.collisions.remove(claim.key)
            self._tentative.remove(claim.key)
            self._leavers.remove(claim.key)
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
        if isinstance(watched, DeviceClass):
            self._note_classes(changed=self._planned.put_class(watched))
        if _is_own_taint(watched):
            self.state.set_exclusive(exclusive=True)
        else:
            self.state.put_devices(watched)

    def remove_devices(self, watched: ResourceSlice | DeviceClass | DeviceTaintRule) -> None:
        """Applies that such an object is gone."""
        if isinstance(watched, DeviceClass):
            self._note_classes(changed=self._planned.remove_class(watched))
        if _is_own_taint(watched):
            self.state.set_exclusive(exclusive=False)
        else:
            self.state.remove_devices(watched)

    def _note_classes(self, *, changed: bool) -> None:
        """Looks again at the pods that ask by extended resources, if these mean something else."""
        if changed:
            asking = (key for key, pod in self.pods.items() if pod.extended)
            self._changed_pods |= dict.fromkeys(asking)

    def put_queue(self, name: str, queue: DeclaredQueue | None) -> None:
        """Applies a Queue, or its removal."""
        self._queues_changed |= self.roster.put_queue(name, queue)

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Applies the labels of a namespace, or its removal."""
        self.roster.put_namespace(name, labels)
        self.state.put_namespace(name, labels)
        self._changed_claims |= self._standalone.in_namespace(name)

    def put_storage(self, name: str, watched: StorageObject) -> None:
        """Adds or updates what says where volumes can be."""
        if self.state.put_storage(name, watched):
            self._note_storage(name, watched)

    def remove_storage(self, kind: type[StorageObject], name: str) -> None:
        """Applies that such an object is gone."""
        self.state.remove_storage(kind, name)

    def put_budget(self, namespace: str, key: str, budget: DisruptionBudget | None) -> None:
        """Applies a disruption budget, or its removal."""
        self._budgets_changed = True
        self._changed_pods |= self._disruptions.put_budget(namespace, key, budget)

    def declare(self, key: str, declared: DeclaredGroup | None) -> None:
        """Applies a PodGroup, or its removal."""
        self.roster.declare(key, declared)

    # What the controller does ------------------------------------------------------------------

    @property
    def assumed(self) -> dict[str, Assumed]:
        """By pod: its start that is being written."""
        return self._tentative.assumed

    @property
    def refused(self) -> dict[str, float]:
        """The pods without a gate that kube-scheduler finds no node for, and since when."""
        return self._refusals.since

    @property
    def kept(self) -> set[str]:
        """The pods of these that stay as long as nobody else needs their devices."""
        return self._refusals.kept

    def refuse(self, pod: ObservedPod, group: str, avoid: tuple[str, float] | None) -> None:
        """Learns that kube-scheduler has refused a pod that the controller started.

        avoid: the node that pods like it avoid, and until which Unix time.
        """
        words = f"kube-scheduler: {pod.verdict or 'no reason given'}"
        self._backoffs.refuse(pod, group, self._now, self.roster.pods(), words)
        if avoid is not None:
            self._backoffs.avoid(pod, *avoid)

    def refuse_start(self, pod: str, group: str, error: Exception) -> None:
        """Records that the API server refuses what starts a pod."""
        if (known := self.pods.get(pod)) is not None:
            words = f"the API server: {error}"
            self._backoffs.refuse(known, group, self._now, self.roster.pods(), words)

    @property
    def evicting(self) -> Mapping[str, str]:
        """The pods that are being evicted, with their UIDs."""
        return self._disruptions.evicting

    def assume(self, pod: str, assumed: Assumed) -> None:
        """Has a pod count as placed, and its claims as allocated, from now on."""
        if pod in self.pods:
            self._refusals.give(pod, assumed.node)
            self._planned.give(self.pods[pod], assumed.planned, self._now)
        for claim in self._tentative.assume(pod, assumed):
            self._change_claim(claim)
        self._change(pod)

    def forget(self, starts: Mapping[str, Assumed]) -> None:
        """Counts pods as they are watched: their starts are written, or cannot be."""
        for key, assumed in starts.items():
            claims, is_over = self._tentative.forget(key, assumed)
            for claim in claims:
                self._change_claim(claim)
            if is_over:
                self._change(key)
                if key in self.pods:
                    self._note_verdict(self.pods[key])

    def release(self, claim: str) -> None:
        """Has a tentative allocation count as in use, while it is being taken back."""
        self._tentative.release(claim)
        self._change_claim(claim)

    def end_release(self, claim: ResourceClaim, until: float) -> None:
        """Has an allocation count as tentative again from a Unix time on, if it is still there."""
        if self._watched.is_there(claim) and self._tentative.end_release(claim.key, until):
            self._change_claim(claim.key)

    def is_being_released(self, claim: str) -> bool:
        """Whether an allocation is being taken back, or that is tried again later."""
        return self._tentative.are_released((claim,))

    def assume_evicted(self, pod: str) -> None:
        """Has a pod count as one that is leaving."""
        self._disruptions.assume_evicted(self.pods[pod], self._now)
        self._changed_pods[pod] = None

    def forget_eviction(self, pod: ObservedPod, until: float) -> None:
        """Has a pod count as before; the API server is not asked to evict it until a Unix time."""
        if self._disruptions.forget_eviction(pod, until):
            self._changed_pods[pod.key] = None
            self._budgets_changed = True

    def may_be_evicted(self, pod: str) -> bool:
        """Whether the API server may be asked to evict a pod now."""
        return self._disruptions.may_be_evicted(pod, self._now)

    def avoid(self, group: str, node: str, until: float) -> None:
        """Keeps a group from a node until a Unix time."""
        self._deferrals.avoid(group, node, until)
        self._change_group(group)

    def last_node(self, pod: ObservedPod) -> str | None:
        """The node that a pod was given last."""
        return self._refusals.last_node(pod)

    def hold_back(self, group: str, until: float, *, keeps: bool) -> None:
        """Delays the next start of a group until a Unix time; it may keep tentative allocations."""
        self._deferrals.hold_back(group, until, keeps=keeps)
        self._change_group(group)

    def standalone_of(self, group: str) -> ResourceClaim | None:
        """The standalone claim that is a group by itself."""
        key = self._standalone.claim_of(group)
        return None if key is None else self.claims.get(key)

    @property
    def standalone(self) -> Mapping[str, StandaloneClaim]:
        """By claim: those that ask for devices by themselves."""
        return self._standalone.known

    @property
    def ending(self) -> Mapping[str, None]:
        """The claims of which the controller's reservation is to be ended."""
        return self._standalone.ending

    def refusals(self) -> dict[str, str]:
        """The groups that cannot be decided on: why, and the remedy."""
        return self.roster.refused | self._standalone.refusals()

    def is_taken_back(self, pod: ObservedPod) -> bool:
        """Whether a pod lost its gate with devices that it has no more."""
        return self._view.is_taken_back(pod)

    def tentative(self) -> Mapping[str, Allocation]:
        """By claim: the allocations that are not in effect, as the API server has them."""
        return self._tentative.allocations

    # The state ---------------------------------------------------------------------------------

    @property
    def wake(self) -> float | None:
        """When something changes by time alone, as a Unix time."""
        parts = self._tentative.wake, self._deferrals.wake, self._backoffs.wake
        due = self._due_pods.next, self._due_claims.next, *parts
        return min((at for at in due if at is not None), default=None)

    def refresh(self, now: float) -> bool:
        """Brings the state up to date with what has changed; whether anything had."""
        self._now = now
        self._watched.expire(now)
        self._look_at_what_is_due()
        self._take_refusals()
        busy = bool(self.roster.has_changed or self._changed_pods or self._changed_claims)
        groups = self.roster.refresh()
        busy |= self._queues_changed or self._budgets_changed
        if self._queues_changed:
            self._queues_changed = False
            self.state.put_queues(
                declared.queue for declared in self.roster.queues.by_name.values()
            )
            self._changed_claims |= dict.fromkeys(self.standalone)
            self._changed_pods |= dict.fromkeys(
                key for key, pod in self.pods.items() if pod.deleted is not None
            )  # how long they may take depends on their queues
        claims, self._changed_claims = self._changed_claims, {}
        for claim in claims:
            self._attempt(CLAIMS, claim, partial(self._refresh_claim, claim))
        for key, group in groups.items():
            if (group is None) == (key in self.state.occupancy.groups):
                # Its pods can be decided on from now on, or no longer; nothing else concerns them.
                self._changed_pods |= dict.fromkeys(self.roster.pods_of(key))
            put = partial(self.state.remove_group, key)
            if group is not None:
                put = partial(self.state.put_group, group)
            self._attempt(GROUPS, key, put)
        for key in self.roster.turned:
            self._changed_pods |= dict.fromkeys(self.roster.pods_of(key))
        self.roster.turned.clear()
        pods, self._changed_pods = self._changed_pods, {}
        for key in pods:
            self._attempt(PODS, key, partial(self._refresh_pod, key))
        if self._budgets_changed:
            self._budgets_changed = False
            self.state.put_budgets(self._disruptions.allowed())
        known = self.state.memory
        if new := self._tentative.nominations(known.nominations, self._watched.referrers):
            self.state.memory = replace(known, nominations=(*known.nominations, *new))
        self.state.advance(now)
        return busy

    def _look_at_what_is_due(self) -> None:
        for key in self._due_pods.take_due(self._now):
            self._changed_pods[key] = None
            if key in self.pods:
                self._note_unanswered(self.pods[key], is_gone=False)
        for claim in (*self._due_claims.take_due(self._now), *self._tentative.take_due(self._now)):
            self._change_claim(claim)
        for group in self._deferrals.take_due(self._now):
            self._change_group(group)

    def _take_refusals(self) -> None:
        """Has what kube-scheduler has refused count for the groups that it concerns."""
        self._backoffs.take_due(self._now)
        changed, self._backoffs.changed = self._backoffs.changed, {}
        for group in changed:
            self.roster.note_refusal(group, self._backoffs.refusal_of(group, self._now))
            self._change_group(group)

    def _attempt(self, resource: str, key: str, refresh: Callable[[], None]) -> None:
        """Brings an object up to date, or sets it aside."""
        self.set_aside.attempt(resource, key, _DECIDED_ON, refresh)

    def _refresh_claim(self, key: str) -> None:
        self.state.tainted.note_users(key)
        known = self.claims.get(key)
        if known is None:
            self.state.remove_claim(key)
            self.state.remove_pod(leaver_key(key))
            self._remove_standalone(key)
            return
        claim = self._tentative.counted(
            known, self.users_of(key), lambda pod: self._deferrals.keeps(self.roster.group_of(pod))
        )
        self.state.put_claim(claim)
        self._refresh_leaver(claim)
        self._refresh_standalone(claim)

    def _refresh_leaver(self, claim: ResourceClaim) -> None:
        users = (*self.users_of(claim.key), *self._controller_of(claim))
        leaver = self._leavers.leaver_of(claim, users, self._now)
        if leaver is None:
            self.state.remove_pod(leaver_key(claim.key))
        else:
            self._due_claims.set(claim.key, leaver.until)
            self.state.put_pod(leaver.pod)

    def _controller_of(self, claim: ResourceClaim) -> Iterator[ObservedPod]:
        """The pod that a claim was made for, which may not name it yet."""
        for owner in claim.metadata.owner_references:
            pod = self.pods.get(f"{claim.metadata.namespace}/{owner.name}")
            if owner.controller and pod is not None and pod.uid == owner.uid:
                yield pod

    def _refresh_standalone(self, claim: ResourceClaim) -> None:
        queues = self.roster.queues
        wanted = standalone_claim(
            claim, self._now, self.roster.refusal, queues.priority, queues.is_emptied
        )
        if wanted is not None and wanted.until is not None and wanted.until > self._now:
            self._due_claims.set(claim.key, wanted.until)
        if wanted is not None and wanted.stands_in(self.users_of(claim.key)):
            self.state.put_group(wanted.group)
            self.state.put_pod(self._view.of_claim(wanted))
        else:
            self._remove_standalone(claim.key)
        self._standalone.put(claim, wanted)

    def _remove_standalone(self, claim: str) -> None:
        if claim in self._standalone.known:
            group = key_of_standalone(claim)
            self.state.remove_pod(group)
            self.state.remove_group(group)
        self._standalone.remove(claim)

    def _refresh_pod(self, key: str) -> None:
        self._due_pods.cancel(key)
        pod = self.pods.get(key)
        before = self._planned.keys(key)
        planned: list[ResourceClaim] = []
        made: Pod | None = None
        if pod is not None:
            planned = self._planned.plan(pod, is_starting=key in self.assumed)
            made, until = self._view.of(pod, self._now)
            for at in (until, self._planned.until(pod, self._now)):
                if at is not None:
                    self._due_pods.set(key, at)
        for claim in planned:
            self.state.put_claim(claim)
        if made is None:
            self.state.remove_pod(key)
        else:
            self.state.put_pod(made)
        self._planned.forget(key, planned)
        present = {claim.key for claim in planned}
        for claim_key in before:
            if claim_key not in present:
                self.state.remove_claim(claim_key)
        if pod is not None and made is not None and planned:
            self._expect(pod, made)

    def _note_unanswered(self, pod: ObservedPod, *, is_gone: bool) -> None:
        """Has the namespace of a pod wait that others have waited for in vain."""
        seconds = self._planned.seconds_in_vain(pod, self._now, is_gone=is_gone)
        if seconds and pod.queue is not None and pod.key not in self._disruptions.evicting:
            self._backoffs.note_unanswered(pod, self._now, seconds, self.roster.pods())

    def _expect(self, pod: ObservedPod, made: Pod) -> None:
        """Plans what kube-scheduler will choose for a pod that an earlier leader has sent to it."""
        found = expected_devices(self.state.occupancy, made)
        if found:
            self._planned.give(pod, found, self._now)
            for claim in self._planned.plan(pod, is_starting=pod.key in self.assumed):
                self.state.put_claim(claim)

    def _note_storage(self, name: str, watched: StorageObject) -> None:
        """Ends the back-off of what kube-scheduler refused for an object, which has changed."""
        namespace, _, last = name.rpartition("/")
        if isinstance(watched, VolumeClaim | Volume | StorageClass):
            self._backoffs.object_changed(namespace, last, self._now)

    def _note_verdict(self, pod: ObservedPod) -> None:
        self._refusals.put_pod(pod, self._now, is_starting=pod.key in self.assumed)

    def _change(self, key: str) -> None:
        """Schedules a look at a pod, or at the claim that it stands for."""
        if (claim := self._standalone.claim_of(key)) is not None:
            self._changed_claims[claim] = None
        else:
            self._changed_pods[key] = None
            if key in self.pods:
                self._changed_claims |= dict.fromkeys(self.pods[key].named_claims)

    def _change_pod(self, pod: ObservedPod) -> None:
        self._changed_pods[pod.key] = None
        self._changed_claims |= dict.fromkeys(pod.named_claims)

    def _change_group(self, group: str) -> None:
        for pod in self.roster.members(group):
            self._change_pod(pod)
        if (claim := self._standalone.claim_of(group)) is not None:
            self._changed_claims[claim] = None

    def _change_claim(self, key: str) -> None:
        self._changed_claims[key] = None
        for pod in self._watched.named_by(key):
            if pod.queue is not None or pod.special == key:
                self._changed_pods[pod.key] = None

    def is_unserved(self, pod: str) -> bool:
        """Whether kube-scheduler has yet to choose devices for a pod that it was sent."""
        return self._planned.is_unserved(pod)

    def choices(self) -> Iterator[DeviceChoice]:
        """What kube-scheduler is choosing for pods that it was sent."""
        return self._planned.choices(self._now, self.pods)

    def users_of(self, claim: str) -> Iterator[ObservedPod]:
        """The pods that refer to a claim."""
        return self._watched.users_of(claim)


def _is_own_taint(watched: ResourceSlice | DeviceClass | DeviceTaintRule) -> bool:
    return isinstance(watched, DeviceTaintRule) and watched.spec.taint.key == TAINT
