"""Counts what tenants have, from slices and claims alone, and by nothing that the controller uses.

A physical GPU is the counter set that its devices consume. A whole GPU counts 1; a partition the
largest of its parts of the memory slices and of the multiprocessors; a share the largest of its
parts of memory and cores; both at least what their node says. Nothing of one GPU counts more than 1
for one queue.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, ApiResource, Scope
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from tests.integration.controller.fuzz.world import EVICTION_GRACE

POD_GROUPS: Final = ApiResource(
    "scheduling.carina.dev", "v1alpha1", "podgroups", "PodGroup", Scope.NAMESPACED
)
_QUANTITY: Final = re.compile(r"([0-9]+)(Ki|Mi|Gi|Ti|)")
_FACTORS: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUEUE: Final = "scheduling.carina.dev/queue"
_GROUP: Final = "scheduling.carina.dev/pod-group"
_PREEMPTIBLE: Final = "scheduling.carina.dev/preemptible"
_ENDS_WITHIN: Final = 60.0
"""Seconds after its grace period within which a pod ends, or is charged again."""
_MEMORY_SLICE: Final = "memory-slice-"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU."""

    node: str
    counter_set: str


@dataclass(frozen=True, slots=True)
class _Device:
    gpu: Gpu
    kind: str
    part: Fraction
    """For a partition, what it is of its GPU; for anything else 1."""
    memory: int
    least: Fraction
    """What a part of the GPU counts at least."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a claim has of a GPU."""

    gpu: Gpu
    part: Fraction
    is_shared: bool
    """Whether others may have a part of the same device."""
    device: str


@dataclass(frozen=True, slots=True)
class _Claim:
    queue: str
    uses: tuple[Use, ...]
    users: tuple[ObjectKey, ...]
    """The pods for which it is reserved."""
    owner: ObjectKey | None
    """The pod for which it was made."""


@dataclass(frozen=True, slots=True)
class _Pod:
    has_node: bool
    is_firm: bool
    """Whether it says itself that it is not preemptible."""
    group: str | None
    uncharged_until: float
    """Until when its queue is not charged for it, since the controller has evicted it, as a Unix
    time."""


class Judge:
    """Watches claims. Another thread may ask it at any time."""

    def __init__(self, client: Client) -> None:
        slices = client.list(RESOURCE_SLICES).items
        self._devices = dict(_devices(slices))
        self._gpus = {device.gpu for device in self._devices.values()}
        self._lock = threading.Lock()
        self._claims: dict[ObjectKey, _Claim] = {}
        self._firm_pods: dict[ObjectKey, None] = {}
        self._uncharged: dict[ObjectKey, float] = {}
        self._firm_groups: dict[ObjectKey, None] = {}
        self.started: set[ObjectKey] = set()
        """The pods that have ever had a node."""
        self.pods_of_claims: dict[ObjectKey, ObjectKey] = {}
        """The pods for which claims were ever made."""
        self.doubled: list[str] = []
        """A line for each device that was given to a second claim."""
        self._reflectors = (
            Reflector(client, PODS, _read_pod, on_change=self._pod_changed),
            Reflector(client, POD_GROUPS, _is_firm_group, on_change=self._group_changed),
            Reflector(client, RESOURCE_CLAIMS, self._read_claim, on_change=self._claim_changed),
        )

    def start(self) -> None:
        for reflector in self._reflectors:
            reflector.start()
        for reflector in self._reflectors:
            assert reflector.wait_synced(30.0)

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()

    def used(self) -> Mapping[str, Fraction]:
        """By queue: the physical GPUs that its claims have, but for those of evicted pods.

        These are not charged for a time (docs/controller.md, Evictions).
        """
        return _by_queue(claim for claim in self._known() if not self._all_leave(claim))

    def holders(self, queue: str) -> list[str]:
        """The claims of a queue that have GPUs, each with the pods that use it."""
        with self._lock:
            return [
                f"{key} ({sum(use.part for use in claim.uses)}) for {list(map(str, claim.users))}"
                for key, claim in self._claims.items()
                if claim.queue == queue and claim.uses
            ]

    def used_firmly(self) -> Mapping[str, Fraction]:
        """By queue: the physical GPUs of its groups that are not preemptible."""
        return _by_queue(self._firm_claims())

    def kept_firmly(self) -> Mapping[str, int]:
        """By queue: the number of GPUs of which these groups have any part."""
        gpus: dict[str, set[Gpu]] = defaultdict(set)
        for claim in self._firm_claims():
            gpus[claim.queue].update(use.gpu for use in claim.uses)
        return {queue: len(of) for queue, of in gpus.items()}

    def _firm_claims(self) -> Iterator[_Claim]:
        firm = (claim for claim in self._known() if self._is_firm(claim))
        return (claim for claim in firm if not self._all_leave(claim))

    def _all_leave(self, claim: _Claim) -> bool:
        now = time.time()
        return bool(claim.users) and all(self._uncharged.get(pod, 0) > now for pod in claim.users)

    def _is_firm(self, claim: _Claim) -> bool:
        return any(pod in self._firm_pods for pod in claim.users)

    def free(self) -> dict[str, int]:
        """By node: the GPUs of which nobody has any part."""
        taken = {use.gpu for claim in self._known() for use in claim.uses}
        free: dict[str, int] = defaultdict(int)
        for gpu in self._gpus - taken:
            free[gpu.node] += 1
        return free

    def _known(self) -> list[_Claim]:
        with self._lock:
            return list(self._claims.values())

    def _pod_changed(self, change: ObjectChange[_Pod]) -> None:
        match change:
            case Created(key, pod) | Updated(key, _, pod):
                if pod.has_node:
                    self.started.add(key)
                group = None if pod.group is None else ObjectKey(key.namespace, pod.group)
                is_firm = pod.is_firm if group is None else group in self._firm_groups
                if is_firm and pod.has_node:
                    self._firm_pods[key] = None
                self._uncharged[key] = pod.uncharged_until
            case Removed(key, _):
                self._firm_pods.pop(key, None)
                self._uncharged.pop(key, None)

    def _group_changed(self, change: ObjectChange[bool]) -> None:
        match change:
            case Created(key, is_firm) | Updated(key, _, is_firm):
                if is_firm:
                    self._firm_groups[key] = None
            case Removed():
                pass

    def _claim_changed(self, change: ObjectChange[_Claim]) -> None:
        with self._lock:
            match change:
                case Created(key, claim) | Updated(key, _, claim):
                    self._note(key, claim)
                case Removed(key, _):
                    self._claims.pop(key, None)

    def _note(self, key: ObjectKey, claim: _Claim) -> None:
        known = self._claims.get(key)
        before = set() if known is None else {use.device for use in known.uses}
        new = {use.device for use in claim.uses if not use.is_shared} - before
        if new:
            self.doubled += [
                f"{use.device} of {other} is given to {key}"
                for other, of in self._claims.items()
                if other != key
                for use in of.uses
                if use.device in new
            ]
        if claim.owner is not None:
            self.pods_of_claims[key] = claim.owner
        self._claims[key] = claim

    def _read_claim(self, body: Body) -> _Claim:
        metadata, status = body["metadata"], body.get("status") or {}
        namespace = metadata["namespace"]
        allocation = status.get("allocation") or {}
        owners = [
            ObjectKey(namespace, owner["name"])
            for owner in metadata.get("ownerReferences") or ()
            if owner["kind"] == "Pod"
        ]
        return _Claim(
            queue=(metadata.get("labels") or {}).get(_QUEUE, ""),
            uses=tuple(self._uses_of((allocation.get("devices") or {}).get("results") or ())),
            users=tuple(
                ObjectKey(namespace, user["name"]) for user in status.get("reservedFor") or ()
            ),
            owner=owners[0] if owners else None,
        )

    def _uses_of(self, results: Sequence[Mapping[str, Any]]) -> Iterator[Use]:
        for result in results:
            device = self._devices.get((result["pool"], result["device"]))
            if device is None or result.get("adminAccess"):
                continue
            amounts = result.get("consumedCapacity") or {}
            part = device.part
            if device.kind == "share":
                memory = Fraction(_amount(amounts.get("memory", "0")), device.memory)
                part = max(memory, Fraction(_amount(amounts.get("cores", "0")), 100), device.least)
            name = f"{result['pool']}/{result['device']}"
            yield Use(device.gpu, part, device.kind == "share", name)


def _by_queue(claims: Iterable[_Claim]) -> Mapping[str, Fraction]:
    by_gpu: dict[tuple[str, Gpu], Fraction] = defaultdict(Fraction)
    for claim in claims:
        for use in claim.uses:
            by_gpu[claim.queue, use.gpu] += use.part
    used: dict[str, Fraction] = defaultdict(Fraction)
    for (queue, _), part in by_gpu.items():
        used[queue] += min(part, Fraction(1))
    return used


def _read_pod(body: Body) -> _Pod:
    metadata = body["metadata"]
    return _Pod(
        has_node=bool(body["spec"].get("nodeName")),
        is_firm=(metadata.get("annotations") or {}).get(_PREEMPTIBLE) == "false",
        group=(metadata.get("labels") or {}).get(_GROUP),
        uncharged_until=_uncharged_until(metadata, body.get("status") or {}),
    )


def _uncharged_until(metadata: Body, status: Body) -> float:
    at, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds") or 0
    conditions = status.get("conditions") or ()
    is_evicted = any(each["type"] == "DisruptionTarget" for each in conditions)
    if at is None or grace > EVICTION_GRACE or not is_evicted:
        return 0.0
    return datetime.fromisoformat(at).timestamp() + _ENDS_WITHIN


def _is_firm_group(body: Body) -> bool:
    return body["spec"].get("preemptible") is False


def _devices(slices: Sequence[Body]) -> Iterator[tuple[tuple[str, str], _Device]]:
    whole: dict[tuple[str, str], Mapping[str, int]] = {}
    for body in slices:
        pool = body["spec"]["pool"]["name"]
        for each in body["spec"].get("sharedCounters") or ():
            counters = {name: _amount(of["value"]) for name, of in each["counters"].items()}
            whole[pool, each["name"]] = counters
    for body in slices:
        pool = body["spec"]["pool"]["name"]
        for device in body["spec"].get("devices") or ():
            if "consumesCounters" not in device:
                continue  # a monitor, which uses nothing
            (consumed,) = device["consumesCounters"]
            counters = {name: _amount(of["value"]) for name, of in consumed["counters"].items()}
            kind = device["attributes"]["type"]["string"]
            part, least = Fraction(1), Fraction(device["attributes"]["leastShare"]["string"])
            if kind == "mig":
                part = max(least, _part(counters, whole[pool, consumed["counterSet"]]))
            memory = _amount(device["capacity"]["memory"]["value"])
            gpu = Gpu(pool, consumed["counterSet"])
            yield (pool, device["name"]), _Device(gpu, kind, part, memory, least)


def _part(of: Mapping[str, int], whole: Mapping[str, int]) -> Fraction:
    slices = sum(amount for name, amount in of.items() if name.startswith(_MEMORY_SLICE))
    all_slices = sum(amount for name, amount in whole.items() if name.startswith(_MEMORY_SLICE))
    cores = Fraction(of["multiprocessors"], whole["multiprocessors"])
    return max(Fraction(slices, all_slices), cores)


def _amount(text: str) -> int:
    matched = _QUANTITY.fullmatch(text)
    assert matched is not None, text
    return int(matched[1]) * _FACTORS[matched[2]]
