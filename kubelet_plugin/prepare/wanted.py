"""What claims need on the node, as pure functions of the claims and the node's devices.

`identities` depends on the claim only, so that its resources can be removed after its devices have
vanished. `wanted` also depends on the current devices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from carina_dra.config.device import Enforcement, ShareConfig
from carina_dra.config.time_slice import TimeSliceInterval, shortest
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.claims.failure import (
    ClaimError,
    DeviceMissing,
    DeviceUnhealthy,
    EnforcementMissing,
    PodUnclear,
    ShareHeld,
    TimeSlicingMissing,
)
from kubelet_plugin.devices.conflict import DeviceHold
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.levels import has_time_slices
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.name import (
    MonitorName,
    PartitionName,
    ShareName,
    UnknownName,
    WholeGpuName,
    gpu_name,
    parse_name,
)
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import (
    CORES,
    MEMORY,
    Share,
    ShareAmounts,
    share_amounts,
)
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.health import (
    HEALTHY,
    GpuProblems,
    in_order,
    preventing,
    unanswered,
)
from kubelet_plugin.inventory.mig import MigUnsupported
from kubelet_plugin.prepare.resource import (
    ClaimSpec,
    DeviceMetadata,
    Identity,
    MemoryLimit,
    MigInstance,
    MigModeOff,
    MigModeOn,
    NodeResource,
    TimeSlice,
    daemon_identity,
    instance_identity,
    limit_identity,
    metadata_identity,
    spec_identity,
    time_slice_identity,
)
from kubelet_plugin.prepare.wanted_daemon import mps_daemon

_OF_SHARING: Final = ("mps", "watchdog")
"""Levels that a share has as long as carina-sharing is there."""


def identities(
    claim: NodeClaim, share_interval: TimeSliceInterval = "Default"
) -> frozenset[Identity]:
    """Returns the identities of all resources that are removed with the claim.

    `share_interval` is that of shared GPUs of which no claim demands one.

    MIG mode is not among them: it stays on when a claim for a partition is unprepared, until it is
    a leftover, and unpreparing a claim for a whole GPU or a share does not wait for it. Admin
    access changes nothing on the GPU.
    """
    uid = claim.uid
    of_claim = frozenset({spec_identity(uid), metadata_identity(uid), daemon_identity(uid)})
    return of_claim.union(*(_identities(claim.uid, hold, share_interval) for hold in claim.holds))


def _identities(
    claim: str, hold: DeviceHold, share_interval: TimeSliceInterval
) -> frozenset[Identity]:
    gpu = gpu_name(hold.device)
    match hold.device:
        case WholeGpuName():
            return frozenset({time_slice_identity(gpu)})
        case ShareName() if shortest((hold.time_slice, share_interval)):
            return frozenset({time_slice_identity(gpu), limit_identity(claim, gpu)})
        case ShareName():
            return frozenset({limit_identity(claim, gpu)})
        case PartitionName():
            return frozenset({instance_identity(str(hold.device))})
        case MonitorName() | UnknownName():
            return frozenset()
    assert_never(hold.device)


def wanted(
    claims: Sequence[NodeClaim],
    live: Collection[NodeClaim],
    devices: Mapping[str, GpuDevice],
    *,
    device_metadata: bool = False,
    share_interval: TimeSliceInterval = "Default",
) -> Mapping[Identity, NodeResource]:
    """Returns all resources that the claims need; `devices` are the node's devices by name.

    `device_metadata` says whether containers get files with the metadata of their devices, and
    `share_interval` the time slices of shared GPUs of which no live claim demands any.

    Raises:
        ClaimError: a device of a claim is missing or unhealthy, lacks a level of enforcement that
            the claim demands, has time slices of one length and the claim demands another, or has
            less than all shares of it that live claims hold; or one MPS daemon cannot be for
            all of its devices that are shared by MPS.
    """
    for claim in claims:
        _refuse_excess(claim, live, devices)
    resources = (
        resource
        for claim in claims
        for resource in _needed_by(claim, live, devices, share_interval, metadata=device_metadata)
    )
    return {resource.identity: resource for resource in resources}


def refuse_unfit(claim: NodeClaim, devices: Mapping[str, GpuDevice]) -> None:
    """Refuses a claim that is not prepared yet and has a device that gets no new work.

    What is prepared keeps what it needs: a GPU that has to be drained still serves its pods.

    Raises:
        ClaimError: a device of the claim is unhealthy.
    """
    for allocated in claim.devices:
        device = devices.get(allocated.device)
        if device is None:
            continue  # which `wanted` says
        for problem in in_order(_preventing(device)):
            raise ClaimError(DeviceUnhealthy(claim, allocated.device, device.gpu.uuid, problem))


def _refuse_excess(
    claim: NodeClaim, live: Collection[NodeClaim], devices: Mapping[str, GpuDevice]
) -> None:
    """Refuses shares that exceed their GPU together with those of other claims.

    The scheduler counts a claim no longer once its pod is deleted, although containers of the pod
    may still run.
    """
    for name in dict.fromkeys(name for name, _ in _shares(claim)):
        device = devices.get(name)
        if not isinstance(device, Share):
            continue
        gpu = gpu_name(parse_name(name))
        sharing = (other for other in live if gpu in other.gpus)
        held = [
            amounts for other in sharing for shared, amounts in _shares(other) if shared == name
        ]
        memory = sum(amounts.memory_mib for amounts in held)
        cores = sum(amounts.cores for amounts in held)
        total = device.total
        if memory > total.memory_mib:
            needed, present = f"{memory} MiB", f"{total.memory_mib} MiB"
            raise ClaimError(ShareHeld(claim, name, MEMORY, needed, present))
        if cores > total.cores:
            raise ClaimError(ShareHeld(claim, name, CORES, f"{cores} %", f"{total.cores} %"))


def _shares(claim: NodeClaim) -> Iterator[tuple[str, ShareAmounts]]:
    """Returns what the claim has of devices, by their names."""
    for allocated in claim.devices:
        amounts = share_amounts(allocated.consumed_capacity)
        if amounts is not None and not allocated.admin_access:
            yield allocated.device, amounts


def _needed_by(
    claim: NodeClaim,
    live: Collection[NodeClaim],
    devices: Mapping[str, GpuDevice],
    share_interval: TimeSliceInterval,
    *,
    metadata: bool,
) -> Iterable[NodeResource]:
    usable = {allocated.device: _usable(claim, allocated, devices) for allocated in claim.devices}
    for allocated in claim.devices:
        if not allocated.admin_access:  # which changes nothing on the GPU
            yield from _needed_for(usable[allocated.device])
    yield from _time_slices(claim, live, usable, share_interval)
    yield from _memory_limits(claim, usable)
    yield from mps_daemon(claim, usable)
    if metadata:
        yield DeviceMetadata(claim, usable)
    yield ClaimSpec(claim, usable)


def _needed_for(device: GpuDevice) -> tuple[NodeResource, ...]:
    match device:
        case Partition() | FoundPartition():
            return MigModeOn(device.gpu), MigInstance(device)
        case WholeGpu(gpu) | Share(gpu):
            return () if gpu.mig == MigUnsupported() else (MigModeOff(gpu),)
        case Monitor():
            return ()
    assert_never(device)


def _memory_limits(claim: NodeClaim, usable: Mapping[str, GpuDevice]) -> Iterable[MemoryLimit]:
    """Returns the limits of what the claim's pod can have of shared GPUs.

    The port sets none where the driver has none: what was once limited stays it.
    """
    shares = list(_shares(claim))
    for name in dict.fromkeys(name for name, _ in shares):
        device = usable[name]
        if isinstance(device, Share):
            mib = sum(amounts.memory_mib for shared, amounts in shares if shared == name)
            demanded = any(
                isinstance(allocated.config, ShareConfig)
                and "kernel" in allocated.config.enforcement.memory
                for allocated in claim.devices
                if allocated.device == name and not allocated.admin_access
            )
            yield MemoryLimit(claim.uid, device.gpu, mib, claim.pods, demanded=demanded)


def _time_slices(
    claim: NodeClaim,
    live: Collection[NodeClaim],
    usable: Mapping[str, GpuDevice],
    share_interval: TimeSliceInterval,
) -> Iterable[TimeSlice]:
    """Returns the time slices of the claim's GPUs, if they are not the driver's default.

    Shares of a GPU never conflict: it has the shortest interval that one of them demands.

    Raises:
        ClaimError: the claim demands an interval of a GPU that has only one.
    """
    for name in dict.fromkeys(hold.device for hold in claim.holds):
        device = usable[str(name)]
        own = shortest(hold.time_slice for hold in claim.holds if hold.device == name)
        if not has_time_slices(device.gpu):
            if own is not None:
                product = device.gpu.product_name or device.gpu.uuid
                raise ClaimError(TimeSlicingMissing(claim, str(name), own, product))
            continue
        demanded = shortest(
            hold.time_slice for other in live for hold in other.holds if hold.device == name
        )
        by_node = share_interval if isinstance(device, Share) else None
        interval = shortest((own, demanded)) or shortest((by_node,))
        if interval is not None:
            yield TimeSlice(device.gpu, interval)


def _usable(
    claim: NodeClaim, allocated: AllocatedDevice, devices: Mapping[str, GpuDevice]
) -> GpuDevice:
    name = allocated.device
    device = devices.get(name)
    if device is None:
        raise ClaimError(DeviceMissing(claim, name, tuple(sorted(devices))))
    for problem in in_order(unanswered(_preventing(device))):
        raise ClaimError(DeviceUnhealthy(claim, name, device.gpu.uuid, problem))
    config = allocated.config
    if isinstance(device, Share) and isinstance(config, ShareConfig) and not allocated.admin_access:
        _refuse_weaker(claim, allocated, device, config.enforcement)
        if "kernel" in config.enforcement.memory:
            _refuse_other_than_one_pod(claim, name)
    return device


def _refuse_other_than_one_pod(claim: NodeClaim, device: str) -> None:
    """Refuses a claim whose pods would each have its memory. A repair does not know the pods."""
    if claim.pods is not None and len(claim.pods) != 1:
        raise ClaimError(PodUnclear(claim, device, len(claim.pods)))


def _refuse_weaker(
    claim: NodeClaim, allocated: AllocatedDevice, share: Share, demanded: Enforcement
) -> None:
    """Refuses a share that lacks a level of enforcement that its configuration demands.

    A repair, which does not know the pods, refuses none for what carina-sharing does: no container
    is about to start, and what it has made goes on while it is away.
    """
    lacking = tuple(
        lack
        for lack in share.levels.lacking(demanded.memory, demanded.cores)
        if claim.pods is not None or lack.level not in _OF_SHARING
    )
    if lacking:
        raise ClaimError(EnforcementMissing(claim, allocated.device, lacking))


def _preventing(device: GpuDevice) -> GpuProblems:
    """Returns the problems that prevent the use of a device."""
    match device:
        case WholeGpu() | Partition() | FoundPartition() | Share():
            return preventing(device.state.problems)
        case Monitor():
            return HEALTHY  # a GPU with problems is one to be looked at
    assert_never(device)
