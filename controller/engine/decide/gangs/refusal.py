"""What follows for a group from what kube-scheduler has refused of it."""

from controller.engine.decide.gangs.placement_unit import has_active, is_satisfied
from controller.engine.model.group import Group
from controller.engine.model.reason import RefusedByScheduler
from controller.engine.state.occupancy import Occupancy


def scheduler_reason(group: Group) -> RefusedByScheduler | None:
    """Why kube-scheduler has refused a group, if it has."""
    return None if group.refusal is None else RefusedByScheduler(group.refusal.words)


def held_by_refusal(occupancy: Occupancy, group: Group) -> RefusedByScheduler | None:
    """Why nothing more of a group is tried: it waits, or its minimum is being tried."""
    if group.refusal is None:
        return None
    if group.refusal.holds or (has_active(occupancy, group.key) and is_satisfied(occupancy, group)):
        return scheduler_reason(group)
    return None


def evicts_none_by_refusal(group: Group) -> RefusedByScheduler | None:
    """Why nobody is evicted for a group that kube-scheduler would refuse again."""
    if group.refusal is None or (group.refusal.evicts and not group.refusal.holds):
        return None
    return scheduler_reason(group)
