"""Device taints (KEP-5055), which prevent the allocation of devices with problems."""

from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.inventory.health import GpuProblems, in_order
from kubelet_plugin.inventory.held_mode import HeldMode, Switch


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
