"""A device that its driver has tainted while a pod has it."""

from dataclasses import dataclass
from enum import StrEnum


class TaintTolerance(StrEnum):
    """What the claim of a pod says to the taint of a device that it has."""

    NONE = "none"
    """It does not tolerate the taint: the device was given to it before."""
    TOLERATES = "tolerates"
    """It tolerates the taint, which came after it got the device."""
    STARTED_WITH = "started-with"
    """It tolerates the taint, and got the device although it was tainted already."""


@dataclass(frozen=True, slots=True)
class FailedDevice:
    """A device of a running pod that nobody else would get, since its driver has tainted it."""

    pod: str
    """`namespace/name`."""
    node: str
    device: str
    """`driver/pool/device`."""
    taint: str
    """`key=value:effect`."""
    tolerance: TaintTolerance = TaintTolerance.NONE

    def __str__(self) -> str:
        name = self.pod.rpartition("/")[2]
        return f"pod {name} on node {self.node}: device {self.device} has the taint {self.taint}"
