"""How much of a device's capacities a request consumes (KEP-5075).

The rules and the integer limits are those of k8s.io/dynamic-resource-allocation v0.37.0,
`consumable_capacity.go`. A range counts in whole units. With the gate DRAFractionalCapacityRange it
counts in thousandths if its bounds and step are multiples of a thousandth.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    CapacityRange,
    CapacityRequestPolicy,
    CapacityRequirements,
    DeviceCapacity,
    ValidRange,
    ValidValues,
)

_INT64_MAX: Final = 2**63 - 1
_NANO: Final = 10**9
_NANOS_PER_MILLI: Final = 10**6


class CapacityError(AllocationError):
    """An amount is negative or out of the range of the arithmetic; the whole attempt fails."""


def consumed_capacity(
    capacity: Mapping[str, DeviceCapacity],
    requested: CapacityRequirements | None,
    *,
    fractional: bool,
) -> Mapping[str, Quantity] | None:
    """The amount that a request consumes of each capacity of a device, named in it or not.

    None if the device cannot serve the request: it lacks a requested capacity (names are compared
    as written), or its policy forbids the amount. `fractional` is the gate
    DRAFractionalCapacityRange.

    Raises:
        CapacityError: an amount is negative, or too large for the arithmetic of the range.
    """
    wanted = requested.requests if requested else {}
    if not wanted.keys() <= capacity.keys():
        return None
    amounts = {
        name: _rounded(name, wanted.get(name), device_capacity, fractional=fractional)
        for name, device_capacity in capacity.items()
    }
    for name, device_capacity in capacity.items():
        if _is_forbidden(amounts[name], device_capacity.request_policy, fractional=fractional):
            return None
    return amounts


def fits(
    amounts: Mapping[str, Quantity],
    capacity: Mapping[str, DeviceCapacity],
    *in_use: Mapping[str, int],
) -> bool:
    """Whether the device has room for the amounts; `in_use` are amounts in billionths."""
    return all(
        amount.nanos + sum(used.get(name, 0) for used in in_use) <= capacity[name].value.nanos
        for name, amount in amounts.items()
    )


def _rounded(
    name: str, wanted: Quantity | None, capacity: DeviceCapacity, *, fractional: bool
) -> Quantity:
    policy = capacity.request_policy
    if wanted is None:
        amount = policy.default if policy and policy.default is not None else capacity.value
    else:
        amount = wanted
        match policy.valid if policy else None:
            case ValidRange(range=valid):
                amount = _rounded_in_range(name, wanted, valid, fractional=fractional)
            case ValidValues(values=values):
                amount = next((value for value in values if wanted <= value), wanted)
            case None:
                pass
    if amount.nanos < 0:
        raise CapacityError(f'capacity "{name}": capacity value is negative')
    return amount


def _rounded_in_range(
    name: str, wanted: Quantity, valid: CapacityRange, *, fractional: bool
) -> Quantity:
    if wanted < valid.min:
        return valid.min
    if valid.step is None:
        return wanted
    unit = _unit(valid, fractional=fractional)
    if unit == _NANOS_PER_MILLI and not _is_milli(wanted):
        raise _not_countable(name, f"request {wanted} is not a representable milli value")
    if wanted.nanos > _INT64_MAX * unit:
        raise _not_countable(name, f"request {wanted} exceeds MaxInt64")
    least, step = _count(valid.min, unit), _count(valid.step, unit)
    if step <= 0:
        raise _not_countable(name, f"the step {valid.step} is not positive")
    steps = -((least - _count(wanted, unit)) // step)
    rounded = least + step * steps
    if rounded > _INT64_MAX:
        raise _not_countable(name, f"request {wanted}, rounded up to the next step, is too large")
    return Quantity(rounded * unit, valid.step.format)


def _is_forbidden(
    amount: Quantity, policy: CapacityRequestPolicy | None, *, fractional: bool
) -> bool:
    if policy is None or amount == policy.default:
        return False
    match policy.valid:
        case ValidRange(range=valid):
            return _is_outside(amount, valid, fractional=fractional)
        case ValidValues(values=values):
            return bool(values) and amount not in values
        case None:
            return False
    assert_never(policy.valid)


def _is_outside(amount: Quantity, valid: CapacityRange, *, fractional: bool) -> bool:
    if valid.max is not None and amount > valid.max:
        return True
    if valid.step is None:
        return False
    unit = _unit(valid, fractional=fractional)
    if unit == _NANOS_PER_MILLI and not _is_milli(amount):
        return True
    step = _count(valid.step, unit)
    return step <= 0 or (_count(amount, unit) - _count(valid.min, unit)) % step != 0


def _unit(valid: CapacityRange, *, fractional: bool) -> int:
    """The unit in which the range counts, in billionths."""
    bounds = (valid.min, valid.max, valid.step)
    in_milli = fractional and all(bound is None or _is_milli(bound) for bound in bounds)
    if in_milli and valid.step is not None and valid.step.nanos >= _NANOS_PER_MILLI:
        return _NANOS_PER_MILLI
    return _NANO


def _is_milli(quantity: Quantity) -> bool:
    milli, rest = divmod(quantity.nanos, _NANOS_PER_MILLI)
    return rest == 0 and abs(milli) <= _INT64_MAX


def _count(quantity: Quantity, unit: int) -> int:
    return quantity.value() if unit == _NANO else quantity.milli_value()


def _not_countable(name: str, reason: str) -> CapacityError:
    return CapacityError(
        f'capacity "{name}": capacity request cannot be represented in the device\'s range '
        f"arithmetic: {reason}"
    )
