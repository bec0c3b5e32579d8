"""Evicts a group as a whole, as far as disruption budgets allow."""

from collections import Counter

from controller.engine.decide.gangs.placement_unit import active_pods, has_active
from controller.engine.decide.gangs.trial import Trial
from controller.engine.model.group import Group, is_satisfied
from controller.engine.model.plan import Action
from controller.engine.model.pod import Placed


def turn_to_leave(group: Group) -> tuple[bool, int, float, str]:
    """The order in which groups leave: those that are preemptible, of low priority, young first."""
    return not group.preemptible, group.priority, -group.created, group.key


def evict_whole(trial: Trial, group: Group, action: Action) -> int:
    """Evicts the pods of a group that may be disrupted; how many.

    None if it would keep less than it needs: such a part is of no use, and holds its devices.
    """
    state = trial.state
    if not has_active(state.occupancy, group.key):
        return 0
    pods = [pod for pod in active_pods(state.occupancy, group.key) if isinstance(pod.state, Placed)]
    mark = state.occupancy.mark()
    gone, stay = [], Counter[str]()
    for pod in pods:
        if state.occupancy.disrupt(pod):
            gone.append(pod)
        else:
            stay[pod.pod_set] += 1
    had_minimum = is_satisfied(group.root, Counter(pod.pod_set for pod in pods))
    if stay and had_minimum and not is_satisfied(group.root, stay):
        state.occupancy.rollback(mark)
        return 0
    for pod in gone:
        trial.evict(pod, action, group.key)
    return len(gone)
