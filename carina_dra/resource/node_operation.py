"""Calls that the kubelet can omit for a device (feature gate DRAOptionalNodeOperations)."""

from enum import StrEnum


class NodeOperation(StrEnum):
    """A call of the kubelet to the driver. An unrecognized one has no effect."""

    PREPARE = "NodePrepareResources"
    """Omitted only together with UNPREPARE."""
    UNPREPARE = "NodeUnprepareResources"
    ALL = "*"
