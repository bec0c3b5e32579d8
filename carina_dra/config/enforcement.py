"""How firmly the limits of a share are enforced: levels, in ascending order.

A device has a level for its memory and one for its cores; a class or a claim may demand least
levels.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

MemoryEnforcement: TypeAlias = Literal["none", "mps", "kernel"]
"""What keeps a container within its memory: nothing, the CUDA MPS server, or the kernel driver."""
CoreEnforcement: TypeAlias = Literal["none", "time-slice", "mps"]
"""What keeps a container within its cores: nothing; the driver, which gives the processes that
compute on a GPU equal time slices, whatever the percentages; or the CUDA MPS server."""

_MEMORY: Final[tuple[MemoryEnforcement, ...]] = ("none", "mps", "kernel")
_CORES: Final[tuple[CoreEnforcement, ...]] = ("none", "time-slice", "mps")


def memory_suffices(available: MemoryEnforcement, demanded: MemoryEnforcement) -> bool:
    """Returns whether the available level is the demanded one or a higher one."""
    return _MEMORY.index(available) >= _MEMORY.index(demanded)


def cores_suffice(available: CoreEnforcement, demanded: CoreEnforcement) -> bool:
    """Returns whether the available level is the demanded one or a higher one."""
    return _CORES.index(available) >= _CORES.index(demanded)


def highest_memory(levels: Iterable[MemoryEnforcement]) -> MemoryEnforcement:
    """Returns the highest of at least one level."""
    return max(levels, key=_MEMORY.index)


def highest_cores(levels: Iterable[CoreEnforcement]) -> CoreEnforcement:
    """Returns the highest of at least one level."""
    return max(levels, key=_CORES.index)
