"""The place of groups in their queues, for Events."""

from collections.abc import Mapping
from typing import Final

from controller.engine.explain import Turn, turns_in
from controller.engine.state.state import State

_NEW_AFTER: Final = 10.0
"""Seconds after which the places in a queue are computed again: thousands of groups may wait."""
_OF_NEW_GROUPS: Final = 1.0
"""Seconds after which they are computed again for a group that has none yet."""


class PlacesInQueues:
    """Remembers the places in each queue for a while."""

    def __init__(self) -> None:
        self._of_queue: dict[str, tuple[float, Mapping[str, Turn]]] = {}

    def of(self, state: State, key: str, now: float) -> Turn | None:
        """The place of a group; None if it does not wait. `now` is of any steady clock."""
        group = state.occupancy.groups.get(key)
        if group is None:
            return None
        known = self._of_queue.get(group.queue)
        if known is not None:
            age, turn = now - known[0], known[1].get(key)
            if age < (_OF_NEW_GROUPS if turn is None else _NEW_AFTER):
                return turn
        turns = turns_in(state, group.queue)
        self._of_queue[group.queue] = now, turns
        return turns.get(key)

    def keep(self, state: State) -> None:
        """Forgets queues that are gone."""
        for queue in self._of_queue.keys() - state.occupancy.tree.queues.keys():
            del self._of_queue[queue]
