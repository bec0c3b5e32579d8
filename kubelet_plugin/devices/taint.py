"""Device taints (KEP-5055): what keeps a device with problems from being allocated."""

from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.inventory.health import Problems, in_order


def taints(problems: Problems, driver: str) -> tuple[DeviceTaint, ...]:
    """Gives a taint `<driver>/<state>` for each problem.

    NoSchedule, not NoExecute: whether pods that still run are evicted is the operators' decision,
    which a DeviceTaintRule of theirs can express.
    """
    return tuple(
        DeviceTaint(key=f"{driver}/{problem.state}", effect=TaintEffect.NO_SCHEDULE)
        for problem in in_order(problems)
    )
