"""Which MPS daemon a claim needs, as pure functions of the claim and its devices.

A claim has one daemon at most: a container has the pipes of one, and CUDA shows it the devices of
that daemon. It is for shares of a GPU whose claim demands `mps`, or for whole GPUs or partitions
whose configuration has the strategy MPS.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

from carina_dra.config.device import DeviceConfig, mps_config
from carina_dra.config.mps import MpsDeviceError, MpsLimits, limits_of
from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.claims.failure import (
    ClaimError,
    MpsConfigsDiffer,
    MpsMissing,
    MpsOfSeveralGpus,
)
from kubelet_plugin.claims.resource_failure import NameInvalid
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.levels import has_mps
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share, share_amounts
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.prepare.resource import (
    Identity,
    Made,
    MadeInstance,
    MpsControlDaemon,
    MpsOfDevices,
    ResourceError,
    instance_identity,
)

_ALL_CORES: Final = 100


def mps_daemon(
    claim: NodeClaim, usable: Mapping[str, GpuDevice]
) -> Iterable[MpsControlDaemon | MpsOfDevices]:
    """Returns the MPS daemon of the claim, if it needs one.

    Raises:
        ClaimError: its devices need several, or a GPU has no MPS.
    """
    served = [allocated for allocated in claim.devices if allocated.uses_mps]
    if not served:
        return
    if any(_configured(device.config) != _configured(served[0].config) for device in served[1:]):
        requests = dict.fromkeys(allocated.request for allocated in served)
        raise ClaimError(MpsConfigsDiffer(claim, tuple(requests)))
    limits = mps_config(served[0].config)
    if limits is None:
        yield from _of_shares(claim, served, usable)
    else:
        yield _of_devices(claim, served, usable, limits)


def resolved(daemon: MpsOfDevices, made: Mapping[Identity, Made]) -> MpsControlDaemon:
    """Returns the daemon for the devices as they were made.

    Raises:
        ResourceError: a limit is for none of the devices.
    """
    uuids = [_uuid(device, made) for device in daemon.devices]
    try:
        limits = limits_of(daemon.limits, uuids)
    except MpsDeviceError as error:
        claim = f"{daemon.claim.namespace}/{daemon.claim.name}"
        raise ResourceError(
            NameInvalid(f"the mpsConfig of ResourceClaim {claim}: {error}")
        ) from None
    return MpsControlDaemon(
        WantedDaemon(
            claim=daemon.claim,
            devices=tuple(MpsDevice(uuid=uuid, memory_mib=mib) for uuid, mib in limits.items()),
            thread_percentage=daemon.limits.defaultActiveThreadPercentage,
        ),
        daemon.starts,
    )


def _configured(config: DeviceConfig) -> tuple[str, MpsLimits | None]:
    """What has to be the same for all devices of a daemon."""
    return config.kind, mps_config(config)


def _of_shares(
    claim: NodeClaim, served: Sequence[AllocatedDevice], usable: Mapping[str, GpuDevice]
) -> Iterable[MpsControlDaemon]:
    """Returns the daemon of shares. Its limits are their sums, for each of its clients.

    Raises:
        ClaimError: they are of several GPUs. Each is to be kept within what it has of its own.
    """
    shares = [
        (usable[allocated.device].gpu, amounts)
        for allocated in served
        if (amounts := share_amounts(allocated.consumed_capacity))
    ]
    gpus = tuple(dict.fromkeys(gpu for gpu, _ in shares))
    if not gpus:
        return
    if len(gpus) > 1:
        raise ClaimError(MpsOfSeveralGpus(claim, tuple(f"gpu-{gpu.minor}" for gpu in gpus)))
    memory = sum(amounts.memory_mib for _, amounts in shares)
    cores = sum(amounts.cores for _, amounts in shares)
    yield MpsControlDaemon(
        WantedDaemon(
            claim=_reference(claim),
            devices=(MpsDevice(uuid=gpus[0].uuid, memory_mib=memory),),
            thread_percentage=min(cores, _ALL_CORES),
        ),
        _starts(claim),
    )


def _of_devices(
    claim: NodeClaim,
    served: Sequence[AllocatedDevice],
    usable: Mapping[str, GpuDevice],
    limits: MpsLimits,
) -> MpsOfDevices:
    for allocated in served:
        gpu = usable[allocated.device].gpu
        if not has_mps(gpu):
            product = gpu.product_name or gpu.uuid
            raise ClaimError(
                MpsMissing(claim, allocated.device, product, gpu.driver_version or "unknown")
            )
    names = dict.fromkeys(allocated.device for allocated in served)
    devices = tuple(usable[name] for name in names)
    return MpsOfDevices(_reference(claim), devices, limits, _starts(claim))


def _starts(claim: NodeClaim) -> bool:
    """Whether the kubelet asks, by whose call alone the pods are known."""
    return claim.pods is not None


def _reference(claim: NodeClaim) -> Reference:
    return Reference(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _uuid(device: GpuDevice, made: Mapping[Identity, Made]) -> str:
    match device:
        case WholeGpu(gpu) | Monitor(gpu) | Share(gpu):
            return gpu.uuid
        case Partition() | FoundPartition():
            match made.get(instance_identity(device.name)):
                case MadeInstance(uuid=uuid):
                    return uuid
                case other:
                    raise AssertionError(f"the port of {device.name} gave no instance: {other}")
    assert_never(device)
