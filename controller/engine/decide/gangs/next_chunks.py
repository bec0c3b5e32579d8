"""What of groups is placed next, remembered while their pods stay, since each action asks for it.

This buys the row "a pod ended, with 100 groups that wait".
"""

from dataclasses import dataclass

from controller.engine.decide.gangs.placement_unit import PlacementUnit, next_chunk
from controller.engine.model.group import Group
from controller.engine.model.reason import TooFewPods
from controller.engine.model.resource import Amounts
from controller.engine.state.occupancy import Occupancy


@dataclass(slots=True)
class _Known:
    moment: int
    """That of the pods of the group."""
    chunk: PlacementUnit | TooFewPods | None
    asked: Amounts | None
    """What it asks for; None if that depends on pods of other groups, or is not known yet."""


class NextChunks:
    """Remembers for one cycle, in which groups and claims stay the same."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._known: dict[str, _Known] = {}

    def of(self, group: Group) -> PlacementUnit | TooFewPods | None:
        """What is placed next of a group; see `next_chunk`."""
        return self._of(group).chunk

    def asked(self, group: Group) -> Amounts:
        """What that asks for; nothing if nothing can be placed."""
        known = self._of(group)
        if known.asked is not None:
            return known.asked
        occupancy, chunk = self._occupancy, known.chunk
        if not isinstance(chunk, PlacementUnit):
            return occupancy.accounts.zero
        pods = list(chunk.all_pods())
        asked = occupancy.asked_by(pods)
        if all(occupancy.referrers(claim) == 1 for pod in pods for claim in pod.claims):
            known.asked = asked
        return asked

    def _of(self, group: Group) -> _Known:
        members = self._occupancy.members.get(group.key)
        moment = -1 if members is None else members.moment
        known = self._known.get(group.key)
        if known is None or known.moment != moment:
            known = _Known(moment, next_chunk(self._occupancy, group), None)
            self._known[group.key] = known
        return known
