"""One cycle: from the state of a cluster to a plan.

What waits is placed where there is room. For what is left, room is made: others move, queues give
back what is beyond their share, and higher priorities go before lower ones. Nothing of the state
has changed at the end: the plan says what to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, assert_never

from controller.decide.allocation import Allocation
from controller.decide.attempt import Attempt, Enough, Got, Outcome, Refused
from controller.decide.chunk import has_active, is_satisfied
from controller.decide.domain import Domains
from controller.decide.eviction import MakingRoom
from controller.decide.gang import keep_together
from controller.decide.order import Turns
from controller.decide.places import Places, Spent, no_time
from controller.decide.promise import keep_promises
from controller.decide.reservation import Reservations
from controller.decide.shares import Shares
from controller.decide.stale import evict_stale
from controller.decide.trial import Trial
from controller.model.group import Group
from controller.model.plan import Action, Cursor, Memory, Nomination, Plan, Start
from controller.model.pod import Pending
from controller.model.reason import (
    Behind,
    CutOffQueue,
    NoDomain,
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    Reason,
    UnknownQueue,
)
from controller.model.resource import describe
from controller.model.snapshot import Snapshot
from controller.state.state import State

_FIRST: Final = 0.5
"""The part of the time of a cycle in which all groups are asked in their order, if some have not
been asked by the last one; the rest is theirs."""


def plan(snapshot: Snapshot) -> Plan:
    """The plan that answers a snapshot."""
    return Engine(State(snapshot)).decide()


class Engine:
    """Decides for a state, cycle after cycle, and keeps what does not change in between."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places = Places(state)
        self._domains = Domains(state)
        self._shares = Shares(state)
        self._broken: set[str] = set()
        """The groups with some pods, but fewer than they need."""

    def decide(self, spent: Spent = no_time) -> Plan:
        """The plan for the state as it is; the state is the same afterwards.

        Once the time for it is `spent`, the plan is what has been decided so far (`is_unfinished`).
        It is asked again and again, also in the middle of a search.
        """
        state = self._state
        for key in state.touched:
            if self._is_broken(key):
                self._broken.add(key)
            else:
                self._broken.discard(key)
        state.touched.clear()
        state.refresh()
        self._shares.refresh()
        mark = state.mark()
        trial = Trial(state, self._places, self._domains)
        self._places.spent = spent
        try:
            return _Cycle(trial, self._shares, sorted(self._broken)).run()
        finally:
            self._places.spent = no_time
            state.rollback(mark)

    def _is_broken(self, key: str) -> bool:
        group = self._state.groups.get(key)
        if group is None or not has_active(self._state, key):
            return False
        return not is_satisfied(self._state, group)


class _Cycle:
    """The decisions of one cycle."""

    def __init__(self, trial: Trial, shares: Shares, broken: Sequence[str]) -> None:
        self._trial = trial
        self._state = trial.state
        self._shares = shares
        self._broken = broken
        self._first_step = trial.places.steps
        self._refusals = self._still_refused()
        self._reasons: dict[str, list[Reason]] = {}
        self._cursors: dict[str, Cursor] = {}
        self._stale: list[str] = []
        self._reservations = Reservations(trial)
        self._wake: float | None = None
        self._allocation = Allocation(trial, self._reservations)
        self._making_room: dict[Action, MakingRoom] = {}
        """By action, once it is tried."""
        self._last_step: int | None = None
        """The searches for victims end before it."""
        self._end = _FIRST if self._state.memory.deferred else 1.0
        """The part of the time after which nothing more is begun."""
        self._unasked: set[str] = set()
        """The groups that have not been asked, or not by all actions."""

    def run(self) -> Plan:
        """Decides."""
        settings = self._state.settings
        keep_promises(self._trial)
        groups = list(self._asking())
        if settings.allocates:
            groups = self._in_turn(groups, self._allocation.attempt)
        steps = settings.search_steps
        self._last_step = None if steps is None else self._trial.places.steps + steps
        for action in settings.actions:
            if action is Action.STALE:
                self._stale, wake = evict_stale(self._trial, self._broken)
                self._wake_at(wake)
            else:
                groups = self._make_room(groups, action)
        self._ask_deferred()
        keep_together(self._trial)
        return self._plan()

    def _make_room(self, groups: list[Group], action: Action) -> list[Group]:
        """Makes room for groups by an action; returns those for which the next one may."""
        if not groups or self._is_over():
            self._unasked.update(one.key for one in groups)
            return []
        making_room = self._making_room.get(action)
        if making_room is None:
            making_room = MakingRoom(self._trial, self._shares, action, self._last_step)
            self._making_room[action] = making_room
        concerned = [
            group
            for group in groups
            if making_room.concerns(group) and not self._is_elsewhere(group, action)
        ]
        self._in_turn(concerned, making_room.attempt)
        self._cursors |= making_room.cursors
        cut = self._cursors.keys()  # these go on there in the next cycle
        self._wake_at(making_room.wake)
        return [one for one in groups if one.key not in cut and self._wants_more(one)]

    def _ask_deferred(self) -> None:
        """Asks the groups that the last cycles have not come to, each by all actions at once.

        So all have their turn, although changes make others be asked before them in each cycle, and
        it takes longer to ask all groups by one action than a cycle may take.
        """
        keys = [key for key in self._state.memory.deferred if key in self._unasked]
        self._end = inf  # one is asked in each cycle
        self._in_turn([self._state.groups[key] for key in keys], self._ask)

    def _ask(self, group: Group) -> Outcome:
        """Tries all that may give a group what it asks for next."""
        self._unasked.discard(group.key)
        self._reasons.pop(group.key, None)
        allocates = self._state.settings.allocates
        outcome = self._allocation.attempt(group) if allocates else Enough()
        if isinstance(outcome, Refused):
            can_evict = self._refuse(group, outcome.reason)
            outcome = Enough()
        else:
            can_evict = not allocates
        groups = [group] if can_evict else []
        for action in self._state.settings.actions:
            if action is not Action.STALE:
                groups = self._make_room(groups, action)
        self._end = 1.0
        return outcome

    def _is_over(self) -> bool:
        """Whether nothing more is begun."""
        return self._trial.places.spent() >= self._end

    def _refuse(self, group: Group, reason: Reason) -> bool:
        """Notes why a group has no place; returns whether others may be evicted for it."""
        self._reasons.setdefault(group.key, []).append(reason)
        return isinstance(reason, NoRoom | NoDomain | OverLimit)

    def _asking(self) -> Iterable[Group]:
        """The groups that wait and have not been refused for what has not changed."""
        state = self._state
        for key in sorted(state.waiting):
            group = state.groups.get(key)
            if group is None or key in self._refusals:
                continue
            if state.tree.is_leaf(group.queue):
                yield group
            else:
                self._reasons[key] = [self._not_a_leaf(group.queue)]

    def _still_refused(self) -> Mapping[str, tuple[Reason, ...]]:
        """What earlier cycles have refused, but for what other fair shares may make possible."""
        memory = self._state.memory
        if memory.fair_shares == self._fair_shares():
            return memory.refusals
        return {key: of for key, of in memory.refusals.items() if not any(map(_is_of_shares, of))}

    def _not_a_leaf(self, queue: str) -> Reason:
        tree = self._state.tree
        if queue in tree.cut_off:
            return CutOffQueue(queue, tree.cut_off[queue])
        return UnknownQueue(queue, exists=queue in tree.queues)

    def _in_turn(self, groups: Iterable[Group], attempt: Attempt) -> list[Group]:
        """Tries groups in their order, again and again while they get something.

        It returns those for which others may be evicted.
        """
        turns = Turns(self._state, self._shares, groups)
        left: list[Group] = []
        while not self._is_over() and (group := turns.pop()) is not None:
            outcome = attempt(group)
            match outcome:
                case Got():
                    if self._wants_more(group):
                        turns.push(group)
                case Refused(reason=reason):
                    if self._refuse(group, reason):
                        left.append(group)
                case Enough():
                    pass
                case _:
                    assert_never(outcome)
            turns.update([group.queue])
        self._unasked.update(one.key for one in turns.left())
        return left

    def _wants_more(self, group: Group) -> bool:
        return bool(self._state.members[group.key].pending)

    def _is_elsewhere(self, group: Group, action: Action) -> bool:
        """Whether the search for victims of a group is at another action, and goes on there."""
        if group.key in self._cursors:
            return True  # it was cut short in this cycle
        cursor, actions = self._state.memory.cursors.get(group.key), self._state.settings.actions
        if cursor is None or cursor.action not in actions:
            return False
        return actions.index(cursor.action) > actions.index(action)

    def _wake_at(self, time: float | None) -> None:
        if time is not None:
            self._wake = time if self._wake is None else min(self._wake, time)

    # The answer.

    def _plan(self) -> Plan:
        state, trial = self._state, self._trial
        starts, nominations = [], []
        for pod, decided in trial.placed.items():
            place = decided.place
            if decided.waits:
                nominations.append(Nomination(pod, place.node, place.allocations))
            else:
                starts.append(Start(pod, place.node, place.allocations))
        waiting = self._waiting()
        kept = state.memory.cursors
        cursors = {key: kept[key] for key in self._unasked if key in kept} | self._cursors
        asked_again = self._unasked | cursors.keys()
        if self._reservations.have_changed:
            behind = {key for key, of in waiting.items() if any(isinstance(r, Behind) for r in of)}
            asked_again |= behind
            self._wake_at(state.now if behind else None)
        memory = Memory(
            nominations=tuple(
                one for one in nominations if isinstance(state.pods[one.pod].state, Pending)
            ),
            refusals={key: of for key, of in waiting.items() if key not in asked_again},
            cursors=dict(sorted(cursors.items())),
            reservations={
                key: at
                for key, at in self._reservations.held.items()
                if key in waiting or key in self._unasked
            },
            fair_shares=self._fair_shares(),
            wake=self._wake,
            outdated={key: of for key, of in waiting.items() if key in asked_again},
            deferred=self._deferred(),
        )
        return Plan(
            starts=tuple(starts),
            nominations=tuple(nominations),
            evictions=tuple(trial.evictions.values()),
            waiting=waiting,
            fair_shares=memory.fair_shares,
            memory=memory,
            stale=tuple(self._stale),
            steps=trial.places.steps - self._first_step,
            wake=self._wake,
        )

    def _waiting(self) -> Mapping[str, tuple[Reason, ...]]:
        """The groups that want more than they have got, with the reasons."""
        reasons = {**self._refusals, **self._reasons}
        memory = self._state.memory
        for key in self._unasked:  # the last complete answer says more than half of a new one
            known = memory.refusals.get(key) or memory.outdated.get(key)
            if known is not None:
                reasons[key] = known
        return {
            key: tuple(reasons[key])
            for key in sorted(reasons)
            if key in self._state.waiting and self._wants_more(self._state.groups[key])
        }

    def _deferred(self) -> tuple[str, ...]:
        """The groups that the next cycles have to come to.

        Those that come later are left to the next round, so that each round has an end.
        """
        earlier = [key for key in self._state.memory.deferred if key in self._unasked]
        return tuple(earlier or sorted(self._unasked))

    def _fair_shares(self) -> Mapping[str, Mapping[str, int]]:
        tree = self._state.tree
        names = [describe(resource) for resource in tree.resources]
        return {
            queue: dict(zip(names, self._shares.fair(queue), strict=True)) for queue in tree.queues
        }


def _is_of_shares(reason: Reason) -> bool:
    """Whether a group was refused because of what queues may count on."""
    is_reclaim = isinstance(reason, NoVictims) and reason.action == Action.RECLAIM
    return is_reclaim or isinstance(reason, OverFairShare)
