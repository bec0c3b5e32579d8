"""Device taints (KEP-5055), which prevent the allocation of devices with problems."""

from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.inventory.health import GpuProblems, in_order


def taints(problems: GpuProblems, driver: str) -> tuple[DeviceTaint, ...]:
    """Returns a taint `<driver>/<state>` for each problem.

    The effect is NoSchedule, not NoExecute: operators decide whether running pods are evicted, with
    a DeviceTaintRule.
    """
    return tuple(
        DeviceTaint(key=f"{driver}/{problem.state}", effect=TaintEffect.NO_SCHEDULE)
        for problem in in_order(problems)
    )
