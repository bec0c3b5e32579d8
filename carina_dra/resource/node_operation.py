"""What a kubelet need not do for a device (gate DRAOptionalNodeOperations)."""

from enum import StrEnum


class NodeOperation(StrEnum):
    """A call of the kubelet to the driver. One that is not known has no effect."""

    PREPARE = "NodePrepareResources"
    """To be left out only if the other one is too."""
    UNPREPARE = "NodeUnprepareResources"
    ALL = "*"
