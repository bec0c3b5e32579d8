"""Taints of devices: what keeps a request away, and what rules add (KEP-5055)."""

from collections.abc import Iterable

from carina_dra.resource import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    TaintEffect,
    TolerationOperator,
)

_KEEPS_AWAY = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)


def untolerated(device: Device, tolerations: Iterable[DeviceToleration]) -> DeviceTaint | None:
    """The device's first taint that keeps a request with these tolerations away, if any."""
    tolerations = tuple(tolerations)
    for taint in device.taints:
        if taint.effect in _KEEPS_AWAY and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the taint is no matter to who has the toleration."""
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
