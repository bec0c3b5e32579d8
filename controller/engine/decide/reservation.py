"""Reservations of groups that wait for room, which smaller work must not delay (backfill).

The first group of a queue that waits for room may hold one. It says when there will be room, by the
run times that groups declare. Others start before it only if they have ended by then, if there is
room for it beside them, or if it may preempt them. Who runs for longer than it said is expected to
end no more.
"""

from collections.abc import Sequence

from controller.engine.decide.assigner import Assigner
from controller.engine.decide.gang import Gang
from controller.engine.decide.overrun import Overruns, declared_end
from controller.engine.decide.placement_policy import policy_of
from controller.engine.decide.placement_unit import PlacementUnit, active_pods, next_chunk
from controller.engine.decide.trial import Trial
from controller.engine.model.group import Group
from controller.engine.model.reason import Behind


class Reservations:
    """The reservations that are held in a cycle."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._state = state = trial.state
        self.held: dict[str, float] = {
            key: at
            for key, at in sorted(state.memory.reservations.items())
            if key in state.waiting and key in state.groups and self._may_hold(state.groups[key])
        }
        """By group: when there is room for it, as a Unix time."""
        self.overruns = Overruns(state)
        self._delayed: dict[str, None] = {}

    def consider(self, group: Group) -> None:
        """Lets a group hold a reservation that has no room, if it is the first of its queue."""
        self.end(group)  # what it knew of the others may have changed
        if not self._may_hold(group):
            return
        groups, memory = self._state.groups, self._state.memory
        rivals = [key for key in self.held if groups[key].queue == group.queue]
        if any(groups[key].priority >= group.priority for key in rivals):
            return
        at = self._earliest(group)
        if at is None:
            if group.key in memory.reservations or group.key in memory.delayed:
                self._state.journal.put(self._delayed, group.key, None)
        else:
            for key in rivals:
                self._state.journal.drop(self.held, key)
            self._state.journal.put(self.held, group.key, at)

    def end(self, group: Group) -> None:
        """Ends the reservation of a group that has its place, or waits for other things than room.

        Nobody may be kept from starting by a group that could not start itself.
        """
        if group.key in self.held:
            self._state.journal.drop(self.held, group.key)

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
        for key, at in self.held.items():
            if own is not None and (own, group.key) <= (at, key):
                continue
            first = self._state.groups[key]
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
            if not ends and not gives_way and not self._has_room(first, at, stays):
                return Behind(key)
        return None

    def _may_hold(self, group: Group) -> bool:
        tree = self._state.tree
        return tree.takes_work(group.queue) and tree.queues[group.queue].reserves

    def _earliest(self, group: Group) -> float | None:
        """When there is room for a group; None if what runs does not say when it ends."""
        ends = sorted({end for end, _ in self._ends()})
        if not ends or not self._has_room(group, ends[-1]):
            return None
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            if self._has_room(group, ends[middle]):
                high = middle
            else:
                low = middle + 1
        return ends[low]

    def _has_room(self, group: Group, at: float, stays: str | None = None) -> bool:
        """Whether a group has room when all but one that `stays` have ended that end by then."""
        state = self._state
        mark = state.mark()
        for end, other in self._ends():
            if end <= at and other.key != stays:
                for pod in active_pods(state, other.key):
                    state.evict(pod.key, here=pod.key not in self._trial.placed)
        chunk = next_chunk(state, group)
        fits = not isinstance(chunk, PlacementUnit) or isinstance(
            Gang(self._trial, Assigner(self._trial, policy_of(state, group)).take).place(chunk),
            Sequence,
        )
        state.rollback(mark)
        return fits

    def _ends(self) -> list[tuple[float, Group]]:
        """When the groups end that run, or start now, and say how long they run.

        Nobody knows when those end that should have ended already.
        """
        found = []
        for key in sorted({self._state.pods[pod].group or "" for pod in self._state.holds}):
            group = self._state.groups.get(key)
            end = None if group is None else declared_end(self._state, group)
            if group is not None and end is not None and end >= self._state.now:
                found.append((end, group))
        return found
