"""What is known of the GPUs while a read of them does not return.

The GPUs are read one after the other, and the driver has locks for all of them. So none can be read
while a call hangs, and which of them makes it hang is not known.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import GpuUnreadable, NvmlHang, unanswered
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
)


def during_hang(inventory: Inventory, hang: NvmlHang, now: datetime) -> Inventory:
    """Returns the last inventory as it counts during a hang: no GPU of it can be read.

    A GPU that does not answer anyway keeps that problem. `now` is the time of the others'.
    """
    match inventory:
        case DriverReady(gpus):
            problem = GpuUnreadable(hang, now)
            return replace(inventory, gpus=tuple(_unreadable(gpu, problem) for gpu in gpus))
        case DriverMissing() | DriverUnusable() | DriverReplaced():
            return inventory
    assert_never(inventory)


def _unreadable(observed: ObservedGpu, problem: GpuUnreadable) -> ObservedGpu:
    if unanswered(observed.state.problems):
        return observed
    problems = observed.state.problems | {problem}
    return replace(observed, state=replace(observed.state, problems=problems))
