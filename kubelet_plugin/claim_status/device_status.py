"""What a claim's `status.devices` says of its devices (KEP-4817): pure values.

Each device has the conditions Ready (prepared and set up as asked) and Healthy, and as data what
exporters of metrics need to find the device, under the names that its attributes have. A claim has
one entry for each device of this driver, and one for each share. A share that carina-sharing
watches has the condition MemoryWithinShare.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from carina_dra.config.enforcement import Levels
from carina_dra.resource import AllocatedDeviceStatus, Condition, ConditionStatus
from carina_dra.sharing.message import EndedProcess
from kubelet_plugin.claim_status.device_health import (
    DeviceHealth,
    GpusNow,
    HealthUnknown,
    Healthy,
    Unhealthy,
)
from kubelet_plugin.claim_status.readiness import (
    NotChecked,
    NotSetUp,
    Readiness,
    SetUp,
    has_daemon,
    limited_gpus,
)
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.prepare.resource import MadeInstance
from kubelet_plugin.sharing.standing import (
    EndedViolator,
    NotWatched,
    ShareExceeded,
    ShareStanding,
    Standings,
    WithinShare,
    printable,
)
from kubelet_plugin.sharing.words import memory_in_words, remedy_of_end, why_ended

READY: Final = "Ready"
HEALTHY: Final = "Healthy"
MEMORY_WITHIN_SHARE: Final = "MemoryWithinShare"
MEMORY_EXCEEDED: Final = "GPUMemoryExceeded"
PROCESS_ENDED: Final = "GPUProcessEnded"
"""The reasons of that condition, and those of the Events."""
_NOT_WATCHED: Final[Standings] = {}
_ID: Final = 12
"""Letters of a container's ID that are shown, as crictl does."""
_MESSAGE_BYTES: Final = 1024
"""Of 32 KiB that a condition may have: the status of a claim is read by many."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A condition without the time of its last change."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What the driver says of one device."""

    pool: str
    device: str
    share_id: str | None
    conditions: tuple[Stated, ...]
    data: Mapping[str, Any] | None
    """None if it is not known now, so that what was said before stays."""
    unknown: frozenset[str] = frozenset()
    """Types of conditions that are not known now, so that what was said before stays."""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What identifies the entry among those of the driver."""
        return self.pool, self.device, self.share_id

    def condition(self, type_: str) -> Stated | None:
        """Returns the condition of this type."""
        return next((stated for stated in self.conditions if stated.type == type_), None)


def device_statuses(
    claim: NodeClaim,
    readiness: Readiness,
    gpus: GpusNow,
    standings: Standings | None = _NOT_WATCHED,
) -> tuple[DeviceStatus, ...]:
    """Returns what is to be said of the claim's devices, once each.

    `standings` is None before it is known whether shares are watched.
    """
    found = {}
    for allocated in claim.devices:
        status = _status(allocated, readiness, gpus)
        share = gpus.devices.get(allocated.device)
        if standings is None:
            status = replace(status, unknown=frozenset({MEMORY_WITHIN_SHARE}))
        elif isinstance(share, Share) and not allocated.admin_access:
            standing = standings.get((claim.uid, share.gpu.uuid))
            if standing is not None:
                levels = _levels(share, allocated, readiness)
                conditions = (*status.conditions, _memory(standing, share, levels))
                status = replace(status, conditions=conditions)
        found[status.key] = status
    return tuple(found.values())


def read_statuses(
    statuses: Iterable[AllocatedDeviceStatus], driver: str
) -> tuple[DeviceStatus, ...]:
    """Returns what a claim's status says of the devices of the driver."""
    return tuple(
        DeviceStatus(
            status.pool,
            status.device,
            status.share_id,
            tuple(
                Stated(found.type, found.status, found.reason, found.message)
                for found in status.conditions
            ),
            status.data,
        )
        for status in statuses
        if status.driver == driver
    )


def completed(
    wanted: Iterable[DeviceStatus], before: Iterable[DeviceStatus]
) -> tuple[DeviceStatus, ...]:
    """Returns what is wanted, with what was said before where that is not known now."""
    known = {status.key: status for status in before}
    return tuple(_completed(status, known.get(status.key)) for status in wanted)


def _completed(status: DeviceStatus, before: DeviceStatus | None) -> DeviceStatus:
    if before is None:
        return replace(status, unknown=frozenset())
    kept = tuple(told for told in before.conditions if told.type in status.unknown)
    data = before.data if status.data is None else status.data
    return replace(status, conditions=(*status.conditions, *kept), data=data, unknown=frozenset())


def rendered(
    statuses: Iterable[DeviceStatus],
    driver: str,
    before: Sequence[AllocatedDeviceStatus],
    now: str,
) -> list[dict[str, Any]]:
    """Returns the entries for the API server.

    A condition whose status is as in `before` keeps the time of its last change; others get `now`.
    """
    since = {
        (old.pool, old.device, old.share_id, condition.type, condition.status): _written(condition)
        for old in before
        if old.driver == driver
        for condition in old.conditions
    }
    return [_entry(status, driver, since, now) for status in statuses]


def _entry(
    status: DeviceStatus, driver: str, since: Mapping[tuple[Any, ...], str], now: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {"driver": driver, "pool": status.pool, "device": status.device}
    if status.share_id is not None:
        entry["shareID"] = status.share_id
    entry["conditions"] = [
        {
            "type": stated.type,
            "status": str(stated.status),
            "lastTransitionTime": since.get((*status.key, stated.type, stated.status), now),
            "reason": stated.reason,
            "message": stated.message,
        }
        for stated in status.conditions
    ]
    if status.data is not None:
        entry["data"] = dict(status.data)
    return entry


def _written(condition: Condition) -> str:
    at: datetime = condition.last_transition_time
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(allocated: AllocatedDevice, readiness: Readiness, gpus: GpusNow) -> DeviceStatus:
    return DeviceStatus(
        allocated.pool,
        allocated.device,
        allocated.share_id,
        (_ready(readiness), _healthy(gpus.health(allocated.device))),
        _data(allocated, readiness, gpus),
    )


def _ready(readiness: Readiness) -> Stated:
    match readiness:
        case SetUp():
            return Stated(READY, ConditionStatus.TRUE, "Prepared", "")
        case NotSetUp(message):
            return Stated(READY, ConditionStatus.FALSE, "RepairFailed", _cut(message))
        case NotChecked():
            return Stated(READY, ConditionStatus.UNKNOWN, "NotChecked", "its GPU has a problem")
    assert_never(readiness)


def _healthy(health: DeviceHealth) -> Stated:
    match health:
        case Healthy(reason, message):
            return Stated(HEALTHY, ConditionStatus.TRUE, reason, _cut(message))
        case Unhealthy(reason, message):
            return Stated(HEALTHY, ConditionStatus.FALSE, reason, _cut(message))
        case HealthUnknown(reason, message):
            return Stated(HEALTHY, ConditionStatus.UNKNOWN, reason, _cut(message))
    assert_never(health)


def _levels(share: Share, allocated: AllocatedDevice, readiness: Readiness) -> Levels:
    """Returns what keeps the containers of the claim within it."""
    gpu = gpu_name(parse_name(share.name))
    return share.levels_in_force(
        limited=gpu in limited_gpus(readiness), mps=allocated.uses_mps and has_daemon(readiness)
    )


def _memory(standing: ShareStanding, share: Share, levels: Levels) -> Stated:
    gpu = f"GPU {share.gpu.minor} ({share.gpu.uuid})"
    match standing:
        case WithinShare():
            return Stated(MEMORY_WITHIN_SHARE, ConditionStatus.TRUE, "WithinShare", "")
        case ShareExceeded(since, used, given):
            message = (
                f"the pods of the claim use more memory of {gpu} than given: {used} MiB of {given} "
                f"MiB at {_time(since)} (memory of this device: "
                f"{memory_in_words(levels.strongest_memory)}). Others on the GPU may find none "
                "left; let the pods use less, or request more memory"
            )
            return Stated(
                MEMORY_WITHIN_SHARE, ConditionStatus.FALSE, MEMORY_EXCEEDED, _cut(message)
            )
        case EndedViolator(first, given):
            return Stated(
                MEMORY_WITHIN_SHARE,
                ConditionStatus.FALSE,
                PROCESS_ENDED,
                _cut(_end_in_words(first, given, gpu)),
            )
        case NotWatched(reason):
            message = f"the processes of {gpu} cannot be told: {reason}"
            return Stated(MEMORY_WITHIN_SHARE, ConditionStatus.UNKNOWN, "NotWatched", _cut(message))
    assert_never(standing)


def _end_in_words(ended: EndedProcess, given_mib: int, gpu: str) -> str:
    container = "" if ended.container_id is None else f", container {ended.container_id[:_ID]},"
    remedy = remedy_of_end(ended.why)
    return printable(
        f"a process of pod {ended.pod.namespace}/{ended.pod.name}{container} with "
        f"{ended.memory_mib} MiB of {gpu} was ended at {_time(ended.time)}: "
        f"{why_ended(ended.why, given_mib)}" + (f"; {remedy}" if remedy else ""),
        _MESSAGE_BYTES,
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _data(
    allocated: AllocatedDevice, readiness: Readiness, gpus: GpusNow
) -> Mapping[str, Any] | None:
    name = allocated.device
    device = gpus.devices.get(name)
    match device:
        case None:
            return None
        case WholeGpu(gpu) | Monitor(gpu):
            return _facts(device.kind, gpu, {"uuid": gpu.uuid})
        case Share(gpu):
            depends = gpu.memory_limits or allocated.uses_mps
            if depends and not isinstance(readiness, SetUp):
                return None
            levels = _levels(device, allocated, readiness)
            enforcement = {
                "memoryEnforcement": levels.strongest_memory,
                "coreEnforcement": levels.strongest_cores,
            }
            return _facts(device.kind, gpu, {"uuid": gpu.uuid, **enforcement})
        case Partition(gpu) | FoundPartition(gpu):
            instance = readiness.instances.get(name) if isinstance(readiness, SetUp) else None
            return None if instance is None else _of_partition(device, gpu, instance)
    assert_never(device)


def _of_partition(
    device: Partition | FoundPartition, gpu: Gpu, instance: MadeInstance
) -> Mapping[str, Any]:
    own = {
        "uuid": instance.uuid,
        "parentUUID": gpu.uuid,
        "profile": device.profile.name,
        "gpuInstanceID": instance.gpu_instance,
        "computeInstanceID": instance.compute_instance,
    }
    return _facts(device.kind, gpu, own)


def _facts(kind: str, gpu: Gpu, own: Mapping[str, Any]) -> Mapping[str, Any]:
    facts = {
        "type": str(kind),
        **own,
        "productName": gpu.product_name,
        "driverVersion": gpu.driver_version,
        "pciBusID": gpu.pci_bus_id,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _cut(message: str) -> str:
    return message.encode()[:_MESSAGE_BYTES].decode(errors="ignore")
