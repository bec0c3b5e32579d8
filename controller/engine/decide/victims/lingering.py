"""Pods that are being deleted with a longer grace period than their queue's `evictionGrace`.

They count as running until another queue reclaims what they have, which shortens the grace period.
"""

from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.state.occupancy import Occupancy


def hastened(
    occupancy: Occupancy, eligibility: Eligibility, group: Group, node: str | None = None
) -> tuple[Pod, ...]:
    """A pod of a group, on a node or anywhere, that can be made to end sooner; or nothing."""
    for key in occupancy.lingering.get(group.key, ()):
        is_here = node is None or occupancy.holds[key].node == node
        if is_here and eligibility.can_hasten(occupancy.pods[key]):
            return (occupancy.pods[key],)
    return ()
