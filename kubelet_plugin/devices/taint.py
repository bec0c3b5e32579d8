"""Device taints (KEP-5055), which prevent the allocation of devices with problems."""

from collections.abc import Collection
from typing import assert_never

from carina_dra.node_keys import NodeKeys
from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.inventory.compute_mode import COMPUTE_MODE, ComputeMode
from kubelet_plugin.inventory.gpu import REPAIR_FAILED
from kubelet_plugin.inventory.health import (
    EvictionCause,
    GpuProblem,
    GpuProblems,
    Severity,
    in_order,
)
from kubelet_plugin.inventory.held_mode import HeldMode, Switch


def released_taint(driver: str) -> DeviceTaint:
    """Returns the taint of all devices of a node whose GPUs are released."""
    return DeviceTaint(key=NodeKeys(driver).released_taint, effect=TaintEffect.NO_SCHEDULE)


def taints(
    problems: GpuProblems, driver: str, evict: Collection[EvictionCause]
) -> tuple[DeviceTaint, ...]:
    """Returns a taint `<driver>/<state>` for each state, whose value is the reason.

    It says since when: slices that the kubelet deletes at its start would be dated again, and the
    tolerationSeconds of pods would begin again. There are eight states, and the API allows 16
    taints. They are unique by key, value and effect: if the whole GPU and a GPU instance of it have
    the same state, the GPU's counts.
    """
    found: dict[str, DeviceTaint] = {}
    for problem in in_order(problems):
        key = f"{driver}/{problem.state}"
        since = problem.since.replace(microsecond=0)  # as the API keeps times
        taint = DeviceTaint(key, _effect(problem, evict), problem.reason, since)
        if problem.site is None:
            found[key] = taint
        else:
            found.setdefault(key, taint)
    return tuple(found.values())


def held_mode_taints(held: HeldMode | None, needed: Switch, driver: str) -> tuple[DeviceTaint, ...]:
    """Returns the taint of a device for which MIG mode cannot be switched as it is needed.

    Its effect is NoSchedule: claims that are prepared keep what they have.
    """
    if held is None or held.switch is not needed:
        return ()
    key = f"{driver}/{held.state}"
    return (DeviceTaint(key=key, effect=TaintEffect.NO_SCHEDULE, value=held.failure.code),)


def compute_mode_taints(
    mode: ComputeMode, prevents: Collection[ComputeMode], driver: str
) -> tuple[DeviceTaint, ...]:
    """Returns the taint of a device that cannot be used in these compute modes of its GPU.

    Its effect is NoSchedule: containers that compute already are not disturbed.
    """
    if mode not in prevents:
        return ()
    key = f"{driver}/{COMPUTE_MODE}"
    return (DeviceTaint(key=key, effect=TaintEffect.NO_SCHEDULE, value=mode.value),)


def repair_taints(reason: str | None, driver: str) -> tuple[DeviceTaint, ...]:
    """Returns the taint of a device for which a claim could not be prepared.

    Its effect is NoSchedule: what runs has lost nothing by it yet.
    """
    if reason is None:
        return ()
    key = f"{driver}/{REPAIR_FAILED}"
    return (DeviceTaint(key=key, effect=TaintEffect.NO_SCHEDULE, value=reason),)


def _effect(problem: GpuProblem, evict: Collection[EvictionCause]) -> TaintEffect:
    match problem.severity:
        case Severity.HARMLESS:
            return TaintEffect.NONE
        case Severity.TRANSIENT | Severity.FATAL:
            evicts = problem.eviction is not None and problem.eviction in evict
            return TaintEffect.NO_EXECUTE if evicts else TaintEffect.NO_SCHEDULE
    assert_never(problem.severity)
