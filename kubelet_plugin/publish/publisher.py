"""Keeps the node's ResourceSlices in the API up to date while the process runs.

The publisher watches all slices of its node. A change of the driver's own slices by another client
is reverted at once; the kubelet, for example, deletes all slices of the node when it starts. A
write that fails is retried with an increasing, jittered delay. Slices of other drivers show which
GPUs these offer; `other_drivers` decides what to publish beside them. A new order of devices is
written when claims have changed (`ordering`).

During a rolling update two plugins of one driver run on a node. They normally want the same slices,
and neither writes. Where they differ, the older one leaves the slices of the newer one as they are,
once the newer one listens. Before, and beside others, each reverts the other's writes after a delay
that doubles every time.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES, ApiResource
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body, ObjectKey, key_of, resource_version_of
from carina_dra.kube.client import Client, Preconditions, Selection
from carina_dra.kube.errors import ApiError, Conflict, Forbidden, NotFound, TooManyRequests
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import StoreEntry
from carina_dra.resource import OwnerReference, ResourceSlice, decode, encode
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.publish.feature_gate import FeatureGate, named_in, needed, without
from kubelet_plugin.publish.ordering import Ordering, WantedOrder
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    Contested,
    Decision,
    PublishedGpu,
    decide,
    published_gpus,
)
from kubelet_plugin.publish.pacing import Pace, TaintWrites, paced
from kubelet_plugin.publish.pool import PublishedPool, pool
from kubelet_plugin.publish.sync import SlicePlan, sync

_GROUPING_DELAY: Final = 0.1
"""Seconds between another client's change and the next check, because changes come in groups."""
_REPAIR_RESET: Final = 300.0
"""Seconds without a repair after which the next repair is again made without delay."""
_LEFT_SECONDS: Final = 30.0
"""Seconds after which a plugin that was replaced looks again; the update of a node takes less."""
_GATE_RETRY: Final = 3600.0
"""Seconds after which the next check sends fields of a feature gate that was off again."""
_LIST_TIMEOUT: Final = 5.0
"""Seconds to wait for the reflector's first list, before a direct list returns the error."""

SliceOperation: TypeAlias = Literal["create", "update", "delete"]

_log = logging.getLogger(__name__)


class PublishReporter(Protocol):
    """Reports publishing to operators. Called by the publisher's thread."""

    def slice_written(self, operation: SliceOperation) -> None:
        """Reports that a slice was written."""

    def slices_published(self, pool: PublishedPool) -> None:
        """Reports that the slices match the pool, after each change and each failure."""

    def slices_repaired(self) -> None:
        """Reports that another client changed or deleted slices, before they are rewritten."""

    def publishing_failed(self, error: ApiError) -> None:
        """Reports that an attempt to publish failed; it will be retried."""

    def feature_gate_off(self, gate: FeatureGate) -> None:
        """Reports that the API server drops a gate's fields, once until it stores them again."""

    def gpus_contested(self, decision: Decision) -> None:
        """Reports that the set of GPUs that other drivers offer has changed."""


@dataclass(frozen=True, slots=True)
class _OtherSlice:
    """The GPUs in a slice of another driver."""

    gpus: frozenset[PublishedGpu]


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """What is to be published; each request is another one."""

    devices: tuple[GpuDevice, ...]
    released: bool
    """Whether all devices have the taint of released GPUs."""


class Publisher:
    """Publishes the devices of one driver on one node."""

    def __init__(
        self,
        client: Client,
        *,
        settings: PublishSettings,
        node: str,
        reporter: PublishReporter,
        clock: Callable[[], float],
        other_drivers: OtherDriverWatch,
        beside_other_drivers: BesideOtherDrivers,
        ordering: Ordering,
        is_replaced: Callable[[], bool] = lambda: False,
        pace: Pace = paced,
        backoff: Backoff | None = None,
    ) -> None:
        """`clock` returns monotonic seconds; `backoff` sets the delays between failed attempts.

        `is_replaced` returns whether a newer plugin of the driver listens on the node. Only the
        publisher's thread calls it and `other_drivers`.
        """
        self._client = client
        self._settings = settings
        self._node = node
        self._reporter = reporter
        self._clock = clock
        self._other_drivers = other_drivers
        self._policy: BesideOtherDrivers = beside_other_drivers
        self._ordering = ordering
        self._pace = pace
        self._is_replaced = is_replaced
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
        self._wanted: _Wanted | None = None
        self._published: _Wanted | None = None
        self._released = False
        self._due = math.inf
        self._no_repair_before = -math.inf
        self._stopped = False

        # Used by the publisher's thread only:
        self._composed: tuple[tuple[GpuDevice, ...], bool, PublishedPool] | None = None
        self._stored: PublishedPool | None = None
        self._owner: OwnerReference | None = None
        self._off_until: dict[FeatureGate, float] = {}
        self._reported_off: set[FeatureGate] = set()
        self._contested: tuple[Contested, ...] = ()
        self._observe_at = math.inf
        self._taint_writes = TaintWrites()
        self._rest_at = math.inf
        """When slices are due that can wait."""
        self._repaired_at = -math.inf
        self._repair_backoff = Backoff(initial=1.0, cap=60.0)

    def start(self) -> None:
        """Starts to watch slices. Nothing is written before the first `publish`."""
        self._reflector.start()
        self._thread.start()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stops writing. The slices stay, since another plugin may have taken over."""
        with self._state:
            self._stopped = True
            self._state.notify_all()
        self._reflector.stop(timeout=timeout)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def publish(self, devices: Sequence[GpuDevice]) -> None:
        """Sets the devices of the node, and returns at once."""
        with self._state:
            self._wanted = _Wanted(tuple(devices), self._released)
            self._published = None
            self._schedule(self._clock())

    def release(self, released: bool) -> None:  # noqa: FBT001 - a state, like that of a switch
        """Sets whether all devices have the taint of released GPUs, and returns at once."""
        with self._state:
            if released != self._released:
                self._released = released
                if self._wanted is not None:
                    self._wanted = replace(self._wanted, released=released)
                self._published = None
                self._schedule(self._clock())

    def reorder(self, uses: Iterable[DeviceUse]) -> None:
        """Sets what claims use of the devices, which decides their order, and returns at once."""
        with self._state:
            self._ordering.use(uses)
            if self._published is not None:  # else the present attempt is followed by it
                self._schedule(self._ordering.due)

    def republish(self) -> None:
        """Requests a check of the slices, and returns before it is made."""
        with self._state:
            self._schedule(self._clock())

    @property
    def published(self) -> bool:
        """Whether the slices matched the devices at the last check."""
        return self._wanted is not None and self._published is self._wanted

    def wait_published(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds until the slices match; returns whether they do."""
        with self._state:
            return self._state.wait_for(lambda: self.published, timeout)

    def _changed_by_others(self) -> None:
        with self._state:
            self._schedule(max(self._clock() + _GROUPING_DELAY, self._no_repair_before))

    def _schedule(self, at: float) -> None:
        """Schedules a check of the slices no later than `at`. Requires the lock."""
        self._due = min(self._due, at)
        self._state.notify_all()

    def _run(self) -> None:
        with suppress(ApiError):  # read early to publish sooner; read again when needed
            self._owner = self._read_owner()
        while (wanted := self._next()) is not None:
            try:
                complete = self._listed() and self._sync(wanted)
            except ApiError as error:
                self._reporter.publishing_failed(error)
                patience = error.retry_after if isinstance(error, TooManyRequests) else 0.0
                self._retry(patience)
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                _log.exception("ResourceSlices cannot be published; retrying")
                self._retry()
            else:
                if complete:
                    self._finish(wanted)
                else:
                    self._retry()

    def _next(self) -> _Wanted | None:
        """Waits until a check is due; returns what to publish, or None when stopped."""
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

    def _retry(self, at_least: float = 0.0) -> None:
        """Schedules the next attempt after a failure, in `at_least` seconds or later."""
        self._stored = None
        with self._state:
            self._published = None
            self._schedule(self._clock() + max(at_least, self._backoff.next()))

    def _finish(self, wanted: _Wanted) -> None:
        self._backoff.reset()
        with self._state:
            self._published = wanted
            self._schedule(max(self._observe_at, self._no_repair_before))
            self._schedule(self._rest_at)
            self._schedule(self._ordering.due)

    def _listed(self) -> bool:
        """Waits for the first list of slices; returns False when stopped.

        Raises ApiError if the API server refuses to list them.
        """
        while not self._reflector.wait_synced(_LIST_TIMEOUT):
            if self._stopped:
                return False
            self._client.list(RESOURCE_SLICES, self._selection)
        return True

    def _sync(self, asked: _Wanted) -> bool:
        """Writes what differs from the devices; returns False if another client wrote meanwhile."""
        decision = self._decide(asked.devices)
        now = self._clock()
        with self._state:
            order = self._ordering.wanted(now)
        if not decision.slices_are_ours:
            self._stored = None
            self._ordered(order, now, written=False)
            return True
        wanted = self._pool(decision.devices, released=asked.released)
        self._off_until = {gate: until for gate, until in self._off_until.items() if until > now}
        while True:
            off = frozenset(self._off_until)
            target = without(wanted, off)
            existing = self._our_slices()
            plan = sync(self._ordering.arrange(target, decision.devices, existing, order), existing)
            due, self._rest_at = self._pace(plan, existing, self._taint_writes, now)
            if due and order.keep and target == self._stored:
                if existing and self._is_replaced():
                    self._leave(now)
                    return True
                self._repair()
            if not self._write(due):
                return False
            self._taint_writes = self._taint_writes.after(plan, due, existing, now)
            if off == self._off_until.keys():
                break  # otherwise, the API server has dropped the fields of another gate
        if self._rest_at < math.inf:
            self._stored = None
        elif due or target != self._stored:
            self._reporter.slices_published(target)
            self._stored = target
        self._ordered(order, now, written=bool(due))
        return True

    def _pool(self, devices: tuple[GpuDevice, ...], *, released: bool) -> PublishedPool:
        """Returns the pool, cached: composing it is more than half of a check of the slices."""
        known = self._composed
        if known is None or known[:2] != (devices, released):
            order = self._ordering.order
            composed = pool(
                devices, self._settings, node=self._node, order=order, released=released
            )
            known = self._composed = devices, released, composed
        return known[2]

    def _ordered(self, order: WantedOrder, now: float, *, written: bool) -> None:
        with self._state:
            self._ordering.published(order, now, written=written)

    def _decide(self, devices: tuple[GpuDevice, ...]) -> Decision:
        """Decides what to publish beside other drivers, and when to look at them again."""
        if not devices and not self._our_slices():
            self._observe_at = math.inf
            return decide((), (), self._policy)  # a node without GPUs does not poll its Node object
        slices = self._reflector.store.snapshot().values()
        others = [content for content in slices if isinstance(content, _OtherSlice)]
        theirs = [gpu for other in others for gpu in other.gpus]
        decision = decide(devices, self._other_drivers.offers(theirs), self._policy)
        self._observe_at = self._other_drivers.due
        if decision.contested != self._contested and (devices or decision.contested):
            self._contested = decision.contested
            self._reporter.gpus_contested(decision)
        return decision

    def _our_slices(self) -> list[ResourceSlice]:
        slices = self._reflector.store.snapshot().values()
        return [content for content in slices if isinstance(content, ResourceSlice)]

    def _leave(self, now: float) -> None:
        """Leaves the slices to the newer plugin, and looks later whether it is still there."""
        _log.info("a newer plugin of the driver writes the slices; leaving them as they are")
        with self._state:
            self._no_repair_before = now + _LEFT_SECONDS

    def _repair(self) -> None:
        """Reports that another client undid our writes, and delays the next repair."""
        now = self._clock()
        if now - self._repaired_at > _REPAIR_RESET:
            self._repair_backoff.reset()
        self._repaired_at = now
        with self._state:
            self._no_repair_before = now + self._repair_backoff.next()
        self._reporter.slices_repaired()

    def _write(self, plan: SlicePlan) -> bool:
        """Writes the slices; returns False if another client wrote meanwhile.

        Stops after a write whose fields of a gate the API server has dropped or refused. Counter
        sets are written first, so devices are not published without the counters that they need.
        """
        known_off = set(self._off_until)
        owner = (self._take_owner(),) if plan.create else ()
        versions: dict[str, str] = {}
        try:
            for changed in plan.update:
                body = self._accepted(changed, self._client.replace)
                if body is not None:
                    versions[changed.metadata.name] = resource_version_of(body)
                    self._written("update", changed, body)
                if self._off_until.keys() != known_off:
                    return True
            for new in plan.create:
                owned = replace(new, metadata=replace(new.metadata, owner_references=owner))
                body = self._accepted(owned, self._client.create)
                if body is not None:
                    self._written("create", new, body)
                if self._off_until.keys() != known_off:
                    return True
            for obsolete in plan.delete:
                name, read = obsolete.metadata.name, obsolete.metadata.resource_version
                self._delete(name, obsolete.metadata.uid, versions.get(name, read))
        except (Conflict, NotFound) as error:
            _log.info("the ResourceSlices changed during the update", extra={"error": str(error)})
            return False
        return True

    def _accepted(
        self, sent: ResourceSlice, write: Callable[[ApiResource, Body], Body]
    ) -> Body | None:
        """Returns the stored slice, or None if the API server refuses the fields of a gate.

        It refuses fields of a feature that the node does not declare (KEP-5328).
        """
        try:
            return write(RESOURCE_SLICES, encode(sent))
        except Forbidden as error:
            refused = needed(sent.spec) & named_in(str(error))
            if not refused:
                raise
            for gate in refused:
                self._gate_is_off(gate)
            return None

    def _written(self, operation: SliceOperation, sent: ResourceSlice, body: Body) -> None:
        """Records the stored slice, and the feature gates whose fields it lacks."""
        stored = decode(ResourceSlice, body)
        version = int(resource_version_of(body))
        self._reflector.store.put(key_of(body), StoreEntry(version, stored))
        self._reporter.slice_written(operation)
        kept = needed(stored.spec)
        for gate in needed(sent.spec):
            if gate in kept:
                self._reported_off.discard(gate)
            else:
                self._gate_is_off(gate)

    def _gate_is_off(self, gate: FeatureGate) -> None:
        """Leaves out the fields of a gate for a while, and reports it once."""
        self._off_until[gate] = self._clock() + _GATE_RETRY
        if gate not in self._reported_off:
            self._reported_off.add(gate)
            self._reporter.feature_gate_off(gate)

    def _delete(self, name: str, uid: str, version: str) -> None:
        conditions = Preconditions(uid=uid, resource_version=version)
        with suppress(NotFound):
            self._client.delete(RESOURCE_SLICES, name, preconditions=conditions)
        self._reflector.store.remove(ObjectKey("", name), int(version))
        self._reporter.slice_written("delete")

    def _take_owner(self) -> OwnerReference:
        """Returns the current Node as owner: one that was recreated has another UID."""
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
        if parsed.spec.driver == self._settings.driver:
            return parsed
        return _OtherSlice(published_gpus(parsed.spec))
