"""GPUs that device plugins serve: extended resources that pods ask for by name."""

from collections.abc import Iterable
from typing import Final

_COUNTED: Final = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
_PARTITIONS: Final = "nvidia.com/mig-"
_OF_GPUS: Final = (
    "nvidia.com/gpu",
    _PARTITIONS,
    "nvidia.com/vgpu",
    "volcano.sh/gpu-",
    "volcano.sh/vgpu-",
    "aliyun.com/gpu-",
    "tencent.com/vcuda-",
)
"""Beginnings of the names of extended resources of GPUs."""


def plugin_gpus(extended: Iterable[tuple[str, int]]) -> int:
    """How many GPUs are asked for, or served: of a partition or a share nobody says its size, so
    that it counts as a whole one."""
    return sum(
        amount for name, amount in extended if name in _COUNTED or name.startswith(_PARTITIONS)
    )


def has_plugin_gpus(extended: Iterable[tuple[str, int]]) -> bool:
    """Whether something of GPUs is asked for, counted or not."""
    return any(amount > 0 and name.startswith(_OF_GPUS) for name, amount in extended)
