"""The kinds of devices, by the names that the attribute `type` and the settings have for them."""

from enum import StrEnum
from typing import Final


class DeviceKind(StrEnum):
    """A way in which a GPU can be allocated."""

    GPU = "gpu"
    MIG = "mig"
    SHARE = "share"
    MONITOR = "monitor"


def parse_kinds(text: str) -> frozenset[DeviceKind]:
    """Reads the names of kinds, separated by commas.

    Raises:
        ValueError: there are none, or one is not the name of a kind.
    """
    kinds = ", ".join(DeviceKind)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in list(DeviceKind):
            raise ValueError(f"{name!r} is not a kind of device; write some of {kinds}")
    return frozenset(map(DeviceKind, names))


_NVIDIA: Final = "gpu.nvidia.com"


def default_kinds(driver: str) -> frozenset[DeviceKind]:
    """Returns the kinds that a driver publishes unless its settings say otherwise: whole GPUs.

    Each way to have a part of a GPU costs the scheduler time for all pods with devices, and is
    chosen per node. Monitors are there, because they are one device a GPU and take nothing from it.
    But users of NVIDIA's driver may select its devices by the driver's name alone, so under this
    name there are only kinds that its users know.
    """
    return frozenset(
        {DeviceKind.GPU} if driver == _NVIDIA else {DeviceKind.GPU, DeviceKind.MONITOR}
    )
