"""Reservations of groups that wait for room, which smaller work must not delay (backfill).

The first group of a queue that waits for room may hold one. It says when there will be room, by the
run times that groups declare. Others start before it only if they have ended by then, if there is
room for it beside them, or if it may preempt them. Who runs for longer than it said is expected to
end no more.
"""

from collections.abc import Hashable

from carina_dra.step_budget import OutOfStepsError
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.overrun import Overruns
from controller.engine.decide.starts.expected_room import ExpectedPlaces, ExpectedRoom
from controller.engine.model.group import Group
from controller.engine.model.reason import Behind


class Reservations:
    """The reservations that are held in a cycle."""

    def __init__(self, trial: Trial, isolation: Isolation) -> None:
        self._trial = trial
        self._state = state = trial.state
        self.held: dict[str, float] = {
            key: at
            for key, at in sorted(state.memory.reservations.items())
            if key in state.waiting
            and key in state.occupancy.groups
            and self._may_hold(state.occupancy.groups[key])
        }
        """By group: when there is room for it, as a Unix time."""
        self.overruns = Overruns(state)
        self._delayed: dict[str, None] = {}
        self._room = ExpectedRoom(trial, isolation, self.overruns)
        self._expected: dict[str, ExpectedPlaces] = {}
        """By group: where it would have its places, found when there was less room than now."""
        self._given_up: set[str] = set()
        """The groups of which it would cost too much to find out whether others delay them."""

    def consider(self, group: Group) -> None:
        """Lets a group hold a reservation that has no room, if it is the first of its queue."""
        self.end(group)  # what it knew of the others may have changed
        if not self._may_hold(group):
            return
        groups, memory = self._state.occupancy.groups, self._state.memory
        rivals = [key for key in self.held if groups[key].queue == group.queue]
        if any(groups[key].priority >= group.priority for key in rivals):
            return
        expected = self._room.earliest(group)
        if expected is None:
            if group.key in memory.reservations or group.key in memory.delayed:
                self._state.occupancy.journal.put(self._delayed, group.key, None)
        else:
            for key in rivals:
                self._state.occupancy.journal.drop(self.held, key)
            self._expected[group.key] = expected
            self._state.occupancy.journal.put(self.held, group.key, expected.at)

    def end(self, group: Group) -> None:
        """Ends the reservation of a group that has its place, or waits for other things than room.

        Nobody may be kept from starting by a group that could not start itself.
        """
        if group.key in self.held:
            self._state.occupancy.journal.drop(self.held, group.key)

    @property
    def delayed(self) -> tuple[str, ...]:
        """The groups that wait and have lost their reservation to groups that overrun."""
        if not self.overruns.are_any:
            return ()
        waiting = self._state.waiting
        known = {key for key in self._state.memory.delayed if key in waiting}
        return tuple(sorted((known | self._delayed.keys()) - self.held.keys()))

    @property
    def wake(self) -> float | None:
        """When time alone changes which run times are believed."""
        return self.overruns.wake if self.held else None

    @property
    def have_changed(self) -> bool:
        """Whether other reservations are held now than at the end of the last cycle."""
        return self.held != self._state.memory.reservations

    def delayed_by(self, group: Group) -> Behind | None:
        """Which group with a reservation would start later, now that this one has a place.

        One that holds a reservation itself gives way to earlier ones only: two would wait for each
        other otherwise.
        """
        own = self.held.get(group.key)
        for key, at in tuple(self.held.items()):
            if own is not None and (own, group.key) <= (at, key):
                continue
            first = self._state.occupancy.groups[key]
            if group.queue == first.queue and group.priority > first.priority:
                continue  # it comes before the group in their queue
            is_believed = self.overruns.is_believed(group)
            ends = (
                group.run_time is not None
                and self._state.now + group.run_time <= at
                and is_believed
            )
            gives_way = (
                group.preemptible
                and group.queue == first.queue
                and group.priority < first.priority
                and first.preempts
            )
            stays = None if is_believed else group.key
            if not ends and not gives_way and not self._leaves_room(group, first, at, stays):
                return Behind(key)
        return None

    def rank(self, group: Group) -> Hashable:
        """Equal for groups that would delay the same reservations, if they had the same places."""
        return (
            tuple(self.held.items()),
            group.key if group.key in self.held else None,
            group.queue,
            group.priority,
            group.preemptible,
            group.run_time,
            self.overruns.is_believed(group),
        )

    def _may_hold(self, group: Group) -> bool:
        tree = self._state.occupancy.tree
        return tree.takes_work(group.queue) and tree.queues[group.queue].reserves

    def _leaves_room(self, newcomer: Group, first: Group, at: float, stays: str | None) -> bool:
        """Whether a group that has got its places leaves room for one with a reservation."""
        if first.key in self._given_up:
            return True
        known = self._expected.get(first.key)
        known = known if known is not None and known.at == at else None
        try:
            if known is not None and self._room.leaves(newcomer, first, known, stays):
                return True
            found = self._room.at(first, at, stays)
        except OutOfStepsError:  # it must not keep everybody from starting by what it asks for
            self._given_up.add(first.key)
            self.end(first)
            return True
        if found is None:
            return False
        self._expected[first.key] = found
        return True
