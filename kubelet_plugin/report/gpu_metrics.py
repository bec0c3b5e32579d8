"""Metrics of each GPU and partition, with the labels of dcgm-exporter, so that both can be joined.

There is a series for each GPU and each partition that exists, and one for each device of a prepared
claim. The pod is named if the claim was made for it. Of containers the plugin knows nothing; their
label is empty, as it is at dcgm-exporter where that does not know them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubelet_plugin.claim_status.live_claims import ClaimsNow
from kubelet_plugin.claim_status.readiness import SetUp
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.name import gpu_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.compute_mode import COMPUTE_MODE, ComputeMode
from kubelet_plugin.inventory.gpu import REPAIR_FAILED, Gpu, GpuState
from kubelet_plugin.inventory.health import READY, STATES
from kubelet_plugin.inventory.held_mode import HeldMode
from kubelet_plugin.inventory.inventory import known_gpus
from kubelet_plugin.nvml.usage import GpuUsage
from kubelet_plugin.prepare.resource import MadeInstance

_GPU = ("gpu", "UUID", "pci_bus_id")
_PART = (*_GPU, "GPU_I_PROFILE", "GPU_I_ID")
_HOLDER = ("namespace", "pod", "container", "dra_claim_namespace", "dra_claim_name")
_STATES = (*STATES, HeldMode.state, COMPUTE_MODE, REPAIR_FAILED)
_NOBODY = ("", "", "", "", "")


@dataclass(frozen=True, slots=True)
class PartitionNow:
    """A MIG instance that exists."""

    device: str
    gpu: Gpu
    uuid: str
    """Of the MIG device."""
    profile: str
    """As the driver names it: "1g.10gb"."""
    instance: str
    """The ID of the GPU instance."""


def partitions(now: ClaimsNow) -> tuple[PartitionNow, ...]:
    """Returns the partitions of prepared claims, and those that an administrator made."""
    made = {
        device: instance
        for how in now.readiness.values()
        if isinstance(how, SetUp)
        for device, instance in how.instances.items()
    }
    return tuple(part for device in now.gpus.devices.values() if (part := _partition(device, made)))


def _partition(device: GpuDevice, made: Mapping[str, MadeInstance]) -> PartitionNow | None:
    """Returns the partition, if the device is one that exists."""
    match device:
        case Partition(gpu, _, profile) if device.name in made:
            instance = made[device.name]
            return PartitionNow(
                device.name, gpu, instance.uuid, profile.name, str(instance.gpu_instance)
            )
        case FoundPartition(gpu, state, profile, uuid=uuid):
            numbers = (str(found.id) for found in state.instances if found.site == device.site)
            return PartitionNow(device.name, gpu, uuid, profile.name, next(numbers, ""))
        case Partition() | WholeGpu() | Share() | Monitor():
            return None
    assert_never(device)


class GpuMetrics(Collector):
    """The metrics of the node's GPUs."""

    def __init__(
        self, now: Callable[[], ClaimsNow], usage: Callable[[], Mapping[str, GpuUsage]]
    ) -> None:
        """`usage` is by UUID of the GPU or MIG device."""
        self._now = now
        self._usage = usage

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Returns the metrics as they are now."""
        now = self._now()
        yield from _of_gpus(now)
        yield _of_claims(now)
        yield from _of_usage(now, self._usage())


def _of_gpus(now: ClaimsNow) -> Iterator[GaugeMetricFamily]:
    info = GaugeMetricFamily(
        "carina_gpu_info",
        "1 for each GPU of the node, with its product, driver and MIG mode.",
        labels=(*_GPU, "modelName", "DCGM_FI_DRIVER_VERSION", "mig_mode"),
    )
    states = GaugeMetricFamily(
        "carina_gpu_state",
        "1 for the states that a GPU has: ready, its problems (docs/health.md), and what keeps "
        "some of its devices from being allocated (mig-mode-held, compute-mode, "
        "repair-failed); else 0.",
        labels=(*_GPU, "state"),
    )
    for known in known_gpus(now.gpus.inventory):
        gpu, labels = known.gpu, _labels(known.gpu)
        mode = known.state.mig_mode.value
        info.add_metric((*labels, gpu.product_name or "", gpu.driver_version or "", mode), 1)
        present = _states(known.state)
        for state in _STATES:
            states.add_metric((*labels, state), int(state in present))
    yield info
    yield states


def _states(state: GpuState) -> frozenset[str]:
    found = {problem.state for problem in state.problems} or {READY}
    if state.held_mode is not None:
        found.add(state.held_mode.state)
    if state.compute_mode is not ComputeMode.DEFAULT:
        found.add(COMPUTE_MODE)
    if state.repair_failed is not None:
        found.add(REPAIR_FAILED)
    return frozenset(found)


def _of_claims(now: ClaimsNow) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "carina_device_claim_info",
        "1 for each device that a prepared claim holds, to join with the metrics of its GPU.",
        labels=("UUID", "dra_device_name", "dra_claim_namespace", "dra_claim_name"),
    )
    held = {
        (seen.gpu.uuid, str(hold.device), claim.key)
        for claim in now.claims.values()
        for hold in claim.holds
        if (seen := now.gpus.gpus.get(gpu_name(hold.device))) is not None
    }
    for uuid, device, key in sorted(held):
        namespace, _, name = key.partition("/")
        family.add_metric((uuid, device, namespace, name), 1)
    return family


def _of_usage(now: ClaimsNow, usage: Mapping[str, GpuUsage]) -> Iterator[GaugeMetricFamily]:
    labels = (*_PART, *_HOLDER)
    total = GaugeMetricFamily(
        "carina_gpu_memory_total_bytes", "Memory of a GPU or partition.", labels=labels
    )
    used = GaugeMetricFamily(
        "carina_gpu_memory_used_bytes",
        "Memory of a GPU or partition that is in use, without what the driver reserves.",
        labels=labels,
    )
    reserved = GaugeMetricFamily(
        "carina_gpu_memory_reserved_bytes",
        "Memory of a GPU or partition that the driver reserves.",
        labels=labels,
    )
    busy = GaugeMetricFamily(
        "carina_gpu_utilization_ratio",
        "Part of the last sample period with work on a GPU; drivers do not say it of partitions.",
        labels=labels,
    )
    for uuid, series in _series(now):
        if (seen := usage.get(uuid)) is not None:
            total.add_metric(series, seen.memory_total)
            used.add_metric(series, seen.memory_used)
            if seen.memory_reserved is not None:
                reserved.add_metric(series, seen.memory_reserved)
            if seen.utilization is not None:
                busy.add_metric(series, seen.utilization)
    yield from (total, used, reserved, busy)


def _series(now: ClaimsNow) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the UUIDs of GPUs and MIG devices with their labels."""
    holders: dict[str, list[NodeClaim]] = {}
    for claim in now.claims.values():
        for device in {str(hold.device) for hold in claim.holds}:
            holders.setdefault(device, []).append(claim)
    for known in known_gpus(now.gpus.inventory):
        name = f"gpu-{known.gpu.minor}"
        claims = [*holders.get(name, ()), *holders.get(f"{name}-share", ())]
        yield known.gpu.uuid, (*_labels(known.gpu), "", "", *_holder(now, claims))
    for part in partitions(now):
        of_part = (*_labels(part.gpu), part.profile, part.instance)
        yield part.uuid, (*of_part, *_holder(now, holders.get(part.device, ())))


def _holder(now: ClaimsNow, claims: Sequence[NodeClaim]) -> tuple[str, ...]:
    """Returns the labels of the only claim that holds a device; empty if there are several."""
    match claims:
        case [claim]:
            pod = now.pods.get(claim.uid, "")
            return claim.namespace, pod, "", claim.namespace, claim.name
        case _:
            return _NOBODY


def _labels(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.minor), gpu.uuid, gpu.pci_bus_id
