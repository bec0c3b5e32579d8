"""What is set in an MPS control daemon, and whether what it says is that.

The commands are those of version 2 of MPS (NVIDIA Multi-Process Service, appendix "Tools and
Interface Reference", nvidia-cuda-mps-control). A default applies to servers that start later.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from carina_dra.sharing.message import WantedDaemon

_MEMORY: Final = re.compile(
    r"(?P<amount>\d{1,15}(\.\d{1,9})?)\s*(?P<prefix>[KMGT]?)(i?B)?", re.IGNORECASE
)
_BYTES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PERCENTAGE: Final = re.compile(r"(\d{1,3}(\.\d{1,9})?)\s*%?")
_SHOWN: Final = 100
"""Characters of an answer that a message shows."""


@dataclass(frozen=True, slots=True)
class MpsMemoryLimit:
    """The memory that each client process can have of a device."""

    device: int
    """The number of the device in the order of CUDA, which is that of CUDA_VISIBLE_DEVICES."""
    mib: int

    @property
    def set_command(self) -> str:
        return f"set_default_device_pinned_mem_limit {self.device} {self.mib}M"

    @property
    def get_command(self) -> str:
        return f"get_default_device_pinned_mem_limit {self.device}"

    def problem(self, answer: str) -> str | None:
        """Returns why this is not in force, by the answer to `get_command`; None if it is.

        Drivers round the answer down to a whole number of its unit, and say limits of 1 GiB and
        more in GiB.
        """
        said = _MEMORY.fullmatch(answer.strip())
        if said is not None:
            unit = _BYTES[said["prefix"].upper()]
            if 0 <= self.mib * 2**20 - float(said["amount"]) * unit < max(unit, 2**20):
                return None
        return (
            f"the memory limit of device {self.device} was set to {self.mib}M, and the daemon says "
            f"{_shown(answer)}"
        )


@dataclass(frozen=True, slots=True)
class MpsThreadPercentage:
    """The part of the multiprocessors that each client process can use at most."""

    percent: int

    @property
    def set_command(self) -> str:
        return f"set_default_active_thread_percentage {self.percent}"

    @property
    def get_command(self) -> str:
        return "get_default_active_thread_percentage"

    def problem(self, answer: str) -> str | None:
        """As that of a memory limit."""
        said = _PERCENTAGE.fullmatch(answer.strip())
        if said is not None and abs(float(said[1]) - self.percent) < 1:
            return None
        return (
            f"the active thread percentage was set to {self.percent}, and the daemon says "
            f"{_shown(answer)}"
        )


MpsSetting: TypeAlias = MpsMemoryLimit | MpsThreadPercentage


def settings(wanted: WantedDaemon) -> Iterator[MpsSetting]:
    """Yields what is to be set in a daemon before its first client."""
    for number, device in enumerate(wanted.devices):
        if device.memory_mib is not None:
            yield MpsMemoryLimit(number, device.memory_mib)
    if wanted.thread_percentage is not None:
        yield MpsThreadPercentage(wanted.thread_percentage)


def _shown(answer: str) -> str:
    return repr(" ".join(answer.split())[:_SHOWN])
