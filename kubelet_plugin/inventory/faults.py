"""The XIDs that are remembered of a GPU, and when they no longer count. No I/O, no clock.

An XID is reported once, and lost if nobody listens; a fault that it told stays until the GPU was
reset. So what matters of it is remembered, over restarts of the plugin. The order in which XIDs are
reported does not matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from kubelet_plugin.inventory.gpu import Gpu, ObservedGpu
from kubelet_plugin.inventory.health import (
    Degraded,
    Draining,
    DriverVerdict,
    GpuProblem,
    MemoryFailed,
    NeedsReboot,
    NeedsReset,
)
from kubelet_plugin.inventory.mig import MigSite
from kubelet_plugin.inventory.xid import XidRules, is_benign, text
from kubelet_plugin.inventory.xid_catalogue import CONTAINED, DECISIVE, XidSeverity

MOST: Final = 64
"""Faults that are remembered of a GPU: the worst, and of those the latest."""
TOGETHER: Final = timedelta(seconds=30)
"""XIDs that are no further apart belong to one error."""
EXPLAINS: Final = timedelta(seconds=60)
"""For how long an XID explains what a driver with a recovery action says."""
_UNCORRECTABLE: Final = 48
_REMAPPED: Final = 63


@dataclass(frozen=True, slots=True)
class Fault:
    """An XID of a GPU, however often it was reported."""

    xid: int
    site: MigSite | None
    """The GPU instance to which the driver attributes it; None if to none, or to all."""
    first: datetime
    last: datetime
    count: int
    binding: str
    """`GpuState.binding` when it was last reported."""

    @property
    def key(self) -> "FaultKey":
        """What makes a report one of the same fault."""
        return self.xid, self.site


FaultKey: TypeAlias = tuple[int, MigSite | None]
Faults: TypeAlias = Mapping[FaultKey, Fault]
"""Of one GPU."""

NONE: Final[Faults] = {}


def matters(fault: Fault, severity: XidSeverity) -> bool:
    """Returns whether a fault is to be remembered: it is none of the application's."""
    return (
        not is_benign(severity)
        or fault.xid == _REMAPPED
        or (fault.xid in CONTAINED and fault.site is not None)
    )


def remembered(faults: Faults, fault: Fault, rules: XidRules, gpu: Gpu) -> Faults:
    """Returns the faults with one more report."""
    known = faults.get(fault.key)
    if known is not None:
        latest = max(known, fault, key=lambda report: (report.last, report.binding))
        fault = replace(
            latest,
            first=min(known.first, fault.first),
            count=known.count + fault.count,
        )
    more = {**faults, fault.key: fault}
    if len(more) <= MOST:
        return more
    severities = list(XidSeverity)

    def weight(kept: Fault) -> tuple[int, datetime, int, str]:
        severity = rules.severity(kept.xid, gpu)
        return severities.index(severity), kept.last, kept.xid, str(kept.site)

    del more[min(more.values(), key=weight).key]
    return more


def not_later(faults: Faults, now: datetime) -> Faults:
    """Returns the faults with no report after `now`: the clock was wrong then.

    An administrator could not clear them until that time.
    """
    if all(fault.last <= now for fault in faults.values()):
        return faults
    return {
        key: replace(fault, first=min(fault.first, now), last=min(fault.last, now))
        for key, fault in faults.items()
    }


def still_counting(
    faults: Faults, observed: ObservedGpu, rules: XidRules, cleared: datetime | None, now: datetime
) -> Faults:
    """Returns the faults without those that are over. The GPU answers.

    A fault is over when an administrator has cleared it, or when the GPU was reset by a boot or by
    binding the driver again, and the driver asks for nothing more; the GPU's replacement only an
    administrator clears. Where the driver has a recovery action, what only explains it is over with
    it.
    """
    action, pending = observed.state.signals.recovery_action, observed.state.signals.rows_pending

    def counts(fault: Fault) -> bool:
        if cleared is not None and fault.last < cleared:
            return False
        if action is not None and fault.xid not in DECISIVE:
            return action != 0 or now - fault.last < EXPLAINS
        if rules.severity(fault.xid, observed.gpu) is XidSeverity.REPLACE:
            return True
        return fault.binding == observed.state.binding or pending or bool(action)

    return {key: fault for key, fault in faults.items() if counts(fault)}


def problems_of(
    faults: Faults, observed: ObservedGpu, rules: XidRules
) -> Mapping[tuple[str, MigSite | None], GpuProblem]:
    """Returns the problems that follow from the XIDs, by identity.

    With a recovery action, only those follow that the driver cannot tell by it.
    """
    has_action = observed.state.signals.recovery_action is not None
    found: dict[tuple[str, MigSite | None], GpuProblem] = {}
    for fault in sorted(faults.values(), key=lambda fault: (fault.first, fault.xid)):
        if has_action and fault.xid not in DECISIVE:
            continue
        problem = _problem(fault, severity_of(fault, faults, observed.gpu, rules))
        if problem is not None:
            found.setdefault((problem.state, problem.site), problem)
    return found


def severity_of(fault: Fault, faults: Faults, gpu: Gpu, rules: XidRules) -> XidSeverity:
    """Returns what follows from a fault, beside the others of its GPU."""
    severity = rules.severity(fault.xid, gpu)
    if fault.xid in CONTAINED and fault.site is not None and is_benign(severity):
        return XidSeverity.DRAIN  # of that instance: its memory is offline until a reset
    if fault.xid == _UNCORRECTABLE and severity is XidSeverity.RESET:
        remapped = (other for other in faults.values() if other.xid == _REMAPPED)
        if any(_together(fault, other) for other in remapped):
            return XidSeverity.DRAIN  # the row is replaced at the next reset
    return severity


def explained(faults: Iterable[Fault]) -> str:
    """Returns " after XID 48, 95", or nothing."""
    numbers = sorted({fault.xid for fault in faults})
    return f" after XID {', '.join(map(str, numbers))}" if numbers else ""


def _together(fault: Fault, other: Fault) -> bool:
    return fault.first - TOGETHER <= other.last and other.first - TOGETHER <= fault.last


def _problem(fault: Fault, severity: XidSeverity) -> GpuProblem | None:
    finding = DriverVerdict(f"xid-{fault.xid}", f"has reported {text(fault.xid)}")
    site = fault.site if fault.xid in CONTAINED else None
    match severity:
        case XidSeverity.IGNORE | XidSeverity.APPLICATION:
            return None
        case XidSeverity.DEGRADED:
            return Degraded(finding, fault.first, site)
        case XidSeverity.DRAIN:
            return Draining(finding, fault.first, site)
        case XidSeverity.RESET:
            return NeedsReset(finding, fault.first, site)
        case XidSeverity.REBOOT:
            return NeedsReboot(finding, fault.first, site)
        case XidSeverity.REPLACE:
            return MemoryFailed(finding, fault.first, site)
