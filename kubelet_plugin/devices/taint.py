"""Device taints (KEP-5055), which prevent the allocation of devices with problems."""

from collections.abc import Collection

from carina_dra.node_keys import NodeKeys
from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.inventory.compute_mode import COMPUTE_MODE, ComputeMode
from kubelet_plugin.inventory.health import GpuProblems, in_order
from kubelet_plugin.inventory.held_mode import HeldMode, Switch


def released_taint(driver: str) -> DeviceTaint:
    """Returns the taint of all devices of a node whose GPUs are released."""
    return DeviceTaint(key=NodeKeys(driver).released_taint, effect=TaintEffect.NO_SCHEDULE)


def taints(problems: GpuProblems, driver: str) -> tuple[DeviceTaint, ...]:
    """Returns a taint `<driver>/<state>` for each problem.

    The effect is NoSchedule, not NoExecute: operators decide whether running pods are evicted, with
    a DeviceTaintRule.
    """
    return tuple(
        DeviceTaint(key=f"{driver}/{problem.state}", effect=TaintEffect.NO_SCHEDULE)
        for problem in in_order(problems)
    )


def held_mode_taints(held: HeldMode | None, needed: Switch, driver: str) -> tuple[DeviceTaint, ...]:
    """Returns the taint of a device for which MIG mode cannot be switched as it is needed.

    Its effect is NoSchedule: claims that are prepared keep what they have.
    """
    if held is None or held.switch is not needed:
        return ()
    key = f"{driver}/{held.state}"
    return (DeviceTaint(key=key, effect=TaintEffect.NO_SCHEDULE, value=held.failure.code),)


def compute_mode_taints(
    mode: ComputeMode, prevents: Collection[ComputeMode], driver: str
) -> tuple[DeviceTaint, ...]:
    """Returns the taint of a device that cannot be used in these compute modes of its GPU.

    Its effect is NoSchedule: containers that compute already are not disturbed.
    """
    if mode not in prevents:
        return ()
    key = f"{driver}/{COMPUTE_MODE}"
    return (DeviceTaint(key=key, effect=TaintEffect.NO_SCHEDULE, value=mode.value),)
