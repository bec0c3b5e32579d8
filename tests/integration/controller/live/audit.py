"""What must hold of claims and pods at any time, and what once nothing changes any more."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body, ObjectKey, resource_version_of
from carina_dra.kube.client import Client
from carina_dra.kube.reflector import Tracker
from carina_dra.kube.store import Created, ObjectChange, Removed, Store, Updated
from controller.names import GATE
from controller.observe.planned_claims import SPECIAL_ANNOTATION

Device: TypeAlias = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim that has devices."""

    key: ObjectKey
    made_for: str | None
    """The UID of the pod for which kube-scheduler made it, if it did."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """A device that was given to a second claim while the first had it."""

    device: Device
    first: Holder
    second: Holder
    version: int
    """Of the second claim, when it was given the device."""

    def __str__(self) -> str:
        return f"{self.device} of {self.first.key} is given to {self.second.key}"


class Record:
    """Who has had which device, in the order of the writes.

    When a pod that asks by an extended resource is deleted before it has a node, kube-scheduler may
    still write an allocation for it. Nobody can use that: a device is not doubled by a claim whose
    pod was gone, and had had no node, before the second claim was given the device.

    Versions of claims and of pods are compared: a server that keeps both in one etcd counts them
    together, as its revisions.
    """

    def __init__(self) -> None:
        self._doubled: list[Doubled] = []
        self._holders: defaultdict[Device, list[Holder]] = defaultdict(list)
        self._devices: dict[ObjectKey, frozenset[Device]] = {}
        self._bound: set[str] = set()
        """The UIDs of all pods that have ever had a node."""
        self._deleted: dict[str, int] = {}
        """The versions at which pods were deleted, by UID."""

    def claim_written(self, holder: Holder, devices: frozenset[Device], version: int) -> None:
        """Notes the devices of a claim at a version; none, if it is gone."""
        before = self._devices.pop(holder.key, frozenset())
        for device in before - devices:
            others = self._holders[device]
            self._holders[device] = [other for other in others if other.key != holder.key]
        for device in sorted(devices - before):
            holders = self._holders[device]
            self._doubled += (Doubled(device, first, holder, version) for first in holders)
            holders.append(holder)
        if devices:
            self._devices[holder.key] = devices

    def pod_bound(self, uid: str) -> None:
        """Notes that a pod has a node."""
        self._bound.add(uid)

    def pod_deleted(self, uid: str, version: int) -> None:
        """Notes at which version a pod was deleted."""
        self._deleted[uid] = version

    def doubled(self) -> list[str]:
        """A line for each device that was given to a second claim, where both can be used."""
        return [
            str(doubled)
            for doubled in self._doubled
            if not any(
                self._cannot_be_used(holder, doubled.version)
                for holder in (doubled.first, doubled.second)
            )
        ]

    def _cannot_be_used(self, holder: Holder, version: int) -> bool:
        """Whether the pod of a claim was gone before a version, and never had a node."""
        uid = holder.made_for
        if uid is None or uid in self._bound:
            return False
        deleted = self._deleted.get(uid)
        return deleted is not None and deleted < version


class _Pods(Store[Body]):
    """Pods. Of each that a watch says is deleted, it tells the version.

    A pod that a list does not have any more was deleted at a version that nobody knows: nothing is
    told, so that no allocation is excused by it.
    """

    def __init__(self, deleted: Callable[[str, int], None]) -> None:
        super().__init__()
        self._deleted = deleted

    def remove(self, key: ObjectKey, version: int) -> Removed[Body] | None:
        """Removes a pod that was deleted at a version."""
        removed = super().remove(key, version)
        if removed is not None:
            self._deleted(removed.value["metadata"]["uid"], version)
        return removed


class Audit:
    """Sees every version of every claim, and notes each device that two claims have at once."""

    def __init__(self, client: Client) -> None:
        self.versions = 0
        """How many versions of claims it has seen."""
        self._record = Record()
        self._lock = threading.Lock()
        self._trackers = (
            Tracker(client, RESOURCE_CLAIMS, _unchanged, Store(), on_change=self._claim_changed),
            Tracker(
                client, PODS, _unchanged, _Pods(self._pod_deleted), on_change=self._pod_changed
            ),
        )

    def start(self) -> None:
        for tracker in self._trackers:
            tracker.start()
            assert tracker.wait_synced(10.0)

    def stop(self) -> None:
        for tracker in self._trackers:
            tracker.stop()

    def doubled(self) -> list[str]:
        """A line for each device that was given to a second claim, where both can be used."""
        with self._lock:
            return self._record.doubled()

    def _claim_changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(key, body) | Updated(key, _, body):
                self._claim_written(key, body, devices_of(body))
            case Removed(key, body):
                self._claim_written(key, body, ())

    def _claim_written(self, key: ObjectKey, body: Body, devices: Iterable[Device]) -> None:
        version = int(resource_version_of(body))
        with self._lock:
            self.versions += 1
            self._record.claim_written(Holder(key, _made_for(body)), frozenset(devices), version)

    def _pod_changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(_, body) | Updated(_, _, body) if body["spec"].get("nodeName"):
                with self._lock:
                    self._record.pod_bound(body["metadata"]["uid"])

    def _pod_deleted(self, uid: str, version: int) -> None:
        with self._lock:
            self._record.pod_deleted(uid, version)


def _unchanged(body: Body) -> Body:
    return body


def _made_for(claim: Body) -> str | None:
    if SPECIAL_ANNOTATION not in claim["metadata"].get("annotations", {}):
        return None
    owners = claim["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


@contextmanager
def audited(client: Client) -> Iterator[Audit]:
    """Watches the claims; fails at the end if a device was given twice."""
    audit = Audit(client)
    audit.start()
    try:
        yield audit
    finally:
        audit.stop()
    doubled = audit.doubled()
    assert not doubled, doubled


def devices_of(claim: Body) -> tuple[Device, ...]:
    """The devices that a claim has."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return tuple((result["pool"], result["device"]) for result in results)


def is_gated(pod: Body) -> bool:
    """Whether the controller's gate holds a pod."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def left_behind(pods: Mapping[str, Body], claims: Mapping[str, Body]) -> list[str]:
    """What a controller must not leave in a namespace at rest, a line each.

    These are: allocations for pods that do not run, reservations for pods that are gone, pods that
    run without their devices, and pods that have lost their gate but have no node.
    """
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods.values()}
    lines = []
    for name, claim in claims.items():
        consumers = [each["uid"] for each in claim.get("status", {}).get("reservedFor") or ()]
        if devices_of(claim) and not consumers:
            lines.append(f"claim {name} has devices for nobody")
        for uid in consumers:
            pod = by_uid.get(uid)
            if pod is None:
                lines.append(f"claim {name} is reserved for a pod that is gone")
            elif is_gated(pod):
                lines.append(f"claim {name} is reserved for {pod['metadata']['name']}, a gated pod")
    for name, pod in pods.items():
        if not is_gated(pod) and not pod["spec"].get("nodeName"):
            lines.append(f"pod {name} has neither gate nor node")
        if pod["spec"].get("nodeName"):
            lines += [
                f"pod {name} runs without claim {claim}"
                for claim in _claims_of(pod)
                if claim not in claims or not devices_of(claims[claim])
            ]
    return lines


def _claims_of(pod: Body) -> Iterable[str]:
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    return [status["resourceClaimName"] for status in statuses]
