"""What a request consumes of a device's capacities, in billionths (KEP-5075)."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from carina_dra.quantity import Quantity

Object: TypeAlias = dict[str, Any]
_UNIT = 10**9
_MILLI = 10**6


def consumed(
    capacity: Mapping[str, Object], requested: Mapping[str, str], *, fractional: bool
) -> dict[str, int] | None:
    """The consumed amount of each capacity; None if the device cannot serve the request."""
    if not requested.keys() <= capacity.keys():
        return None
    amounts = {}
    for name, of in capacity.items():
        policy = of.get("requestPolicy") or {}
        default = policy.get("default")
        if name in requested:
            amount = _rounded(nanos(requested[name]), policy, fractional=fractional)
        else:
            amount = nanos(default if default is not None else of["value"])
        is_default = default is not None and amount == nanos(default)
        if not is_default and not _is_valid(amount, policy, fractional=fractional):
            return None
        amounts[name] = amount
    return amounts


def nanos(text: str) -> int:
    """A quantity in billionths."""
    return Quantity.parse(text).nanos


def _rounded(amount: int, policy: Object, *, fractional: bool) -> int:
    if "validValues" in policy:
        values = [nanos(value) for value in policy["validValues"]]
        return min((value for value in values if value >= amount), default=amount)
    if "validRange" not in policy:
        return amount
    least, _, step, unit = _range(policy["validRange"], fractional=fractional)
    if amount < least:
        return least
    if step is None:
        return amount
    whole_steps = -(-(_up(amount, unit) - _up(least, unit)) // _up(step, unit))
    return _up(least, unit) * unit + whole_steps * _up(step, unit) * unit


def _is_valid(amount: int, policy: Object, *, fractional: bool) -> bool:
    if "validValues" in policy:
        return amount in [nanos(value) for value in policy["validValues"]]
    if "validRange" not in policy:
        return True
    least, most, step, unit = _range(policy["validRange"], fractional=fractional)
    if most is not None and amount > most:
        return False
    return step is None or (_up(amount, unit) - _up(least, unit)) % _up(step, unit) == 0


def _range(valid: Object, *, fractional: bool) -> tuple[int, int | None, int | None, int]:
    """The least, the most, the step, and the unit in which steps are counted."""
    least = nanos(valid["min"])
    most = nanos(valid["max"]) if "max" in valid else None
    step = nanos(valid["step"]) if "step" in valid else None
    return least, most, step, _MILLI if fractional else _UNIT


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit)
