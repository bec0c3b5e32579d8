"""Gives pods places where there is room."""

from collections.abc import Callable, Container
from typing import TypeAlias

from carina_dra.allocator.preference import Policy
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.model.pod import Pod
from controller.engine.model.reason import Reason

Why: TypeAlias = Callable[[Pod, frozenset[str] | None], Reason]


class Assigner:
    """Gives a pod a place where there is one."""

    def __init__(self, trial: Trial, policy: Policy, why: Why | None = None) -> None:
        """`why` says why there is none, which takes a look at every node unless it is given."""
        self._trial = trial
        self._policy = policy
        self._why = why or trial.places.why_not

    def take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        """Gives a pod the best place within some nodes, avoiding others."""
        place = self._trial.places.find(pod, self._policy, within, avoided)
        if isinstance(place, Place):
            self._trial.take(pod, place)
            return place
        return place or self._why(pod, within)
