"""A call of NVML that did not succeed."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """An NVML call that did not succeed."""

    function: str
    """The C symbol, e.g. "nvmlDeviceGetMemoryInfo"."""
    code: str
    """The constant's name, e.g. "NVML_ERROR_UNKNOWN"."""

    def __str__(self) -> str:
        return f"{self.function} returned {self.code}"

    @property
    def reason(self) -> str:
        """The code as the value of a taint, which is that of a label."""
        return re.sub(r"[^A-Za-z0-9_.]", "-", self.code)
