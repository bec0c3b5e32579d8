"""docs/reference/events.md: Events, as the controller and the plugin write them.

The texts are those of the code, about sample values whose names say what stands there.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from carina_dra.kube.errors import ApiOperation, Forbidden
from carina_dra.kube.event import EventType, ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.resource import ConsumerReference
from controller.engine.model.plan import Action, Eviction
from controller.engine.model.queue import EVICTION_GRACE
from controller.engine.model.reason import Reason, UnknownQueue
from controller.report import waiting
from controller.report.notice import (
    DeviceLost,
    DoubleAllocation,
    GateNotRemoved,
    GroupDegraded,
    GroupRefused,
    Notice,
    ObjectSetAside,
    PodEvicted,
    PodEvictedForTaint,
    PodStranded,
    event_text,
)
from documentation import markdown
from documentation.markdown import code, paragraph, summary, table
from documentation.reference.samples import FAILURE, GPU, NEVER, PROBLEM_SAMPLES
from kubelet_plugin.claim_status.health_notice import (
    MemoryExceeded,
    ProblemBegan,
    ProblemEnded,
    ProcessWasEnded,
)
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.drift import (
    CdiSpecDrift,
    DeviceNodeDrift,
    Drift,
    MemoryLimitDrift,
    MetadataDrift,
    MigInstanceDrift,
    MigModeDrift,
)
from kubelet_plugin.claims.failure import ClaimGone
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
from kubelet_plugin.inventory.gpu import MigMode
from kubelet_plugin.inventory.health import PROBLEMS, Severity
from kubelet_plugin.inventory.held_mode import HeldMode, Switch
from kubelet_plugin.inventory.inventory import UnknownGpu
from kubelet_plugin.inventory.xid import text
from kubelet_plugin.node.view import InvalidAnnotation
from kubelet_plugin.publish.feature_gate import FeatureGate
from kubelet_plugin.publish.other_drivers import (
    Contested,
    Decision,
    DevicePlugin,
    DraDriver,
    PodsOfDevicePlugin,
    SameNamePlugin,
)
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport

# The reports write each Event to the log as well.
logging.getLogger("kubelet_plugin.report").addHandler(logging.NullHandler())

_HEADINGS: Final = ("reason", "type", "about", "text")


@dataclass(frozen=True, slots=True, order=True)
class EventRow:
    """An Event as the reference shows it."""

    reason: str
    type: str
    about: str
    """The kinds of objects."""
    text: str

    def cells(self) -> Sequence[str]:
        """The cells of its row."""
        return code(self.reason), self.type, self.about, self.text


def page() -> str:
    """The page, in Markdown."""
    return markdown.page(
        "Events",
        "the notices of the controller and the reports of the plugin",
        paragraph(
            "`kubectl describe` shows the Events of an object. Words in capitals stand for names. "
            "[claim-failures.md](../claim-failures.md) lists the "
            "failures of claims."
        ),
        ["## Why a group waits", "", *_waiting_table()],
        ["## Other Events of the controller", "", *_table(controller_events())],
        ["## Events of the plugin", "", *_table(plugin_events())],
    )


def _waiting_table() -> Iterator[str]:
    yield (
        "About up to three pods of a group, and the reason of the condition of its PodGroup. A "
        "Warning asks its user to act; time does not help."
    )
    yield ""
    rows = sorted(waiting_events())
    yield from table(("reason", "type", "about", "meaning"), (row.cells() for row in rows))


def _table(rows: Iterator[EventRow]) -> Iterator[str]:
    return table(_HEADINGS, (row.cells() for row in sorted(rows)))


def waiting_events() -> Iterator[EventRow]:
    """An Event for each reason for which a group waits."""
    yield EventRow(waiting.NOT_DECIDED, EventType.NORMAL.value, "Pod", waiting.waiting_text(()))
    for kind in get_args(Reason):
        # Only the type decides; a sample of each reason would say nothing more.
        urgent = waiting.needs_its_user(object.__new__(kind))
        event_type = EventType.WARNING if urgent else EventType.NORMAL
        for word, meaning in _words(kind):
            yield EventRow(word, event_type.value, "Pod", meaning)


def _words(kind: type[Reason]) -> Iterator[tuple[str, str]]:
    """The words of a reason, each with its meaning."""
    if kind is UnknownQueue:
        for exists in (False, True):
            reason = UnknownQueue("QUEUE", exists=exists)
            yield reason.word, str(reason)
    else:
        yield str(kind.word), summary(kind.__doc__)


def _cause(action: Action) -> str:
    """The group for which a pod is evicted."""
    own = (Action.DRAIN, Action.STALE, Action.RELEASE, Action.REPLACE)
    return "NAMESPACE/GROUP" if action in own else "OTHER/GROUP"


Noticed: TypeAlias = tuple[str, Notice]
NOTICES: Final[tuple[Noticed, ...]] = (
    ("Pod, PodGroup", GroupRefused("what is wrong, and the remedy")),
    ("Pod", GroupDegraded("NAMESPACE/GROUP", "DEVICES")),
    *(
        (
            "Pod",
            PodEvicted(
                Eviction("NAMESPACE/POD", "NODE", action, _cause(action), EVICTION_GRACE), "QUEUE"
            ),
        )
        for action in Action
    ),
    *(
        (
            "Pod",
            PodEvicted(
                Eviction(
                    "NAMESPACE/POD",
                    "NODE",
                    Action.RECLAIM,
                    "OTHER/GROUP",
                    EVICTION_GRACE,
                    **{mark: True},
                ),
                "QUEUE",
            ),
        )
        for mark in ("moves", "overran", "past_budgets")
    ),
    *(
        ("Pod", PodEvictedForTaint("DEVICE", "KEY=VALUE:NoExecute", past_budgets=past_budgets))
        for past_budgets in (False, True)
    ),
    ("ResourceClaim", DoubleAllocation("DEVICE", "NAMESPACE/CLAIM")),
    ("Pod", DeviceLost("DEVICE", "NAMESPACE/CLAIM")),
    ("Pod", PodStranded("NODE")),
    ("Pod", GateNotRemoved("ERROR")),
    ("any", ObjectSetAside("decided on", "ERROR")),
)
"""Every notice but that a group waits, with the kind of object that it is about."""


def controller_events() -> Iterator[EventRow]:
    """The other Events of the controller."""
    for about, notice in NOTICES:
        text = event_text(notice, "NAMESPACE")
        yield EventRow(text.reason, text.type.value, about, text.note)


class _Recorder(EventRecorder):
    """Keeps what is recorded, and sends nothing."""

    def __init__(self) -> None:  # the client and the thread are not needed
        self.rows: set[EventRow] = set()

    def record(
        self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: str,
        note: str,
        *,
        action: str,
    ) -> None:
        del action
        self.rows.add(EventRow(reason, event_type.value, regarding.kind, note))


CHANGES: Final[tuple[InventoryChange, ...]] = (
    DriverArrived(8),
    DriverGone("REASON"),
    DriverRefuses(FAILURE),
    DriverWasReplaced("PATH"),
    GpuAppeared(GPU),
    GpuVanished(GPU),
    *(ProblemAppeared(GPU, problem) for problem in PROBLEM_SAMPLES),
    ProblemAppeared(GPU, PROBLEM_SAMPLES[0], flapping=120.0),
    ApplicationFailed(GPU, 31, text(31)),
    GpuRecovered(GPU),
    GpuIsUnknown(UnknownGpu(0, FAILURE)),
    MigModeChanged(GPU, MigMode.ON),
    MigModeChanged(GPU, MigMode.OFF),
    *(MigModeHeld(GPU, HeldMode(switch, FAILURE, NEVER)) for switch in Switch),
    MigModeReleased(GPU),
    *(ComputeModeChanged(GPU, mode) for mode in ComputeMode),
)
"""Every change of a node's GPUs."""
DRIFTS: Final[tuple[Drift, ...]] = (
    CdiSpecDrift("PATH", missing=True),
    CdiSpecDrift("PATH", missing=False),
    MetadataDrift("PATH"),
    DeviceNodeDrift("PATH", "missing"),
    MigModeDrift("UUID"),
    MigInstanceDrift("DEVICE"),
    MemoryLimitDrift("UID", "UUID", None, 2**30),
)
"""Everything that may have changed of a prepared claim."""
_OTHER_DRIVERS: Final = (
    DevicePlugin(("nvidia.com/gpu",)),
    PodsOfDevicePlugin(("NAMESPACE/POD",)),
    DraDriver("OTHER"),
    SameNamePlugin("SOCKET", "CHECKPOINT"),
)
_CLAIM: Final = ClaimReference("UID", "NAMESPACE", "CLAIM")
_FAILED: Final = ClaimGone(_CLAIM, "what is wrong, and the remedy")


def plugin_events() -> Iterator[EventRow]:
    """The Events of the plugin."""
    recorder = _Recorder()
    metrics = PluginMetrics()
    _report_node(NodeReport(events=recorder, node="NODE", metrics=metrics))
    _report_claims(ClaimReport(events=recorder, node="NODE", metrics=metrics))
    yield from recorder.rows


def _report_node(node: NodeReport) -> None:
    for change in CHANGES:
        node.inventory_changed(change)
    node.inventory_read_stalled(60)
    node.inventory_read_resumed(60)
    node.publishing_failed(Forbidden(ApiOperation("create", "resourceslices"), "MESSAGE"))
    for gate in FeatureGate:
        node.feature_gate_off(gate)
    for other in _OTHER_DRIVERS:
        node.gpus_contested(Decision((), (Contested(other, (GPU,)),), "withhold"))
        node.gpus_contested(Decision((), (Contested(other, (GPU,)),), "publish"))
    node.gpus_contested(Decision((), (), "withhold"))
    node.registration_refused("REASON")
    node.annotation_ignored(InvalidAnnotation("KEY", "is wrong", "REMEDY"))


def _report_claims(claims: ClaimReport) -> None:
    claims.call_retried("prepare", _CLAIM, _FAILED)
    claims.call_retried("unprepare", _CLAIM, _FAILED)
    claims.call_ended("prepare", _CLAIM, 0, _FAILED)
    claims.call_ended("unprepare", _CLAIM, 0, _FAILED)
    claims.checkpoint_rebuilt("PATH", "REASON", 0)
    for drift in DRIFTS:
        claims.drift_repaired(NodeClaim.unknown(_CLAIM), drift)
    claims.repair_failed(NodeClaim.unknown(_CLAIM), _FAILED)
    claims.leftover_not_removed("RESOURCE", _FAILED)
    claims.kubelet_record_unusable("REASON")
    claims.claim_abandoned(NodeClaim.unknown(_CLAIM))
    claims.partitions_of_nvidia_left(_CLAIM, ["DEVICE"])
    pod = ConsumerReference(resource="pods", name="POD", uid="UID")
    told = (kind for kind in PROBLEMS if kind.severity is not Severity.HARMLESS)
    for reason in (*(kind.event_reason for kind in told), "GPUVanished"):
        claims.health_changed(_CLAIM, [pod], [ProblemBegan(reason, "PROBLEM", ("DEVICE",))])
    claims.health_changed(_CLAIM, [pod], [ProblemEnded(("DEVICE",))])
    claims.health_changed(_CLAIM, [pod], [MemoryExceeded("USE AND REMEDY", ("DEVICE",))])
    claims.health_changed(_CLAIM, [pod], [ProcessWasEnded("PROCESS, WHY AND REMEDY", ("DEVICE",))])
