"""What keeps a queue from giving back what others reclaim: disruption budgets, and dead nodes.

The groups that wait read of which queue a budget is. The names are in the Queue that owns the pods.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.api.condition import StatusCondition, desired_condition
from controller.engine.model.plan import Action, Plan
from controller.engine.model.pod import Evicting, Placed
from controller.engine.model.reason import NoVictims
from controller.engine.state.occupancy import Occupancy

GIVES_BACK: Final = "GivesBack"
"""The condition that holds if nothing keeps a queue from giving back what others reclaim."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Holdup:
    """What keeps a queue from giving back."""

    budgets: tuple[str, ...] = ()
    """The disruption budgets (`namespace/name`) that are spent, and guard what others reclaim."""
    nodes: tuple[str, ...] = ()
    """The nodes where pods that were deleted do not end."""


NO_HOLDUP: Final = Holdup()


def holdups(occupancy: Occupancy, plan: Plan) -> Mapping[str, Holdup]:
    """By queue: what keeps it from giving back. Queues that nothing keeps are left out."""
    guarded = _guarded(plan)
    budgets, nodes = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for key, hold in occupancy.holds.items():
        pod = occupancy.pods[key]
        match pod.state:
            case Evicting(stuck=True, lingers=False):
                nodes[hold.queue].add(hold.node)
            case Placed() if pod.budgets and hold.queue in guarded:
                spent = (name for name in pod.budgets if occupancy.budgets.get(name, 0) < 1)
                budgets[hold.queue].update(spent)
    return {
        queue: Holdup(tuple(sorted(budgets[queue])), tuple(sorted(nodes[queue])))
        for queue in sorted({*budgets, *nodes})
        if budgets[queue] or nodes[queue]
    }


def _guarded(plan: Plan) -> Collection[str]:
    """The queues of which budgets refuse what groups of other queues reclaim."""
    found = {
        queue
        for reasons in plan.waiting.values()
        for reason in reasons
        if isinstance(reason, NoVictims) and reason.action == Action.RECLAIM
        for queue in reason.guarded
    }
    for clocks in plan.memory.budget_refusals.values():
        found |= {giver for giver, clock in clocks.items() if clock.groups}
    return found


def gives_back(holdup: Holdup, generation: int) -> StatusCondition:
    """The condition of a queue, by what keeps it from giving back."""
    found = []
    if holdup.budgets:
        found.append(
            f"disruption budgets refuse evictions for other queues: {_some(holdup.budgets)}: let "
            "them allow evictions, or end their pods"
        )
    if holdup.nodes:
        found.append(
            f"pods that were deleted do not end on these nodes: {_some(holdup.nodes)}: see whether "
            "their kubelets answer; the queue is charged for the pods until they are gone"
        )
    reason = "BudgetsRefuse" if holdup.budgets else "PodsDoNotEnd" if holdup.nodes else "Free"
    return desired_condition(
        GIVES_BACK,
        holds=not found,
        reason=reason,
        message=". ".join(found) or "nothing keeps it from giving back what other queues reclaim",
        observed_generation=generation,
    )


def _some(names: Iterable[str]) -> str:
    known = list(names)
    shown = ", ".join(known[:_SHOWN])
    more = len(known) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
