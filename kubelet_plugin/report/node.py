"""Reports what happens on the node, as Events on its Node object, metrics and log records.

An Event that needs an operator's action names the remedy.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import assert_never

from carina_dra.kube.errors import ApiError, Forbidden, Unauthorized
from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.inventory import health
from kubelet_plugin.inventory.change import (
    ApplicationFailed,
    ComputeModeChanged,
    DriverArrived,
    DriverGone,
    DriverRefuses,
    DriverWasReplaced,
    GpuAppeared,
    GpuIsUnknown,
    GpuRecovered,
    GpuVanished,
    InventoryChange,
    MigModeChanged,
    MigModeHeld,
    MigModeReleased,
    ProblemAppeared,
)
from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.gpu import Gpu, MigMode
from kubelet_plugin.inventory.held_mode import Switch
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.inventory.mig import MigSite
from kubelet_plugin.node.view import InvalidAnnotation
from kubelet_plugin.publish.feature_gate import FeatureGate
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    Contested,
    Decision,
    DevicePlugin,
    DraDriver,
    PodsOfDevicePlugin,
    SameNamePlugin,
)
from kubelet_plugin.publish.pool import DeviceSlice, PublishedPool
from kubelet_plugin.publish.publisher import SliceOperation
from kubelet_plugin.report.metrics import PluginMetrics

_CONSEQUENCES: Mapping[FeatureGate, str] = {
    FeatureGate.CONSUMABLE_CAPACITY: "GPUs cannot be shared, and no shares are published",
    FeatureGate.DEVICE_TAINTS: "a lost or unreadable GPU is not published, instead of "
    "published with a taint",
    FeatureGate.NODE_ALLOCATABLE_RESOURCES: "the scheduler does not count the host memory of "
    "devices; switch the gate on in kube-apiserver, kube-scheduler and kubelet of Kubernetes 1.37 "
    "or later, or set host_memory_mib to 0",
    FeatureGate.PARTITIONABLE_DEVICES: "each GPU is published as one device, without "
    "shared counters",
    FeatureGate.PARTITIONABLE_DEVICES_TYPE: "ResourcePoolStatusRequests do not count partition "
    "types; switch the gate on in kube-apiserver of Kubernetes 1.37 or later, or set "
    "partition_types to false",
}

_SHOWN = 10
"""Pods that one message names."""

_log = logging.getLogger(__name__)


class NodeReport:
    """The InventoryReporter, PublishReporter and RegistrationReporter of the plugin."""

    def __init__(self, *, events: EventRecorder, node: str, metrics: PluginMetrics) -> None:
        self._events = events
        self._node = ObjectReference("v1", "Node", node, uid=node)
        self._metrics = metrics
        self._reported_failure = ""

    # --- from the inventory poller ---

    def inventory_read(self, seconds: float) -> None:
        """Reports how long a read of the GPUs took."""
        self._metrics.inventory_seconds.observe(seconds)

    def inventory_seen(self, inventory: Inventory) -> None:
        """Reports the first inventory, and each that differs from the previous one."""
        seen = Counter(
            (device.kind, health.state(device.state.problems)) for device in devices(inventory)
        )
        for kind, state in product(DeviceKind, health.STATES):
            self._metrics.devices.labels(kind, state).set(seen[kind, state])

    def inventory_changed(self, change: InventoryChange) -> None:
        """Reports a single change between two reads."""
        self._report(notice(change), action="Observe")

    def xid_reported(self, uuid: str, xid: int) -> None:
        """Counts an XID."""
        self._metrics.xids.labels(uuid, str(xid)).inc()

    def inventory_read_stalled(self, seconds: float) -> None:
        """Reports that a read of the GPUs has not returned."""
        self._metrics.inventory_stalls.inc()
        note = (
            f"A call to the NVIDIA driver has not returned for {seconds:.0f} s. Until it returns, "
            "this node's GPUs cannot be read, and are not allocated; check the kernel log"
        )
        self._report(NodeNotice(EventType.WARNING, "GPUDriverHangs", note), action="Observe")

    def inventory_read_resumed(self, seconds: float) -> None:
        """Reports that a stalled read of the GPUs returned."""
        note = f"The call to the NVIDIA driver returned after {seconds:.0f} s"
        self._report(NodeNotice(EventType.NORMAL, "GPUDriverResumed", note), action="Observe")

    # --- from the publisher ---

    def slice_written(self, operation: SliceOperation) -> None:
        """Reports that a ResourceSlice was written."""
        self._metrics.slice_writes.labels(operation).inc()

    def slices_published(self, pool: PublishedPool) -> None:
        """Reports that the ResourceSlices match the pool."""
        self._reported_failure = ""
        device_slices = [content for content in pool.slices if isinstance(content, DeviceSlice)]
        published = sum(len(content.devices) for content in device_slices)
        _log.info(
            "slices published",
            extra={"pool": pool.node, "slices": len(pool.slices), "devices": published},
        )

    def slices_repaired(self) -> None:
        """Reports that another client changed or deleted ResourceSlices."""
        self._metrics.slice_repairs.inc()
        _log.warning("ResourceSlices were changed or deleted by another client; writing them again")

    def publishing_failed(self, error: ApiError) -> None:
        """Reports that an attempt to publish failed. Emits one Event per reason in a row."""
        self._metrics.slice_failures.inc()
        reason = str(error)
        if reason == self._reported_failure:
            return
        self._reported_failure = reason
        match error:
            case Forbidden() | Unauthorized():
                remedy = (
                    "; grant the plugin's ServiceAccount the permissions in Carina's deploy/ "
                    "manifests"
                )
            case _:
                remedy = ""
        note = f"The node's ResourceSlices cannot be published: {reason}{remedy}"
        self._report(NodeNotice(EventType.WARNING, "PublishFailed", note), action="Publish")

    def feature_gate_off(self, gate: FeatureGate) -> None:
        """Reports that the API server drops or refuses fields of ResourceSlices."""
        note = f"The API server does not store fields of {gate.value}: {_CONSEQUENCES[gate]}"
        self._report(NodeNotice(EventType.WARNING, "FeatureGateOff", note), action="Publish")

    def gpus_contested(self, decision: Decision) -> None:
        """Reports that the set of GPUs that other drivers offer has changed."""
        for contested in decision.contested:
            self._report(contested_notice(contested, decision.policy), action="Publish")
        if not decision.contested:
            note = "No other driver offers this node's GPUs any longer; all GPUs are published"
            self._report(NodeNotice(EventType.NORMAL, "GPUsNotContested", note), action="Publish")

    # --- from the registration ---

    def registration_refused(self, reason: str) -> None:
        """Reports that the kubelet refused to register the plugin. It retries with a back-off."""
        note = (
            f"The kubelet refused to register the plugin: {reason}. Claims for this node's GPUs "
            "cannot be prepared until the kubelet accepts it; check the kubelet's log"
        )
        self._report(NodeNotice(EventType.WARNING, "RegistrationRefused", note), action="Register")

    # --- from the watch of the Node ---

    def annotation_ignored(self, annotation: InvalidAnnotation) -> None:
        """Reports that an annotation of the Node cannot be read."""
        note = f"On Node {self._node.name}, {annotation}"
        self._report(NodeNotice(EventType.WARNING, "InvalidAnnotation", note), action="Observe")

    def _report(self, event: "NodeNotice", *, action: str) -> None:
        log = _log.warning if event.type is EventType.WARNING else _log.info
        log("node event", extra={"reason": event.reason, "note": event.note})
        self._events.record(self._node, event.type, event.reason, event.note, action=action)


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """An Event about the node, without its object and time."""

    type: EventType
    reason: str
    note: str


def notice(change: InventoryChange) -> NodeNotice:  # noqa: C901, PLR0912 - a case for each change
    """Returns the Event for a change of the node's GPUs."""
    normal, warning = EventType.NORMAL, EventType.WARNING
    match change:
        case DriverArrived(gpus):
            return NodeNotice(normal, "GPUDriverReady", f"The NVIDIA driver is ready; GPUs: {gpus}")
        case DriverGone(reason):
            return NodeNotice(
                warning,
                "GPUDriverMissing",
                f"{reason}. This node's GPUs cannot be allocated until the NVIDIA driver is "
                "installed and loaded; the plugin detects it without a restart",
            )
        case DriverRefuses(failure):
            return NodeNotice(
                warning,
                "GPUDriverFailed",
                f"The NVIDIA driver does not work: {failure}. This node's GPUs cannot be "
                "allocated; check that nvidia-smi works on the node",
            )
        case DriverWasReplaced(library):
            return NodeNotice(
                normal,
                "GPUDriverReplaced",
                f"Another NVIDIA driver was installed ({library}). The plugin exits, and the "
                "kubelet restarts it with the new driver",
            )
        case GpuAppeared(gpu):
            return NodeNotice(normal, "GPUAppeared", f"{_name(gpu)} was found")
        case GpuVanished(gpu):
            return NodeNotice(warning, "GPUVanished", f"{_name(gpu)} is no longer present")
        case ProblemAppeared(gpu, problem, flapping):
            where = f"{_name(gpu)}{_instance(problem.site)}"
            consequence = (
                "It stays in use"
                if problem.severity is health.Severity.HARMLESS
                else "It is not allocated until this is resolved"
            )
            return NodeNotice(
                warning,
                problem.event_reason,
                f"{where} {problem}. {health.of_flapping(flapping)}{consequence}; {problem.remedy}",
            )
        case ApplicationFailed(gpu, xid, text):
            return NodeNotice(
                normal,
                "GPUApplicationFailed",
                f"{_name(gpu)} has reported {text}: an application that used it has failed. The "
                f"GPU is well; if different applications fail with XID {xid} on this GPU alone, "
                "run diagnostics",
            )
        case GpuRecovered(gpu):
            return NodeNotice(normal, "GPURecovered", f"{_name(gpu)} responds again")
        case GpuIsUnknown(unknown):
            return NodeNotice(
                warning,
                "GPUUnreadable",
                f"GPU {unknown.index} in the driver's list has not responded since the plugin "
                f"started ({unknown.failure}). It cannot be allocated; check nvidia-smi and the "
                "kernel log",
            )
        case MigModeChanged(gpu, mode):
            state = (
                "enabled; the GPU is not allocated as a whole" if mode is MigMode.ON else "disabled"
            )
            return NodeNotice(normal, "MIGModeChanged", f"MIG mode of {_name(gpu)} is {state}")
        case MigModeHeld(gpu, held):
            devices_held = {
                Switch.ON: "Its partitions are",
                Switch.OFF: "As a whole and in shares, it is",
            }[held.switch]
            return NodeNotice(
                warning,
                "MIGModeHeld",
                f"{held} on {_name(gpu)}: a process of the node has the GPU open, such as a "
                f"monitoring agent. {devices_held} not allocated until this process ends; see "
                "docs/mig.md",
            )
        case ComputeModeChanged(gpu, mode):
            return _compute_mode_notice(gpu, mode)
        case MigModeReleased(gpu):
            return NodeNotice(
                normal, "MIGModeReleased", f"MIG mode of {_name(gpu)} can be switched again"
            )
    assert_never(change)


def _compute_mode_notice(gpu: Gpu, mode: ComputeMode) -> NodeNotice:
    name = mode.name
    remedy = f"to change that: nvidia-smi -i {gpu.uuid} -c DEFAULT"
    match mode:
        case ComputeMode.DEFAULT:
            note = f"The compute mode of {_name(gpu)} is {name} again"
            return NodeNotice(EventType.NORMAL, "ComputeModeDefault", note)
        case ComputeMode.EXCLUSIVE_PROCESS:
            held = "Only one process at a time can compute on it, so shares of it are not allocated"
        case ComputeMode.PROHIBITED:
            held = "No process can compute on it, so it is not allocated"
        case _:
            assert_never(mode)
    note = f"The compute mode of {_name(gpu)} is {name}. {held}; {remedy}"
    return NodeNotice(EventType.WARNING, "ComputeModeRestricted", note)


def _some(pods: Sequence[str]) -> str:
    more = len(pods) - _SHOWN
    return ", ".join(pods[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def contested_notice(contested: Contested, policy: BesideOtherDrivers) -> NodeNotice:
    """Returns the Event for GPUs that another driver also offers."""
    gpus = ", ".join(f"GPU {gpu.minor}" for gpu in contested.gpus)
    match contested.by:
        case DevicePlugin(resources):
            offer = f"a device plugin offers {', '.join(resources)} on this node"
            remedy = "remove the device plugin from this node"
        case DraDriver(name):
            offer = f"DRA driver {name} also publishes them"
            remedy = f"remove DRA driver {name} from this node"
        case SameNamePlugin(socket, checkpoint):
            gpus = "all GPUs"
            offer = (
                "another plugin uses the name of Carina's driver, listens on "
                f"{socket} and has the checkpoint {checkpoint}"
            )
            remedy = "remove that plugin from this node, or set another driver_name for Carina"
        case PodsOfDevicePlugin(pods):
            offer = f"pods have them from a device plugin that is gone: {_some(pods)}"
            remedy = "wait until these pods have ended"
        case _:
            assert_never(contested.by)
    match policy:
        case "withhold":
            return NodeNotice(
                EventType.WARNING,
                "GPUsWithheld",
                f"GPUs are not published, because {offer}: {gpus}. To publish them, {remedy}, or "
                "set beside_other_drivers to publish",
            )
        case "publish":
            return NodeNotice(
                EventType.WARNING,
                "GPUsOfferedTwice",
                f"GPUs are published, because beside_other_drivers is publish, although {offer}: "
                f"{gpus}. Two pods may get the same GPU; to prevent that, {remedy}",
            )
    assert_never(policy)


def _instance(site: MigSite | None) -> str:
    """Names the memory slices of the GPU instance that has a problem."""
    if site is None:
        return ""
    at = site.placement
    return f", its GPU instance at memory slices {at.start} to {at.start + at.size - 1},"


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.minor} ({gpu.uuid}, PCI {gpu.pci_bus_id})"
