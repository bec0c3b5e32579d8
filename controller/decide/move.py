"""Gives evicted pods of a group another place in the same plan."""

from collections.abc import Sequence

from carina_dra.allocator.preference import Policy
from controller.decide.allocation import Taker
from controller.decide.chunk import Chunk, is_satisfied, next_chunk
from controller.decide.gang import Gang
from controller.decide.trial import Trial
from controller.model.group import Group


def move(trial: Trial, group: Group, policy: Policy, *, all_pods: bool) -> bool:
    """Places the evicted pods of a group again, with its minimum at once.

    It returns false, and moves none, if its minimum has no place, or (`all_pods`) one of the pods.
    """
    state = trial.state
    evicted = {
        key
        for of in state.members[group.key].by_set.values()
        for key in of
        if key in trial.evictions and key not in state.holds
    }
    mark = state.mark()
    gang = Gang(trial, Taker(trial, policy).take)
    moved = set[str]()
    while isinstance(chunk := next_chunk(state, group, evicted), Chunk):
        taken = gang.place(chunk)
        if not isinstance(taken, Sequence):
            break
        for one in taken:
            trial.wait(one.pod)
            moved.add(one.pod.key)
    if (all_pods and len(moved) < len(evicted)) or not is_satisfied(state, group):
        state.rollback(mark)
        return False
    return True
