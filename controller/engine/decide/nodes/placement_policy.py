"""Which nodes and devices come first for a group."""

from carina_dra.allocator.preference import Policy
from controller.engine.model.group import Group
from controller.engine.state.state import State


def policy_of(state: State, group: Group) -> Policy:
    """The policy of a group: its own, or that of its queue or one above, or that of all."""
    return group.placement or state.occupancy.tree.placement(group.queue, state.settings.placement)
