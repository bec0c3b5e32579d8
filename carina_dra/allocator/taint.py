"""Device taints: tolerations, and the taints that DeviceTaintRules add (KEP-5055)."""

from collections.abc import Iterable
from math import inf

from carina_dra.resource import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    TaintEffect,
    TolerationOperator,
)

_PREVENTS_ALLOCATION = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)


def untolerated(device: Device, tolerations: Iterable[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that prevents allocation and that no toleration covers, if any."""
    tolerations = tuple(tolerations)
    for taint in device.taints:
        if prevents_allocation(taint) and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def taint_text(taint: DeviceTaint) -> str:
    """A taint as kubectl writes those of nodes, such as `key=value:NoExecute`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def prevents_allocation(taint: DeviceTaint) -> bool:
    """Whether the taint keeps claims away that do not tolerate it."""
    return taint.effect in _PREVENTS_ALLOCATION


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration covers the taint."""
    if toleration.effect is not None and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case TolerationOperator.EXISTS:
            return True
        case TolerationOperator.EQUAL:
            return toleration.value == taint.value
        case _:
            return False


def eviction_time(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float:
    """When a taint with the effect NoExecute evicts who has a device with these tolerations.

    A Unix time; infinite for never. Several tolerations hold for as long as the shortest one
    (kube-controller-manager, device taint eviction).
    """
    seconds = [
        inf if toleration.toleration_seconds is None else max(0, toleration.toleration_seconds)
        for toleration in tolerations
        if tolerates(toleration, taint)
    ]
    added = 0.0 if taint.time_added is None else taint.time_added.timestamp()
    return added + min(seconds, default=0)


def added_by_rules(
    rules: Iterable[DeviceTaintRule], driver: str, pool: str, device: str
) -> tuple[DeviceTaint, ...]:
    """The taints that rules add to a device, in the order of the rules."""
    return tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is not None
        and may_apply(rule, driver, pool)
        and rule.spec.device_selector.device in (None, device)
    )


def may_apply(rule: DeviceTaintRule, driver: str, pool: str) -> bool:
    """Whether a rule may taint any device of a pool."""
    selector = rule.spec.device_selector
    return selector is not None and (
        selector.driver in (None, driver) and selector.pool in (None, pool)
    )
