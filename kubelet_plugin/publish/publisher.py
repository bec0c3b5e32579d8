"""Keeps the node's ResourceSlices in the API as they ought to be, for as long as the process lives.

It follows the slices of its driver on its node: what somebody else changes or deletes (the kubelet
deletes all of them when it starts) is made good at once. What cannot be written is tried again
after a growing, jittered delay.

It follows other drivers' slices too: a GPU that another driver on the node offers is published as
`other_drivers` decides.

Two plugins of one driver on a node, during a rolling update, want the same slices and then neither
writes. If they differ, each makes good what the other wrote, ever more slowly, until the old one
ends; the last to stay has the last word.
"""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey, key_of, resource_version_of
from carina_dra.kube.client import Client, Preconditions, Selection
from carina_dra.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Entry
from carina_dra.resource import OwnerReference, ResourceSlice, decode, encode
from kubelet_plugin.devices.device import Device
from kubelet_plugin.publish.feature_gate import FeatureGate, needed, without
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    Contested,
    Decision,
    PublishedGpu,
    decide,
    published_gpus,
)
from kubelet_plugin.publish.pool import Pool, pool
from kubelet_plugin.publish.sync import Plan, sync

__all__ = ["Operation", "Publisher", "Reporter"]

_SETTLE: Final = 0.1
"""Seconds between a change by somebody else and the look at it: they rarely come alone."""
_PEACE: Final = 300.0
"""Seconds without a change by somebody else after which the next is made good at once again."""
_ASK_AGAIN: Final = 3600.0
"""Seconds after which a feature gate that was off is tried again."""
_EXPLAIN: Final = 5.0
"""Seconds without a first list after which the reason is asked for."""

Operation: TypeAlias = Literal["create", "update", "delete"]

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Hears of what an operator should know, from the publisher's thread."""

    def slice_written(self, operation: Operation) -> None:
        """A slice was written."""

    def slices_published(self, pool: Pool) -> None:
        """The slices are what they ought to be; told again after each failure and each change."""

    def slices_repaired(self) -> None:
        """Somebody else had changed or deleted slices, and that is made good."""

    def publishing_failed(self, error: ApiError) -> None:
        """An attempt to publish failed; there will be another."""

    def feature_gate_off(self, gate: FeatureGate) -> None:
        """The API server drops what this gate is for; told once until it stores it again."""

    def gpus_contested(self, decision: Decision) -> None:
        """Other drivers offer other GPUs of the node than before, or none any more."""


@dataclass(frozen=True, slots=True)
class _OtherSlice:
    """A slice of another driver: the GPUs that it may have."""

    gpus: frozenset[PublishedGpu]


class Publisher:
    """The slices of one driver on one node."""

    def __init__(
        self,
        client: Client,
        *,
        driver: str,
        node: str,
        reporter: Reporter,
        clock: Callable[[], float],
        other_drivers: OtherDriverWatch,
        beside_other_drivers: BesideOtherDrivers,
        backoff: Backoff | None = None,
    ) -> None:
        """`clock` is monotonic, in seconds; `backoff` is between attempts that fail.

        `other_drivers` is used by the publisher's thread alone.
        """
        self._client = client
        self._driver = driver
        self._node = node
        self._reporter = reporter
        self._clock = clock
        self._other_drivers = other_drivers
        self._policy: BesideOtherDrivers = beside_other_drivers
        self._backoff = backoff or Backoff()
        self._selection = Selection(fields=f"spec.nodeName={node}")
        self._reflector = Reflector(
            client,
            RESOURCE_SLICES,
            self._parse,
            selection=self._selection,
            on_change=lambda _: self._changed_by_others(),
        )
        self._thread = threading.Thread(target=self._run, name="slice-publisher", daemon=True)

        self._state = threading.Condition()
        self._wanted: tuple[Device, ...] | None = None
        self._settled: tuple[Device, ...] | None = None
        self._due = math.inf
        self._peace_until = -math.inf
        self._stopped = False

        # Of the publisher's thread alone:
        self._stored: Pool | None = None
        self._owner: OwnerReference | None = None
        self._off_until: dict[FeatureGate, float] = {}
        self._told_off: set[FeatureGate] = set()
        self._contested: tuple[Contested, ...] = ()
        self._repaired_at = -math.inf
        self._repair_backoff = Backoff(initial=1.0, cap=60.0)

    def start(self) -> None:
        """Begins to follow the slices there are; nothing is written before the first `publish`."""
        self._reflector.start()
        self._thread.start()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Writes no more. The slices stay: another plugin may have taken over."""
        with self._state:
            self._stopped = True
            self._state.notify_all()
        self._reflector.stop(timeout=timeout)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def publish(self, devices: Sequence[Device]) -> None:
        """Says which devices the node has from now on, and returns at once."""
        with self._state:
            self._wanted = tuple(devices)
            self._settled = None
            self._schedule(self._clock())

    def republish(self) -> None:
        """Looks at once whether the slices are what they ought to be; returns before it does."""
        with self._state:
            self._schedule(self._clock())

    @property
    def published(self) -> bool:
        """Whether the slices were what they ought to be when last looked at."""
        return self._wanted is not None and self._settled is self._wanted

    def wait_published(self, timeout: float) -> bool:
        """Waits until the slices are what they ought to be; whether it is in time, in seconds."""
        with self._state:
            return self._state.wait_for(lambda: self.published, timeout)

    def _changed_by_others(self) -> None:
        with self._state:
            self._schedule(max(self._clock() + _SETTLE, self._peace_until))

    def _schedule(self, at: float) -> None:
        """Has the slices looked at then or earlier. To be called with the lock held."""
        self._due = min(self._due, at)
        self._state.notify_all()

    def _run(self) -> None:
        with suppress(ApiError):  # only to have it early; read again where it is needed
            self._owner = self._read_owner()
        while (devices := self._next()) is not None:
            try:
                settled = self._listed() and self._sync(devices)
            except ApiError as error:
                self._reporter.publishing_failed(error)
                patience = error.retry_after if isinstance(error, TooManyRequests) else 0.0
                self._again(patience)
            except Exception:  # noqa: BLE001 - a bug: the slices stay followed, and it is told
                _log.exception("the slices cannot be published; trying again")
                self._again()
            else:
                if settled:
                    self._settle(devices)
                else:
                    self._again()

    def _next(self) -> tuple[Device, ...] | None:
        """Waits until it is time to look at the slices; None when stopped."""
        with self._state:
            while not self._stopped:
                now = self._clock()
                if self._wanted is None:
                    self._state.wait()
                elif self._due > now:
                    self._state.wait(None if self._due == math.inf else self._due - now)
                else:
                    self._due = math.inf
                    return self._wanted
        return None

    def _again(self, at_least: float = 0.0) -> None:
        """Has the slices looked at again after a failure."""
        self._stored = None
        with self._state:
            self._settled = None
            self._schedule(self._clock() + max(at_least, self._backoff.next()))

    def _settle(self, devices: tuple[Device, ...]) -> None:
        self._backoff.reset()
        with self._state:
            self._settled = devices
            self._schedule(min(self._off_until.values(), default=math.inf))

    def _listed(self) -> bool:
        """Waits for the list of the slices there are; False when stopped.

        Raises ApiError where the API server refuses it.
        """
        while not self._reflector.wait_synced(_EXPLAIN):
            if self._stopped:
                return False
            self._client.list(RESOURCE_SLICES, self._selection)
        return True

    def _sync(self, devices: tuple[Device, ...]) -> bool:
        """Makes the slices what they ought to be; False where somebody else came in between."""
        decision = self._decide(devices)
        if not decision.slices_are_ours:
            self._stored = None
            return True
        wanted = pool(decision.devices, driver=self._driver, node=self._node)
        now = self._clock()
        self._off_until = {gate: until for gate, until in self._off_until.items() if until > now}
        while True:
            off = frozenset(self._off_until)
            target = without(wanted, off)
            plan = sync(target, self._our_slices())
            if plan and target == self._stored:
                self._repair()
            if not self._write(plan):
                return False
            if off == self._off_until.keys():  # else a gate turned out to be off
                break
        if plan or target != self._stored:
            self._reporter.slices_published(target)
        self._stored = target
        return True

    def _decide(self, devices: tuple[Device, ...]) -> Decision:
        """Decides what is published beside other drivers, and has that looked at again in time."""
        if not devices and not self._our_slices():
            return decide((), (), self._policy)  # as on most nodes: spare the API server
        slices = self._reflector.store.snapshot().values()
        theirs = [gpu for found in slices if isinstance(found, _OtherSlice) for gpu in found.gpus]
        decision = decide(devices, self._other_drivers.offers(theirs), self._policy)
        with self._state:
            self._schedule(self._other_drivers.due)
        if decision.contested != self._contested and (devices or decision.contested):
            self._contested = decision.contested
            self._reporter.gpus_contested(decision)
        return decision

    def _our_slices(self) -> list[ResourceSlice]:
        slices = self._reflector.store.snapshot().values()
        return [found for found in slices if isinstance(found, ResourceSlice)]

    def _repair(self) -> None:
        """Somebody else has undone what was right. If they insist, the answer gets slower."""
        now = self._clock()
        if now - self._repaired_at > _PEACE:
            self._repair_backoff.reset()
        self._repaired_at = now
        with self._state:
            self._peace_until = now + self._repair_backoff.next()
        self._reporter.slices_repaired()

    def _write(self, plan: Plan) -> bool:
        owner = (self._take_owner(),) if plan.create else ()
        versions: dict[str, str] = {}
        try:
            for each in plan.update:
                body = self._client.replace(RESOURCE_SLICES, encode(each))
                versions[each.metadata.name] = resource_version_of(body)
                self._written("update", each, body)
            for each in plan.create:
                body = encode(
                    replace(each, metadata=replace(each.metadata, owner_references=owner))
                )
                self._written("create", each, self._client.create(RESOURCE_SLICES, body))
            for each in plan.delete:
                name, read = each.metadata.name, each.metadata.resource_version
                self._delete(name, each.metadata.uid, versions.get(name, read))
        except (Conflict, NotFound) as error:
            _log.info("the slices have changed in between", extra={"error": str(error)})
            return False
        return True

    def _written(self, operation: Operation, sent: ResourceSlice, body: Body) -> None:
        """Remembers what was stored, and which feature gates it shows to be off."""
        stored = decode(ResourceSlice, body)
        version = int(resource_version_of(body))
        self._reflector.store.put(key_of(body), Entry(version, stored))
        self._reporter.slice_written(operation)
        kept = needed(stored.spec)
        for gate in needed(sent.spec):
            if gate in kept:
                self._told_off.discard(gate)
                continue
            self._off_until[gate] = self._clock() + _ASK_AGAIN
            if gate not in self._told_off:
                self._told_off.add(gate)
                self._reporter.feature_gate_off(gate)

    def _delete(self, name: str, uid: str, version: str) -> None:
        conditions = Preconditions(uid=uid, resource_version=version)
        with suppress(NotFound):
            self._client.delete(RESOURCE_SLICES, name, preconditions=conditions)
        self._reflector.store.remove(ObjectKey("", name), int(version))
        self._reporter.slice_written("delete")

    def _take_owner(self) -> OwnerReference:
        """The node as it is now: if it was made anew, the garbage collector ends its old slices."""
        owner, self._owner = self._owner, None
        return owner or self._read_owner()

    def _read_owner(self) -> OwnerReference:
        node = self._client.get(NODES, self._node)
        return OwnerReference(
            api_version=NODES.api_version,
            kind=NODES.kind,
            name=self._node,
            uid=node["metadata"]["uid"],
            controller=True,
        )

    def _parse(self, body: Body) -> ResourceSlice | _OtherSlice:
        parsed = decode(ResourceSlice, body)
        if parsed.spec.driver == self._driver:
            return parsed
        return _OtherSlice(published_gpus(parsed.spec))
