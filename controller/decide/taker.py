"""Gives pods places where there is room."""

from collections.abc import Container

from carina_dra.allocator.preference import Policy
from controller.decide.places import Place
from controller.decide.trial import Trial
from controller.model.pod import Pod
from controller.model.reason import BadClaim, NoRoom, Reason


class Taker:
    """Gives a pod a place where there is one."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self._trial = trial
        self._policy = policy

    def take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        """Gives a pod the best place within some nodes, avoiding others."""
        return self._take(pod, within, avoided) or self._trial.places.why_not(pod, within)

    def take_or_not(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        """As `take`, but does not look at each node for the reason why it has no place."""
        return self._take(pod, within, avoided) or NoRoom(pod.key, 0, ())

    def _take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | BadClaim | None:
        place = self._trial.places.find(pod, self._policy, within, avoided)
        if isinstance(place, Place):
            self._trial.take(pod, place)
        return place
