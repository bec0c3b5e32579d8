"""One cycle: from the state of a cluster to a plan.

What waits is placed where there is room. For what is left, room is made: others move, queues give
back what is beyond their share, and higher priorities go before lower ones. Nothing of the state
has changed at the end: the plan says what to do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, assert_never

from controller.engine.decide.gangs.attempt import Attempt, Enough, Got, Outcome, Refused
from controller.engine.decide.gangs.gang import keep_together
from controller.engine.decide.gangs.isolation import (
    HasNewcomers,
    Isolation,
    earlier,
    next_end,
    nobody,
)
from controller.engine.decide.gangs.order import QueueOrder
from controller.engine.decide.gangs.placement_unit import has_active, is_satisfied
from controller.engine.decide.gangs.refusal import scheduler_reason
from controller.engine.decide.gangs.search_limit import SearchLimit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.domain import Domains
from controller.engine.decide.nodes.places import PlaceFinder, Spent, no_time
from controller.engine.decide.queues.overrun import overran
from controller.engine.decide.queues.shares import Shares
from controller.engine.decide.starts.allocation import Allocating
from controller.engine.decide.starts.kept_place import keep_places, places_to_keep
from controller.engine.decide.starts.promise import keep_promises
from controller.engine.decide.starts.reservation import Reservations
from controller.engine.decide.victims.degraded import Degraded, degraded_groups, replace_degraded
from controller.engine.decide.victims.drain import evict_drained
from controller.engine.decide.victims.eviction import MakingRoom
from controller.engine.decide.victims.guarded import Guarded
from controller.engine.decide.victims.released import evict_released
from controller.engine.decide.victims.stale import evict_stale
from controller.engine.decide.victims.standing_refusals import (
    fair_shares,
    is_of_room,
    still_refused,
    takes_no_work,
)
from controller.engine.model.group import Group
from controller.engine.model.plan import (
    Action,
    CarriedOver,
    Cursor,
    KeptPlace,
    Nomination,
    Plan,
    Start,
)
from controller.engine.model.pod import Pending
from controller.engine.model.reason import (
    Behind,
    NoDomain,
    NoRoom,
    OverLimit,
    Reason,
)
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State

_AFTER_UNDECIDED: Final = 0.05
"""The part of the time after which nothing more is begun once an attempt has come to nothing: the
next cycle asks those that have come meanwhile before the groups that cost so long."""
_FIRST: Final = 0.5
"""The part of the time of a cycle in which all groups are asked in their order, if some have not
been asked by the last one; the rest is theirs."""

_FOR_NOBODY: Final = (Action.STALE, Action.DRAIN, Action.RELEASE, Action.REPLACE)
"""Actions that are not for a group that waits."""
_AFFINITY: Final = "node affinity"
"""What fails for a group on the nodes that it avoids since kube-scheduler refused them."""


def plan(snapshot: Snapshot) -> Plan:
    """The plan that answers a snapshot."""
    return Engine(State(snapshot)).decide()


class Engine:
    """Decides for a state, cycle after cycle, and keeps what does not change in between."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places = PlaceFinder(state)
        self._domains = Domains(state)
        self._shares = Shares(state)
        self._broken: set[str] = set()
        """The groups with some pods, but fewer than they need."""

    def decide(self, spent: Spent = no_time, newcomers: HasNewcomers = nobody) -> Plan:
        """The plan for the state as it is; the state is the same afterwards.

        Once the time for it is `spent`, the plan is what has been decided so far (`is_unfinished`).
        It is asked again and again, also in the middle of a search. An attempt of who asks
        expensively is given up if there are `newcomers`.
        """
        state = self._state
        state.refresh()
        self._shares.refresh()
        mark = state.occupancy.mark()
        trial = Trial(state, self._places, self._domains)
        isolation = Isolation(trial, newcomers)
        for key in sorted(state.touched):
            if self._is_broken(key, isolation):
                self._broken.add(key)
            else:
                self._broken.discard(key)
        state.touched.clear()
        self._places.spent = spent
        try:
            return _Cycle(trial, self._shares, isolation, sorted(self._broken)).run()
        finally:
            self._places.spent = no_time
            state.occupancy.rollback(mark)

    def _is_broken(self, key: str, isolation: Isolation) -> bool:
        group = self._state.occupancy.groups.get(key)
        if group is None or not has_active(self._state.occupancy, key):
            return False
        return isolation.run(group, partial(is_satisfied, self._state.occupancy, group)) is False


class _Cycle:
    """The decisions of one cycle."""

    def __init__(
        self, trial: Trial, shares: Shares, isolation: Isolation, broken: Sequence[str]
    ) -> None:
        self._trial = trial
        self._isolation = isolation
        self._state = trial.state
        self._shares = shares
        self._broken = broken
        self._first_step = trial.places.steps
        self._fair_shares = fair_shares(self._state.occupancy, shares)
        self._refusals = still_refused(self._state.memory, self._fair_shares)
        self._reasons: dict[str, list[Reason]] = {}
        self._cursors: dict[str, Cursor] = {}
        self._stale: list[str] = []
        self._degraded: Degraded = {}
        self._reservations = Reservations(trial, isolation)
        self._wake = self._state.memory.wake if self._refusals else None
        self._allocation = Allocating(trial, self._reservations)
        self._making_room: dict[Action, MakingRoom] = {}
        """By action, once it is tried."""
        self._search_limit: SearchLimit | None = None
        """That of the searches for victims, once the first begins."""
        self._end = _FIRST if self._state.memory.deferred else 1.0
        """The part of the time after which nothing more is begun."""
        self._kept_places: tuple[KeptPlace, ...] = ()
        self._unasked: set[str] = set()
        """The groups that have not been asked, or not by all actions."""
        self._held_back: set[str] = set()
        """The groups that are not asked in this cycle, so that others are."""
        self._passes_over = False
        """Whether those are left to the next cycle who ask expensively."""

    def run(self) -> Plan:
        """Decides."""
        # Before anything starts: no pod is to start in a group that goes.
        evict_released(self._trial, self._isolation)
        self._degraded = degraded_groups(self._state, self._isolation)
        self._wake_at(replace_degraded(self._trial, self._isolation, self._degraded))
        keep_promises(self._trial, self._isolation)
        self._kept_places = keep_places(self._trial, self._isolation)
        asking = list(self._asking())
        groups, late = self._isolation.time.turn(asking)
        self._held_back = {group.key for group in asking} - {
            group.key for group in (*groups, *late)
        }
        self._decide_for(groups)
        if late and self._is_written_first():
            self._passes_over = True
            self._unasked.update(group.key for group in late)
        else:
            self._decide_for(late)
        if Action.STALE in self._state.settings.actions:
            self._stale, wake = self._evict_stale()
            self._wake_at(wake)
        evict_drained(self._trial, self._isolation)
        if not self._passes_over:
            self._ask_deferred()
        keep_together(self._trial, self._isolation)
        return self._plan()

    def _is_written_first(self) -> bool:
        """Whether what has been decided is written before those are asked who ask expensively.

        It would wait for their attempts otherwise. They are passed over once, and asked in the next
        cycle whatever it decides.
        """
        if self._state.memory.passes_over:
            return False
        starts = any(not decided.waits for decided in self._trial.placed.values())
        return starts or bool(self._trial.evictions)

    def _decide_for(self, groups: list[Group]) -> None:
        """Gives groups what is free, and makes room for those for which it does not suffice."""
        settings = self._state.settings
        if settings.allocates:
            groups = self._in_turn(groups, self._allocation.attempt)
        for action in settings.actions:
            if action not in _FOR_NOBODY:
                groups = self._make_room(groups, action)

    def _make_room(self, groups: list[Group], action: Action) -> list[Group]:
        """Makes room for groups by an action; returns those for which the next one may."""
        if not groups or self._is_over():
            self._unasked.update(group.key for group in groups)
            return []
        if self._search_limit is None:
            most = self._state.settings.search_steps
            self._search_limit = SearchLimit.of(self._trial.places.steps, most)
        making_room = self._making_room.get(action)
        if making_room is None:
            making_room = MakingRoom(self._trial, self._shares, action, self._search_limit)
            self._making_room[action] = making_room
        concerned = [
            group
            for group in groups
            if self._isolation.run(group, partial(making_room.concerns, group))
            and not self._is_elsewhere(group, action)
        ]
        self._in_turn(concerned, making_room.attempt)
        self._cursors |= making_room.cursors
        cut = self._cursors.keys()  # these go on there in the next cycle
        self._wake_at(making_room.wake)
        over = cut | self._isolation.set_aside.keys()
        return [group for group in groups if group.key not in over and self._wants_more(group)]

    def _evict_stale(self) -> tuple[list[str], float | None]:
        """Evicts stale groups, if those that wait for room can use what they have."""
        groups = self._state.occupancy.groups
        waiting = [
            groups[key]
            for key, reasons in self._reasons.items()
            if any(map(is_of_room, reasons)) and self._wants_more(groups[key])
        ]
        return evict_stale(self._trial, self._broken, waiting, self._isolation)

    def _ask_deferred(self) -> None:
        """Asks the groups that the last cycles have not come to, each by all actions at once.

        So all have their turn, although changes make others be asked before them in each cycle, and
        it takes longer to ask all groups by one action than a cycle may take.
        """
        keys = [key for key in self._state.memory.deferred if key in self._unasked]
        groups, time = [self._state.occupancy.groups[key] for key in keys], self._isolation.time
        first = [group for group in groups if time.has_spent_nothing(group)]
        self._end = inf  # one is asked in each cycle
        # Otherwise a namespace with many groups would have its turn many times before another one.
        self._in_turn(first, self._ask)
        then = [group for group in groups if group.key in self._unasked]
        self._in_turn(then, self._ask)

    def _ask(self, group: Group) -> Outcome:
        """Tries all that may give a group what it asks for next; then time may be up."""
        try:
            return self._ask_all(group)
        finally:
            self._end = 1.0

    def _ask_all(self, group: Group) -> Outcome:
        self._unasked.discard(group.key)
        self._reasons.pop(group.key, None)
        allocates = self._state.settings.allocates
        outcome: Outcome = Enough()
        if allocates:
            outcome = self._isolation.attempt(group, self._allocation.attempt)
        if isinstance(outcome, Refused):
            can_evict = self._refuse(group, outcome.reason)
            outcome = Enough()
        else:
            can_evict = not allocates
        groups = [group] if can_evict else []
        for action in self._state.settings.actions:
            if action not in _FOR_NOBODY:
                groups = self._make_room(groups, action)
        return outcome

    def _is_over(self) -> bool:
        """Whether nothing more is begun."""
        if self._isolation.gave_way:
            return True
        if self._end == inf:
            return False  # one of those that were left out is asked, whatever has been spent
        end = _AFTER_UNDECIDED if self._isolation.undecided else self._end
        return self._trial.places.spent() >= end

    def _refuse(self, group: Group, reason: Reason) -> bool:
        """Notes why a group has no place; returns whether others may be evicted for it."""
        reasons = self._reasons.setdefault(group.key, [])
        found = [reason]
        refused = scheduler_reason(group)
        if refused is not None:
            avoids_all = isinstance(reason, NoRoom) and [at for at, _ in reason.fell] == [_AFFINITY]
            found = [refused] if avoids_all else [refused, reason]
        reasons += [one for one in found if one not in reasons]
        return isinstance(reason, NoRoom | NoDomain | OverLimit)

    def _asking(self) -> Iterable[Group]:
        """The groups that wait and have not been refused for what has not changed."""
        state = self._state
        for key in sorted(state.waiting):
            group = state.occupancy.groups.get(key)
            if group is None or key in self._refusals:
                continue
            if key in self._isolation.set_aside:
                continue
            if state.occupancy.tree.takes_work(group.queue):
                yield group
            else:
                self._reasons[key] = [takes_no_work(state.occupancy.tree, group.queue)]

    def _in_turn(self, groups: Iterable[Group], attempt: Attempt) -> list[Group]:
        """Tries groups in their order, again and again while they get something.

        Those whose queue has had its part of the cycle come after all others, and of these the ones
        whose namespace has had it: nobody waits for his queue because of another namespace in it.

        It returns those for which others may be evicted.
        """
        groups = list(groups)
        left: list[Group] = []
        late: list[Group] = []
        time = self._isolation.time
        for has_had_its_part in time.parts(groups):
            self._take_turns(groups, attempt, left, (has_had_its_part, late))
            if not late:
                return left
            groups, late = late, []
        self._take_turns(groups, attempt, left, None)
        return left

    def _take_turns(
        self,
        groups: Iterable[Group],
        attempt: Attempt,
        left: list[Group],
        late: tuple[Callable[[Group], bool], list[Group]] | None,
    ) -> None:
        """Tries groups in their order; those that come late are kept for later."""
        turns = QueueOrder(self._state.occupancy, self._shares, groups, self._isolation)
        while not self._is_over() and (group := turns.pop()) is not None:
            if self._isolation.time.is_overdrawn(group):
                self._held_back.add(group.key)
            elif late is not None and late[0](group):
                late[1].append(group)
            elif self._try(group, attempt, turns):
                left.append(group)
            turns.update([group.queue])
        self._unasked.update(group.key for group in turns.left())

    def _try(self, group: Group, attempt: Attempt, turns: QueueOrder) -> bool:
        """Tries a group, which has another turn if it gets something.

        Whether others may be evicted for it.
        """
        outcome = self._isolation.attempt(group, attempt)
        match outcome:
            case Got():
                if self._wants_more(group):
                    turns.push(group)
            case Refused(reason=reason):
                return self._refuse(group, reason)
            case Enough():
                pass
            case _:
                assert_never(outcome)
        return False

    def _wants_more(self, group: Group) -> bool:
        return bool(self._state.occupancy.members[group.key].pending)

    def _is_elsewhere(self, group: Group, action: Action) -> bool:
        """Whether the search for victims of a group is at another action, and goes on there."""
        if group.key in self._cursors:
            return True  # it was cut short in this cycle
        cursor, actions = self._state.memory.cursors.get(group.key), self._state.settings.actions
        if cursor is None or cursor.action not in actions:
            return False
        return actions.index(cursor.action) > actions.index(action)

    def _wake_at(self, time: float | None) -> None:
        self._wake = earlier(self._wake, time)

    # The answer.

    def _plan(self) -> Plan:
        state, trial = self._state, self._trial
        self._unasked |= self._isolation.gave_way
        starts, nominations = [], []
        for pod, decided in trial.placed.items():
            place = decided.place
            if decided.waits:
                nominations.append(Nomination(pod, place.node, place.allocations))
            else:
                starts.append(Start(pod, place.node, place.allocations))
        waiting = self._waiting()
        kept, left = state.memory.cursors, self._not_asked
        set_aside = self._isolation.remembered(waiting, left)
        cursors = {key: kept[key] for key in left if key in kept} | self._cursors
        cursors = {key: cursor for key, cursor in cursors.items() if key not in set_aside}
        asked_again = left | cursors.keys()
        if self._reservations.have_changed:
            behind = {
                key
                for key, reasons in waiting.items()
                if any(isinstance(r, Behind) for r in reasons)
            }
            asked_again |= behind
            self._wake_at(state.now if behind else None)
        new = tuple(places_to_keep(state.occupancy, trial.placed.items(), trial.evictions.values()))
        moves = {kept_place.pod for kept_place in new}
        for kept_place in (*self._kept_places, *new):
            self._wake_at(kept_place.until)
        reclaims = self._making_room.get(Action.RECLAIM)
        guarded = Guarded(state) if reclaims is None else reclaims.guarded
        self._wake_at(guarded.wake)
        self._wake_at(self._reservations.wake)
        memory = CarriedOver(
            kept_places=(*self._kept_places, *new),
            nominations=tuple(
                nomination
                for nomination in nominations
                if isinstance(state.occupancy.pods[nomination.pod].state, Pending)
            ),
            refusals={
                key: reasons
                for key, reasons in waiting.items()
                if key not in asked_again and key not in set_aside
            },
            cursors=dict(sorted(cursors.items())),
            reservations={
                key: at
                for key, at in self._reservations.held.items()
                if key in waiting or key in left
            },
            delayed=self._reservations.delayed,
            declared_ends=self._reservations.overruns.ends,
            barred=self._reservations.overruns.barred,
            fair_shares=self._fair_shares,
            wake=self._wake,
            outdated={key: reasons for key, reasons in waiting.items() if key in asked_again},
            deferred=self._deferred(),
            budget_refusals=guarded.clocks,
            set_aside=set_aside,
            debts=self._isolation.time.debts(),
            asked_late=self._isolation.time.late(),
            gives_way_since=self._isolation.gives_way_since(waiting.keys() | left),
            passes_over=self._passes_over,
            held_back=tuple(sorted(self._held_back)),
            attempt_limits=self._isolation.attempt_limits(waiting.keys() | left),
        )
        return Plan(
            starts=tuple(starts),
            nominations=tuple(nominations),
            evictions=tuple(
                replace(eviction, moves=eviction.pod in moves, overran=overran(state, eviction))
                for eviction in trial.evictions.values()
            ),
            waiting=waiting,
            fair_shares=memory.fair_shares,
            memory=memory,
            stale=tuple(self._stale),
            steps=trial.places.steps - self._first_step,
            wake=earlier(self._wake, next_end(set_aside, state.now)),
            failures=tuple(self._isolation.failures),
            undecided=tuple(self._isolation.undecided),
            degraded=self._degraded,
        )

    @property
    def _not_asked(self) -> set[str]:
        """The groups that the next cycles have to ask, or to ask by other actions."""
        return self._unasked | self._held_back

    def _waiting(self) -> Mapping[str, tuple[Reason, ...]]:
        """The groups that want more than they have got, with the reasons."""
        reasons = {**self._refusals, **self._reasons}
        memory = self._state.memory
        for key in self._not_asked:  # the last complete answer says more than half of a new one
            known = memory.refusals.get(key) or memory.outdated.get(key)
            if known is not None:
                reasons[key] = known
        for key, aside in self._isolation.set_aside.items():
            reasons[key] = tuple(dict.fromkeys([*reasons.get(key, ()), *aside.reasons]))
        return {
            key: tuple(reasons[key])
            for key in sorted(reasons)
            if key in self._state.waiting and self._wants_more(self._state.occupancy.groups[key])
        }

    def _deferred(self) -> tuple[str, ...]:
        """The groups that the next cycles have to come to.

        Those that come later are left to the next round, so that each round has an end. Those whose
        queue or namespace is in debt now keep their turn, and no round waits for them.
        """
        groups = (
            self._state.occupancy.groups
        )  # what has been promised all that it asks for needs no turn
        unasked = {key for key in self._unasked if key in groups and self._wants_more(groups[key])}
        deferred = self._state.memory.deferred
        earlier = [key for key in deferred if key in unasked]
        in_debt = [key for key in deferred if key in self._held_back and key not in unasked]
        return (*(earlier or sorted(unasked)), *in_debt)
