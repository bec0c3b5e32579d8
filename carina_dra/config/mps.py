"""What each client process of an MPS daemon can have of its devices, as a configuration says it.

The fields and their rules are those of NVIDIA's DRA driver (`MpsConfig` of
resource.nvidia.com/v1beta1): memory is in whole MiB, and the limit of a device replaces the
default.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from carina_dra.quantity import Quantity, QuantityError

_MIB: Final = 2**20
_MOST: Final = 2**63 - 1
"""Bytes, the largest that NVIDIA's driver reads."""
_LEAST: Final = "1Mi"
_REMEDY: Final = f"write a quantity of at least {_LEAST}, such as 10Gi"
_SHOWN: Final = 4
"""UUIDs in a message."""
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


class MpsDeviceError(ValueError):
    """A key of the limits by device is neither an index nor a UUID of the devices: names it."""


def mebibytes(written: object) -> int:
    """Reads a limit of memory: a quantity or a number of bytes; returns whole MiB, rounded down.

    Raises:
        ValueError: it is none, or less than a MiB.
    """
    if not isinstance(written, str | int):
        raise ValueError(_REMEDY)  # noqa: TRY004 - pydantic reports it with the field
    try:
        quantity = Quantity.parse(written) if isinstance(written, str) else Quantity.of(written)
    except QuantityError:
        raise ValueError(_REMEDY) from None
    if quantity.nanos < Quantity.of(_MIB).nanos:
        raise ValueError(_REMEDY)
    return min(quantity.value(), _MOST) // _MIB


PinnedMemory: TypeAlias = Annotated[
    int,
    BeforeValidator(mebibytes),
    PlainSerializer(lambda mib: f"{mib}Mi"),
    WithJsonSchema({"type": "quantity", "minimum": _MIB, "x-remedy": _REMEDY}),
]
"""In MiB; written as a quantity."""


class MpsLimits(BaseModel):
    """What each process can have at most that computes through the MPS daemon of the claim."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    defaultActiveThreadPercentage: int | None = Field(  # noqa: N815 - the API's name
        default=None, ge=1, le=100
    )
    """Of the multiprocessors of each device; without it, all."""
    defaultPinnedDeviceMemoryLimit: PinnedMemory | None = None  # noqa: N815 - the API's name
    """Memory of each device; without it, all."""
    defaultPerDevicePinnedMemoryLimit: dict[str, PinnedMemory] | None = None  # noqa: N815 - the API's name
    """Memory of single devices, by the index among the sorted UUIDs or by the UUID."""


def limits_of(config: MpsLimits, uuids: Sequence[str]) -> Mapping[str, int | None]:
    """Returns the memory in MiB that a process can have of each device, by UUID; None for all.

    Indices are those of the sorted UUIDs. A limit by UUID counts more than one by index.

    Raises:
        MpsDeviceError: a limit is for none of the devices.
    """
    ordered = sorted(uuids)
    limits: dict[str, int | None] = dict.fromkeys(ordered, config.defaultPinnedDeviceMemoryLimit)
    by_device = (config.defaultPerDevicePinnedMemoryLimit or {}).items()
    for key, mib in sorted(by_device, key=lambda limit: limit[0] in limits):
        limits[key if key in limits else _at(key, ordered)] = mib
    return limits


def _at(key: str, ordered: Sequence[str]) -> str:
    index = int(key) if _INDEX.fullmatch(key) else -1
    if not 0 <= index < len(ordered):
        shown = key if key.isprintable() else repr(key)
        raise MpsDeviceError(
            f"defaultPerDevicePinnedMemoryLimit has {shown[:60]}, which is no device that the "
            f"configuration is for; write an index from 0 to {len(ordered) - 1}, or a UUID of "
            f"{', '.join(ordered[:_SHOWN])}{', ...' if len(ordered) > _SHOWN else ''}"
        )
    return ordered[index]
