"""Durations as Go writes them (`1h30m`), and amounts of resources as Kubernetes quantities."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Final, TypeAlias, assert_never

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.quantity import Quantity
from carina_dra.resource.errors import BadValueError, expected
from carina_dra.resource.value_codec import LEAVES, Codec
from controller.engine.files.checked import Checked
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    write_amount,
)

_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,3})?")
_PART: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ms|h|m|s)")
_DURATION: Final = re.compile(r"([0-9]{1,18}(\.[0-9]{1,18})?(ms|h|m|s))+")
_SECONDS: Final[Mapping[str, Decimal]] = {
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}


def read_duration(value: object) -> float:
    """Seconds, from a number of them or from a text such as `1h30m`, `45s` or `0.5h`.

    Raises:
        BadValueError: the value is neither, or negative.
    """
    if type(value) in (int, float) and 0 <= value < 1e12:  # type: ignore[operator] # a number
        return float(value)  # type: ignore[arg-type] # the same
    if type(value) is str and _DURATION.fullmatch(value):
        return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(value)))
    raise expected("a duration such as 1h30m, 45s or 500ms", value)


def write_duration(seconds: float) -> str:
    """The text of a duration, which `read_duration` reads as the same number."""
    whole, rest = divmod(Decimal(repr(float(seconds))), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [(f"{hours}", "h"), (f"{minutes}", "m"), (f"{rest.normalize():f}", "s")]
    return "".join(f"{number}{unit}" for number, unit in parts if number != "0") or "0s"


DURATION: Final = Checked(
    read_duration,
    write_duration,
    {"type": "string", "pattern": f"^({_DURATION.pattern})$", "maxLength": 64},
)
"""Files may also have a number of seconds."""
Seconds: TypeAlias = Annotated[float, DURATION]
"""Seconds, written as `1h30m`."""


def read_amount(resource: Resource, value: object) -> int:
    """An amount of a resource in its units, from a quantity such as `8`, `640Gi` or `500m`.

    As in Kubernetes, fractions of a milli-CPU and of a byte are rounded up.

    Raises:
        BadValueError: the value is no quantity, or negative; or it is not a plain whole number
            although devices or pods are counted.
    """
    quantity: Quantity = LEAVES[Quantity].read(value)
    if quantity.nanos < 0:
        raise BadValueError(f"is {value!r:.80}; it must not be negative")
    match resource:
        case Gpus():
            if quantity.nanos % 10**6 or (type(value) is str and not _NUMBER.fullmatch(value)):
                raise BadValueError(
                    f"is {value!r:.80}; write a number such as 8 or 0.5, of at most 3 decimals"
                )
            return quantity.nanos // 10**6 * (GPU // 1000)
        case Cpu():
            return quantity.milli_value()
        case Memory() | CapacityOf():
            return quantity.value()
        case DevicesOf() | Pods():
            if quantity.nanos % 10**9 or (type(value) is str and not value.isdecimal()):
                raise BadValueError(f"is {value!r:.80}; write a whole number without a unit")
            return quantity.value()
    assert_never(resource)


def _of(resource: Resource) -> Codec:
    return Codec(
        lambda value: read_amount(resource, value), lambda amount: write_amount(resource, amount)
    )


MilliCpu: TypeAlias = Annotated[int, _of(Cpu())]
"""Milli-CPU, written as `500m` or `8`."""
Bytes: TypeAlias = Annotated[int, _of(Memory())]
"""Bytes, written as `64Gi`."""
