"""Makes room for groups at the cost of others, by one action."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from carina_dra.allocator.preference import Order, Policy
from controller.engine.decide.gangs.attempt import Enough, Got, Outcome, Refused
from controller.engine.decide.gangs.gang import Taken, wait_together
from controller.engine.decide.gangs.placement_unit import PlacementUnit
from controller.engine.decide.gangs.refusal import evicts_none_by_refusal
from controller.engine.decide.gangs.search_limit import SearchLimit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.placement_policy import policy_of
from controller.engine.decide.queues.capacity import balance, excess
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.queues.givers import givers
from controller.engine.decide.queues.overrun import is_due
from controller.engine.decide.queues.shares import Shares
from controller.engine.decide.starts.allocation import about, kind_of
from controller.engine.decide.victims.groups_on_nodes import GroupsOnNodes
from controller.engine.decide.victims.guarded import Guarded
from controller.engine.decide.victims.victim_search import CutShortError, VictimSearch
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action, Cursor
from controller.engine.model.reason import Delayed, NoRoom, NoVictims, Reason, SearchCut
from controller.engine.model.resource import Amounts


class _Asker(NamedTuple):
    """What groups have in common of which one gets no room where another got none."""

    kind: Hashable
    queue: str
    priority: int
    preemptible: bool
    overdue: frozenset[str]
    """The queues of which budgets are not respected any more for it."""
    is_due: bool


class MakingRoom:
    """Looks for victims for the next chunk of one group after the other."""

    def __init__(self, trial: Trial, shares: Shares, action: Action, limit: SearchLimit) -> None:
        self._trial = trial
        self._state = trial.state
        self._shares = shares
        self._action = action
        self._limit = limit
        self._ranks = givers(trial.state.occupancy, shares)
        self._groups = GroupsOnNodes(trial, self._ranks)
        self._victims: dict[Hashable, Victims] = {}
        self._refused: dict[Hashable, Reason] = {}
        """By what is asked for, and by which kind of group: evictions do not make room."""
        self._refused_for_a_time: frozenset[str] = frozenset()
        """The queues of which budgets have refused the last group, for a time only."""
        self._has_room: set[str] = set()
        """The groups for which room has been made."""
        self._guarded_by: dict[Hashable, frozenset[str]] = {}
        """The queues of which budgets have refused them, for a time only."""
        self.guarded = Guarded(trial.state)
        """By what disruption budgets have refused so far."""
        self.cursors: dict[str, Cursor] = {}
        """By group: where its search goes on."""
        self.wake: float | None = None
        """When time alone may change an answer."""

    def concerns(self, group: Group) -> bool:
        """Whether the action is for a group at all."""
        if self._action is Action.CONSOLIDATE:
            policy = policy_of(self._state, group)
            return group.preemptible and Order.SPREAD not in (policy.nodes, policy.devices)
        return group.preempts

    def attempt(self, group: Group) -> Outcome:
        """Places the next chunk of a group, evicting others."""
        state = self._state
        if self._limit.is_reached(self._trial.places.steps):
            return Refused(self._cut(group, self._known_cursor(group)))
        held = evicts_none_by_refusal(group) or self._delay(group)
        if held is not None:
            return Refused(held)
        chunk = self._trial.next_chunks.of(group)
        if chunk is None:
            return Enough()
        if not isinstance(chunk, PlacementUnit):
            return Refused(chunk)
        policy = policy_of(state, group)
        kind = kind_of(self._trial.places, chunk, policy)
        overdue = self.guarded.overdue(group)
        due = is_due(state, group)
        asker = _Asker(kind, group.queue, group.priority, group.preemptible, overdue, due)
        if kind is not None and asker in self._refused:
            self.guarded.refuse(group, self._guarded_by.get(asker, ()))
            return Refused(_about(self._refused[asker], chunk))
        asked = self._trial.next_chunks.asked(group)
        eligibility = Eligibility(state, self._shares, group, asked, self._action)
        unfair = eligibility.may_reclaim()
        if unfair is not None:
            return Refused(unfair)
        taken = self._search(eligibility, chunk, asked, policy)
        if isinstance(taken, NoVictims):
            self._refused[asker] = taken
            self._guarded_by[asker] = self._refused_for_a_time
        return Got() if taken is None else taken if isinstance(taken, Enough) else Refused(taken)

    def _search(
        self, eligibility: Eligibility, chunk: PlacementUnit, asked: Amounts, policy: Policy
    ) -> Reason | Enough | None:
        """Gives a chunk its places with the evictions that it takes; why not, if not."""
        state, group = self._state, eligibility.group
        before, mark = balance(state.occupancy, group.queue), state.occupancy.mark()
        cursor = self._known_cursor(group)
        hunt = self._hunt(eligibility, policy, cursor)
        taken = self._run(hunt, chunk, asked)
        self._refused_for_a_time = frozenset(hunt.evictor.refused_for_a_time)
        stages = self._later_stages(group, cursor)
        while not isinstance(taken, Sequence | SearchCut) and (stage := next(stages, None)):
            hunt = self._hunt(eligibility, policy, stage)
            again = self._run(hunt, chunk, asked)
            taken = again if isinstance(again, Sequence | SearchCut) else taken
        if not isinstance(taken, Sequence):
            return taken
        if group.key in self._has_room and not hunt.evictor.evicted:
            state.occupancy.rollback(mark)
            return Enough()  # there is room, which needs no evictions: the next cycle uses it
        self._wait(hunt, taken)
        over = excess(state.occupancy, before) or eligibility.exceeds_share(hunt.has)
        if over is not None:
            state.occupancy.rollback(mark)
            return over
        self._has_room.add(group.key)
        self._trial.take_over(group.key, hunt.evictor.displaced())
        self._trial.settle(hunt.evictor.moved())
        if hunt.evictor.evicted and self._action is not Action.CONSOLIDATE:
            self._trial.settle([group.key])
        return None

    def _later_stages(self, group: Group, cursor: Cursor) -> Iterator[Cursor]:
        """Where the search goes on if it finds nobody: each time, more may be evicted."""
        if cursor.past_budgets:
            return
        if not cursor.moves and self._may_move():
            yield Cursor(self._action, (), moves=True)
        if self._action is Action.RECLAIM and self.guarded.overdue(group):
            yield Cursor(self._action, (), past_budgets=True)

    def _hunt(self, eligibility: Eligibility, policy: Policy, cursor: Cursor) -> VictimSearch:
        group = eligibility.group
        by_priority = group.priority if self._action is Action.PREEMPT else None
        circle = None
        if self._action is not Action.CONSOLIDATE:
            circle = group.queue, by_priority, eligibility.is_due
        victims = self._victims.get(circle)
        if victims is None:
            groups = self._groups
            if self._action is Action.PREEMPT:
                groups = GroupsOnNodes(self._trial, self._ranks, for_all=False)
            victims = self._victims[circle] = Victims(self._trial, groups)
        return VictimSearch(
            self._trial,
            eligibility,
            victims,
            policy,
            limit=self._limit,
            skips=cursor.looked,
            moves=cursor.moves,
            guarded=self.guarded,
            past_budgets=self.guarded.overdue(group) if cursor.past_budgets else frozenset(),
        )

    def _wait(self, hunt: VictimSearch, taken: Sequence[Taken]) -> None:
        """Has pods wait for those who must leave, if there are any."""
        if hunt.evictor.someone_leaves():
            for one in taken:
                self._trial.wait(one.pod)
        else:
            wait_together(self._trial, hunt.group, taken)

    def _run(
        self, hunt: VictimSearch, chunk: PlacementUnit, asked: Amounts
    ) -> Sequence[Taken] | Reason:
        try:
            taken = hunt.run(chunk, asked)
        except CutShortError:
            past_budgets = bool(hunt.evictor.past_budgets)
            return self._cut(
                hunt.group, Cursor(self._action, hunt.looked, hunt.moves, past_budgets)
            )
        finally:
            self.guarded.refuse(hunt.group, hunt.evictor.refused_for_a_time)
            if hunt.wake is not None:
                self.wake = hunt.wake if self.wake is None else min(self.wake, hunt.wake)
        return taken

    def _cut(self, group: Group, cursor: Cursor) -> SearchCut:
        self.cursors[group.key] = cursor
        return SearchCut(self._action, sum(cursor.looked))

    def _known_cursor(self, group: Group) -> Cursor:
        """How far an earlier cycle has come with a group."""
        cursor = self._state.memory.cursors.get(group.key)
        if cursor is None or cursor.action is not self._action:
            return Cursor(self._action, ())
        return cursor

    def _may_move(self) -> bool:
        """Whether those whose queue need not give may move for the group."""
        if self._action is not Action.RECLAIM or not self._state.settings.moves_reclaimed:
            return False
        return self._trial.places.has_free_devices()

    def _delay(self, group: Group) -> Delayed | None:
        """How long nothing is evicted for a group."""
        since = max(group.created, group.evicted or group.created)
        until = since + group.preemption_delay
        if until <= self._state.now:
            return None
        self.wake = until if self.wake is None else min(self.wake, until)
        return Delayed(until)


def _about(reason: Reason, chunk: PlacementUnit) -> Reason:
    """A reason that was found for a chunk like this one, with the name of its own pod.

    The groups may be of different namespaces, which do not read each other's names.
    """
    if isinstance(reason, NoVictims) and isinstance(reason.why, NoRoom):
        return replace(reason, why=about(reason.why, chunk))
    return reason
