"""How the GPUs of an inventory fare. `state` is the word for it that users see."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, assert_never

from kubelet_plugin.inventory.gpu import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Gpu,
    Inventory,
    NvmlFailure,
)

__all__ = ["Health", "Healthy", "Lost", "Unreadable", "gpu_health"]


@dataclass(frozen=True, slots=True)
class Healthy:
    """The GPU answers."""

    state: ClassVar[str] = "ready"


@dataclass(frozen=True, slots=True)
class Lost:
    """The GPU fell off the bus; nothing brings it back but a reset."""

    failure: NvmlFailure
    state: ClassVar[str] = "lost"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The GPU is there and did not answer when it was last asked."""

    failure: NvmlFailure
    state: ClassVar[str] = "unreadable"


Health: TypeAlias = Healthy | Lost | Unreadable


def gpu_health(inventory: Inventory) -> tuple[tuple[Gpu, Health], ...]:
    """Gives every GPU that is known, sorted by minor number: as it last answered, and its health.

    There are none without a driver.
    """
    match inventory:
        case DriverReady(gpus, lost, unreadable):
            known: list[tuple[Gpu, Health]] = [
                *((gpu, Healthy()) for gpu in gpus),
                *((silent.gpu, Lost(silent.failure)) for silent in lost),
                *((silent.gpu, Unreadable(silent.failure)) for silent in unreadable),
            ]
            return tuple(sorted(known, key=lambda pair: pair[0].minor))
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return ()
    assert_never(inventory)
