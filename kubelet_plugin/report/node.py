"""What happens on the node, as Events on its Node object, as metrics and in the log.

One class hears of everything that inventory poller, slice publisher and registration have to tell.
Every Event names the remedy where somebody has to do something.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from carina_dra.kube.errors import ApiError, Forbidden, Unauthorized
from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from kubelet_plugin.devices.device import devices
from kubelet_plugin.inventory import health
from kubelet_plugin.inventory.change import (
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
    ProblemAppeared,
)
from kubelet_plugin.inventory.gpu import Gpu, MigMode
from kubelet_plugin.inventory.inventory import Inventory
from kubelet_plugin.publish.feature_gate import FeatureGate
from kubelet_plugin.publish.other_drivers import (
    BesideOtherDrivers,
    Contested,
    Decision,
    DevicePlugin,
    DraDriver,
    SameNamePlugin,
)
from kubelet_plugin.publish.pool import DeviceSlice, Pool
from kubelet_plugin.publish.publisher import SliceOperation
from kubelet_plugin.report.metrics import Metrics

_CONSEQUENCES: Mapping[FeatureGate, str] = {
    FeatureGate.DEVICE_TAINTS: "a GPU that is lost or unreadable is left out instead of tainted",
    FeatureGate.PARTITIONABLE_DEVICES: "a GPU is published without counters, as one device only",
}

_log = logging.getLogger(__name__)


class NodeReport:
    """Hears of GPUs from the poller and of slices from the publisher, and passes it on."""

    def __init__(self, *, events: EventRecorder, node: str, metrics: Metrics) -> None:
        self._events = events
        self._node = ObjectReference("v1", "Node", node, uid=node)
        self._metrics = metrics
        self._told_failure = ""

    # --- from the inventory poller ---

    def inventory_read(self, seconds: float) -> None:
        """A look at the GPUs took that long."""
        self._metrics.inventory_seconds.observe(seconds)

    def inventory_seen(self, inventory: Inventory) -> None:
        """The GPUs are these now."""
        states = Counter(health.state(device.state.problems) for device in devices(inventory))
        for state in health.STATES:
            self._metrics.devices.labels("gpu", state).set(states[state])

    def inventory_changed(self, change: InventoryChange) -> None:
        """Something about the GPUs has changed."""
        self._tell(notice(change), action="Observe")

    def inventory_read_stalled(self, seconds: float) -> None:
        """A look at the GPUs has not come back."""
        self._metrics.inventory_stalls.inc()
        note = (
            f"A call of the NVIDIA driver has not come back after {seconds:.0f} s. Until it does, "
            "changes of this node's GPUs go unseen; see the kernel log"
        )
        self._tell(Notice(EventType.WARNING, "GPUDriverHangs", note), action="Observe")

    def inventory_read_resumed(self, seconds: float) -> None:
        """The look at the GPUs that had stalled came back."""
        note = f"The NVIDIA driver answers again, after {seconds:.0f} s"
        self._tell(Notice(EventType.NORMAL, "GPUDriverResumed", note), action="Observe")

    # --- from the publisher ---

    def slice_written(self, operation: SliceOperation) -> None:
        """A ResourceSlice was written."""
        self._metrics.slice_writes.labels(operation).inc()

    def slices_published(self, pool: Pool) -> None:
        """The ResourceSlices are what they ought to be."""
        self._told_failure = ""
        shown = sum(len(each.devices) for each in pool.slices if isinstance(each, DeviceSlice))
        _log.info(
            "slices published",
            extra={"pool": pool.node, "slices": len(pool.slices), "devices": shown},
        )

    def slices_repaired(self) -> None:
        """Somebody else had changed or deleted ResourceSlices."""
        self._metrics.slice_repairs.inc()
        _log.warning("slices were changed or deleted by somebody else; writing them anew")

    def publishing_failed(self, error: ApiError) -> None:
        """An attempt to publish failed. One that goes on for the same reason is told once."""
        self._metrics.slice_failures.inc()
        reason = str(error)
        if reason == self._told_failure:
            return
        self._told_failure = reason
        match error:
            case Forbidden() | Unauthorized():
                remedy = "; give the plugin the rights that Carina's deploy/ has for it"
            case _:
                remedy = ""
        note = f"The node's ResourceSlices cannot be published: {reason}{remedy}"
        self._tell(Notice(EventType.WARNING, "PublishFailed", note), action="Publish")

    def feature_gate_off(self, gate: FeatureGate) -> None:
        """The API server drops fields of ResourceSlices."""
        note = f"Feature gate {gate.value} of the API server is off: {_CONSEQUENCES[gate]}"
        self._tell(Notice(EventType.WARNING, "FeatureGateOff", note), action="Publish")

    def gpus_contested(self, decision: Decision) -> None:
        """Other drivers offer other GPUs of this node than before, or none any more."""
        for contested in decision.contested:
            self._tell(contested_notice(contested, decision.policy), action="Publish")
        if not decision.contested:
            note = "No other driver offers a GPU of this node any more: all are published"
            self._tell(Notice(EventType.NORMAL, "GPUsNotContested", note), action="Publish")

    # --- from the registration ---

    def registration_refused(self, reason: str) -> None:
        """The kubelet does not take the plugin. It asks again by itself, later and later."""
        note = (
            f"The kubelet refuses to register the plugin: {reason}. Until it does, no claim for "
            "this node's GPUs is prepared; see its log for what it knows of the driver"
        )
        self._tell(Notice(EventType.WARNING, "RegistrationRefused", note), action="Register")

    def _tell(self, told: "Notice", *, action: str) -> None:
        log = _log.warning if told.type is EventType.WARNING else _log.info
        log("node event", extra={"reason": told.reason, "note": told.note})
        self._events.record(self._node, told.type, told.reason, told.note, action=action)


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event about the node, apart from its subject and time."""

    type: EventType
    reason: str
    note: str


def notice(change: InventoryChange) -> Notice:  # noqa: C901 - a case for each change
    """Returns the words for a change of the node's GPUs."""
    normal, warning = EventType.NORMAL, EventType.WARNING
    match change:
        case DriverArrived(gpus):
            return Notice(normal, "GPUDriverReady", f"The NVIDIA driver answers; GPUs: {gpus}")
        case DriverGone(reason):
            return Notice(
                warning,
                "GPUDriverMissing",
                f"{reason}. No GPU of this node can be handed out until a driver is there; it is "
                "found by itself once it is",
            )
        case DriverRefuses(failure):
            return Notice(
                warning,
                "GPUDriverFailed",
                f"The NVIDIA driver does not work: {failure}. No GPU of this node can be handed "
                "out; see whether nvidia-smi works on the node",
            )
        case DriverWasReplaced(library):
            return Notice(
                normal,
                "GPUDriverReplaced",
                f"Another NVIDIA driver is installed, with {library}. The plugin ends, to be "
                "started anew with that one",
            )
        case GpuAppeared(gpu):
            return Notice(normal, "GPUAppeared", f"{_name(gpu)} is there")
        case GpuVanished(gpu):
            return Notice(warning, "GPUVanished", f"{_name(gpu)} is gone")
        case ProblemAppeared(gpu, problem):
            return Notice(
                warning,
                problem.event_reason,
                f"{_name(gpu)} {problem}. It is not allocated meanwhile; {problem.remedy}",
            )
        case GpuRecovered(gpu):
            return Notice(normal, "GPURecovered", f"{_name(gpu)} answers again")
        case GpuIsUnknown(unknown):
            return Notice(
                warning,
                "GPUUnreadable",
                f"GPU number {unknown.index} of the driver's list has never answered "
                f"({unknown.failure}). It cannot be handed out; see nvidia-smi and the kernel log",
            )
        case MigModeChanged(gpu, mode):
            state = "on: it is not handed out as a whole" if mode is MigMode.ON else "off"
            return Notice(normal, "MIGModeChanged", f"MIG mode of {_name(gpu)} is {state}")
    assert_never(change)


def contested_notice(contested: Contested, policy: BesideOtherDrivers) -> Notice:
    """Returns the words for GPUs that another driver offers too."""
    gpus = ", ".join(f"GPU {gpu.minor}" for gpu in contested.gpus)
    match contested.by:
        case DevicePlugin(resources):
            offer = f"A device plugin offers {', '.join(resources)} on this node"
            remedy = "Remove the device plugin from this node"
        case DraDriver(name):
            offer = f"Driver {name} publishes the same"
            remedy = f"Remove driver {name} from this node"
        case SameNamePlugin(socket, checkpoint):
            gpus = "all GPUs"
            offer = (
                "Another plugin uses the name of Carina's driver: it listens on "
                f"{socket} and keeps {checkpoint}"
            )
            remedy = "Remove that plugin from this node, or give Carina another driver_name"
        case _:
            assert_never(contested.by)
    match policy:
        case "withhold":
            return Notice(
                EventType.WARNING,
                "GPUsWithheld",
                f"Not published: {gpus}. {offer}, and two drivers would give one GPU to two pods. "
                f"{remedy}, or set beside_other_drivers to publish",
            )
        case "publish":
            return Notice(
                EventType.WARNING,
                "GPUsOfferedTwice",
                f"Offered twice: {gpus}. {offer}, and beside_other_drivers is publish, so one GPU "
                f"may be given to two pods. {remedy}",
            )
    assert_never(policy)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.minor} ({gpu.uuid}, PCI {gpu.pci_bus_id})"
