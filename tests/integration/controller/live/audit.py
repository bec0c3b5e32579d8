"""What must hold of claims and pods at any time, and what once nothing changes any more."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from controller.names import GATE

Device: TypeAlias = tuple[str, str]
"""Pool and name."""


class Audit:
    """Sees every version of every claim, and notes each device that two claims have at once."""

    def __init__(self, client: Client) -> None:
        self.doubled: list[str] = []
        """A line for each device that was given to a second claim."""
        self.versions = 0
        """How many versions of claims it has seen."""
        self._users: dict[Device, ObjectKey] = {}
        self._devices: dict[ObjectKey, tuple[Device, ...]] = {}
        self._lock = threading.Lock()
        self._reflector = Reflector(
            client, RESOURCE_CLAIMS, lambda body: body, on_change=self._changed
        )

    def start(self) -> None:
        self._reflector.start()
        assert self._reflector.wait_synced(10.0)

    def stop(self) -> None:
        self._reflector.stop()

    def _changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(key, body) | Updated(key, _, body):
                self._note(key, devices_of(body))
            case Removed(key, _):
                self._note(key, ())

    def _note(self, key: ObjectKey, devices: tuple[Device, ...]) -> None:
        with self._lock:
            self.versions += 1
            for device in self._devices.pop(key, ()):
                if self._users.get(device) == key:
                    del self._users[device]
            for device in devices:
                user = self._users.setdefault(device, key)
                if user != key:
                    self.doubled.append(f"{device} of {user} is given to {key}")
            self._devices[key] = devices


@contextmanager
def audited(client: Client) -> Iterator[Audit]:
    """Watches the claims; fails at the end if a device was given twice."""
    audit = Audit(client)
    audit.start()
    try:
        yield audit
    finally:
        audit.stop()
    assert not audit.doubled, audit.doubled


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
