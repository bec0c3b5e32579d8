"""Gives evicted pods of a group another place in the same plan."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from controller.engine.decide.gangs.assigner import Assigner
from controller.engine.decide.gangs.gang import Gang, Take, wait_together
from controller.engine.decide.gangs.order import asked_by
from controller.engine.decide.gangs.placement_unit import PlacementUnit, is_satisfied, next_chunk
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.queues.capacity import refusal
from controller.engine.model.group import Group
from controller.engine.model.pod import Pod
from controller.engine.model.reason import NoRoom


def move(
    trial: Trial,
    group: Group,
    evicted: AbstractSet[str],
    *,
    all_pods: bool,
    take: Take | None = None,
) -> bool:
    """Places evicted pods of a group again, with its minimum at once; `take` says where.

    It returns false, and moves none, if its minimum has no place, or (`all_pods`) one of the pods.
    """
    state = trial.state
    if not state.occupancy.tree.takes_work(group.queue):
        return False  # its pods could not start again
    if not group.moves and not evicted.isdisjoint(trial.evictions):
        return False  # nobody replaces its pods
    mark = state.occupancy.mark()
    if take is None:
        take = Assigner(trial, policy_of(state, group), _nobody_asks).take
    gang = Gang(trial, take)
    moved = 0
    while isinstance(chunk := next_chunk(state.occupancy, group, evicted), PlacementUnit):
        asked = asked_by(state.occupancy, chunk)
        if refusal(state.occupancy, group.queue, asked, preemptible=group.preemptible) is not None:
            break
        taken = gang.place(chunk)
        if not isinstance(taken, Sequence):
            break
        for placed in taken:
            if trial.is_evicted(placed.pod):
                trial.wait(placed.pod)  # until it has left its own place
        wait_together(trial, group, taken)
        moved += len(taken)
    if (all_pods and moved < len(evicted)) or not is_satisfied(state.occupancy, group):
        state.occupancy.rollback(mark)
        return False
    return True


def _nobody_asks(pod: Pod, _: frozenset[str] | None) -> NoRoom:
    return NoRoom(pod.key, 0, ())
