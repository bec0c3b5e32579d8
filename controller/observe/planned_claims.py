"""Claims that do not exist yet: those that kube-scheduler makes for extended resources.

kube-scheduler makes such a claim, and allocates it, when it binds the pod, and deletes one that was
made before. So the controller plans it, charges it and gives the pod a node; kube-scheduler chooses
the devices. The claim that it makes takes the place of the planned ones as soon as it counts: it
has devices, the pod's status names it, and the pod controls it. It gets devices before the pod's
status names it, but the watch of claims may lag behind that of pods. Anybody may write the
annotation that such claims have, so this alone says nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from carina_dra.resource import (
    Allocation,
    DeviceClass,
    Exactly,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
)
from controller.engine.model.extended_resource import classes_by_resource
from controller.engine.model.planned_claim import planned_name
from controller.engine.model.pod import PodNeeds
from controller.observe.claim import is_pod
from controller.observe.extended_request import claim_spec
from controller.observe.pod import ObservedPod

SPECIAL_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims for extended resources (KEP-5004)."""
CHOICE_SECONDS: Final = 30.0
"""For which others wait for kube-scheduler's choice of devices. It may never choose."""


def is_special(claim: ResourceClaim | None, pod: ObservedPod) -> bool:
    """Whether a claim is the one that kube-scheduler made for a pod's extended resources.

    One without devices is not, or not any more: nothing would count for the pod. A tenant may take
    the pod from the owners of its claim; then it is the pod for which the claim is reserved.
    """
    if claim is None or claim.status.allocation is None or claim.key != pod.special:
        return False
    owners = [owner.uid for owner in claim.metadata.owner_references if owner.controller]
    users = [user.uid for user in claim.status.reserved_for if is_pod(user)]
    return pod.uid in (owners or users)


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Devices that kube-scheduler is choosing for a pod."""

    pod: str
    allocations: tuple[Allocation, ...]
    """As planned."""
    classes: frozenset[str]
    """The device classes that it chooses from."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What the claims of a pod are to get, by claim."""

    uid: str
    """That of the pod."""
    allocations: Mapping[str, Allocation]
    since: float
    """When the pod was sent to kube-scheduler, as a Unix time."""
    is_overdue: bool = False
    """Whether it is known that the choice is waited for no longer."""


class PlannedClaims:
    """The claims that pods are about to get for extended resources, by pod."""

    def __init__(self, claims: Mapping[str, ResourceClaim]) -> None:
        """`claims` are those that are watched."""
        self._claims = claims
        self._classes: dict[str, DeviceClass] = {}
        self._class_of: dict[str, str] = {}
        """By extended resource."""
        self._planned: dict[str, Mapping[str, ResourceClaim]] = {}
        """By pod, by extended resource."""
        self._given: dict[str, _Given] = {}
        self._choosing: dict[str, None] = {}
        """The pods for which kube-scheduler is choosing devices, or is about to."""

    def put_class(self, device_class: DeviceClass) -> bool:
        """Applies a class; whether pods may be served otherwise than before."""
        return self._set_class(device_class.metadata.name, device_class)

    def remove_class(self, device_class: DeviceClass) -> bool:
        """Applies that a class is gone; whether pods may be served otherwise than before."""
        return self._set_class(device_class.metadata.name, None)

    def _set_class(self, name: str, device_class: DeviceClass | None) -> bool:
        self._classes.pop(name, None)
        if device_class is not None:
            self._classes[name] = device_class
        before = self._class_of
        self._class_of = classes_by_resource(self._classes.values())
        return self._class_of != before

    # What the controller does.

    def give(self, pod: ObservedPod, allocations: Mapping[str, Allocation], now: float) -> None:
        """Records what the planned claims of a pod are to get, which is sent to kube-scheduler."""
        if allocations:
            self._given[pod.key] = _Given(pod.uid, allocations, now)

    def remove(self, pod: str) -> None:
        """Applies that a pod is gone."""
        self._given.pop(pod, None)
        self._choosing.pop(pod, None)

    # What there is.

    def plan(self, pod: ObservedPod, *, is_starting: bool) -> list[ResourceClaim]:
        """The claims that a pod needs planned now, with what they get if it was sent already.

        is_starting: whether its gate is being removed.
        """
        planned = dict(self._wanted(pod))
        if not planned:
            self.remove(pod.key)
        elif is_starting or not pod.is_held:
            given = self._given.get(pod.key)
            if given is not None and given.uid == pod.uid:
                planned = {
                    name: _with(claim, given.allocations.get(claim.key))
                    for name, claim in planned.items()
                }
            self._choosing[pod.key] = None
        else:
            self._choosing.pop(pod.key, None)
        self._planned[pod.key] = planned
        return list(planned.values())

    def forget(self, pod: str, kept: list[ResourceClaim]) -> None:
        """Records that no claims of a pod are planned but these."""
        if not kept:
            self._planned.pop(pod, None)

    def keys(self, pod: str) -> list[str]:
        """The claims that are planned for a pod."""
        return [claim.key for claim in self._planned.get(pod, {}).values()]

    def is_unserved(self, pod: str) -> bool:
        """Whether kube-scheduler has yet to choose devices for a pod that it was sent."""
        return pod in self._choosing

    def choices(self, now: float, pods: Mapping[str, ObservedPod]) -> Iterator[DeviceChoice]:
        """What kube-scheduler is choosing, where its choice may be expected soon.

        What it has refused it looks at again when something has changed, and then it sees all that
        is written; what it has not looked at for long may be the business of another scheduler.
        """
        for key in self._choosing:
            given, pod = self._given.get(key), pods.get(key)
            if given is None or pod is None or pod.verdict is not None:
                continue
            if given.since + CHOICE_SECONDS > now:
                claims = self._planned[key].values()
                yield DeviceChoice(key, tuple(given.allocations.values()), classes_of(claims))

    def until(self, pod: ObservedPod, now: float) -> float | None:
        """When a choice for a pod is no longer waited for, as a Unix time."""
        given = self._given.get(pod.key)
        if given is None or pod.key not in self._choosing or pod.verdict is not None:
            return None
        end = given.since + CHOICE_SECONDS
        return end if end > now else None

    def seconds_in_vain(self, pod: ObservedPod, now: float, *, is_gone: bool) -> float:
        """For how long others have waited for a choice for a pod that will not come any more, or
        not soon; each wait is told once.
        """
        given = self._given.get(pod.key)
        if given is None or given.uid != pod.uid or pod.verdict is not None:
            return 0.0
        if pod.key not in self._choosing or given.is_overdue:
            return 0.0
        seconds = min(max(0.0, now - given.since), CHOICE_SECONDS)
        if seconds == CHOICE_SECONDS:
            self._given[pod.key] = replace(given, is_overdue=True)
        return seconds if is_gone or seconds == CHOICE_SECONDS else 0.0

    # What the engine is shown.

    def claims(self, pod: ObservedPod) -> tuple[str, ...]:
        """The claims of a pod, with the special one, or those that are planned."""
        if is_special(self._claims.get(pod.special or ""), pod):
            return pod.named_claims
        return (*pod.claims, *self.keys(pod.key))

    def planned(self, pod: ObservedPod) -> tuple[tuple[str, str], ...]:
        """The claims that are planned, by extended resource."""
        return tuple((name, claim.key) for name, claim in self._planned.get(pod.key, {}).items())

    def needs(self, pod: ObservedPod) -> PodNeeds:
        """The needs of a pod; what planned claims ask for depends on the node."""
        planned = self._planned.get(pod.key)
        return _mapped(pod.needs, tuple(planned)) if planned else pod.needs

    def _wanted(self, pod: ObservedPod) -> Iterator[tuple[str, ResourceClaim]]:
        """The claims that kube-scheduler is to make for a pod, each for one extended resource."""
        is_over = pod.succeeded is not None or (pod.deleted is not None and pod.node is None)
        if pod.queue is None or is_over or not pod.extended:
            return
        if is_special(self._claims.get(pod.special or ""), pod):
            return
        if pod.node is not None and pod.special is None:
            return  # bound without a claim: device plugins serve it
        for name in dict.fromkeys(request.resource for request in pod.extended):
            class_name = self._class_of.get(name)
            if class_name is not None:
                metadata = ObjectMeta(
                    name=planned_name(pod.name, name),
                    namespace=pod.namespace,
                    uid=f"{pod.uid}/{name}",
                    annotations={SPECIAL_ANNOTATION: "true"},
                )
                yield name, ResourceClaim(metadata, spec=claim_spec(pod.extended, name, class_name))


def classes_of(claims: Iterable[ResourceClaim]) -> frozenset[str]:
    """The device classes that planned claims ask for."""
    return frozenset(
        request.wants.request.device_class_name
        for claim in claims
        for request in claim.spec.devices.requests
        if isinstance(request.wants, Exactly)
    )


def _with(claim: ResourceClaim, allocation: Allocation | None) -> ResourceClaim:
    return replace(claim, status=ResourceClaimStatus(allocation))


@lru_cache(4096)
def _mapped(needs: PodNeeds, names: tuple[str, ...]) -> PodNeeds:
    """Needs of which some extended resources depend on the node."""
    return replace(
        needs,
        extended=tuple(one for one in needs.extended if one[0] not in names),
        mapped=tuple(one for one in needs.extended if one[0] in names),
    )
