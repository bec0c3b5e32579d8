"""What must hold of claims and pods at any time, and what once nothing changes any more."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from controller.names import GATE
from controller.observe.planned_claims import SPECIAL_ANNOTATION

Device: TypeAlias = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True, slots=True)
class Doubled:
    """A device that was given to a second claim while the first had it."""

    device: Device
    first: "Holder"
    second: "Holder"

    def __str__(self) -> str:
        return f"{self.device} of {self.first.key} is given to {self.second.key}"


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim that has devices."""

    key: ObjectKey
    made_for: str | None
    """The UID of the pod for which kube-scheduler made it, if it did."""


class Audit:
    """Sees every version of every claim, and notes each device that two claims have at once.

    When a pod that asks by an extended resource is deleted before it has a node, kube-scheduler may
    still write an allocation for it. Nobody can use that: it does not count as the device's second.
    """

    def __init__(self, client: Client) -> None:
        self.versions = 0
        """How many versions of claims it has seen."""
        self._doubled: list[Doubled] = []
        self._users: dict[Device, Holder] = {}
        self._devices: dict[ObjectKey, tuple[Device, ...]] = {}
        self._pods: dict[ObjectKey, str] = {}
        self._bound: set[str] = set()
        """The UIDs of all pods that have ever had a node."""
        self._lock = threading.Lock()
        self._reflectors = (
            Reflector(client, RESOURCE_CLAIMS, _unchanged, on_change=self._claim_changed),
            Reflector(client, PODS, _unchanged, on_change=self._pod_changed),
        )

    def start(self) -> None:
        for reflector in self._reflectors:
            reflector.start()
            assert reflector.wait_synced(10.0)

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()

    def doubled(self) -> list[str]:
        """A line for each device that was given to a second claim that can be used."""
        with self._lock:
            return [
                str(doubled)
                for doubled in self._doubled
                if not (self._too_late(doubled.first) or self._too_late(doubled.second))
            ]

    def _too_late(self, holder: Holder) -> bool:
        """Whether its pod was deleted before it had a node."""
        uid = holder.made_for
        return uid is not None and uid not in self._bound and uid not in self._pods.values()

    def _claim_changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(key, body) | Updated(key, _, body):
                self._note(Holder(key, _made_for(body)), devices_of(body))
            case Removed(key, body):
                self._note(Holder(key, _made_for(body)), ())

    def _pod_changed(self, change: ObjectChange[Body]) -> None:
        with self._lock:
            match change:
                case Created(key, body) | Updated(key, _, body):
                    self._pods[key] = body["metadata"]["uid"]
                    if body["spec"].get("nodeName"):
                        self._bound.add(body["metadata"]["uid"])
                case Removed(key, _):
                    self._pods.pop(key, None)

    def _note(self, holder: Holder, devices: tuple[Device, ...]) -> None:
        with self._lock:
            self.versions += 1
            for device in self._devices.pop(holder.key, ()):
                if self._users.get(device) == holder:
                    del self._users[device]
            for device in devices:
                user = self._users.setdefault(device, holder)
                if user != holder:
                    self._doubled.append(Doubled(device, user, holder))
            self._devices[holder.key] = devices


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
