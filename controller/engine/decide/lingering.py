"""Pods that are being deleted with a longer grace period than their queue's `evictionGrace`.

They count as running until another queue reclaims what they have, which shortens the grace period.
"""

from controller.engine.decide.eligibility import Eligibility
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.state.state import State


def hastened(
    state: State, eligibility: Eligibility, group: Group, node: str | None = None
) -> tuple[Pod, ...]:
    """A pod of a group, on a node or anywhere, that can be made to end sooner; or nothing."""
    for key in state.occupancy.lingering.get(group.key, ()):
        is_here = node is None or state.occupancy.holds[key].node == node
        if is_here and eligibility.can_hasten(state.occupancy.pods[key]):
            return (state.occupancy.pods[key],)
    return ()
