"""One cycle: from the state of a cluster to a plan.

What waits is placed where there is room. For what is left, room is made: others move, queues give
back what is beyond their share, and higher priorities go before lower ones. Nothing of the state
has changed at the end: the plan says what to do.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import replace
from math import isinf
from typing import Final

from carina_dra.allocator.preference import Order, Policy
from controller.decide.capacity import balance, excess, refusal
from controller.decide.chunk import Chunk, active_pods, is_satisfied, next_chunk
from controller.decide.domain import Domains
from controller.decide.eligibility import Eligibility
from controller.decide.gang import Gang, Taken
from controller.decide.hunt import CutShortError, Hunt
from controller.decide.order import Turns, asked_by, givers
from controller.decide.places import Place, Places
from controller.decide.shares import Shares
from controller.decide.trial import Trial
from controller.decide.victims import Victims
from controller.model.group import Group
from controller.model.plan import Action, Cursor, Memory, Nomination, Plan, Start
from controller.model.pod import Ended, Pending, Placed, Pod
from controller.model.reason import (
    Delayed,
    NoDomain,
    NoRoom,
    Reason,
    SearchCut,
    UnknownQueue,
)
from controller.model.resource import describe
from controller.model.snapshot import Snapshot
from controller.state.state import State

_FIRST: Final = 1


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

    def decide(self) -> Plan:
        """The plan for the state as it is; the state is the same afterwards."""
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
        cycle = _Cycle(Trial(state, self._places, self._domains), self._shares, self._broken)
        try:
            return cycle.run()
        finally:
            state.rollback(mark)

    def _is_broken(self, key: str) -> bool:
        group = self._state.groups.get(key)
        if group is None or not active_pods(self._state, key):
            return False
        return not is_satisfied(self._state, group)


class _Cycle:
    """The decisions of one cycle."""

    def __init__(self, trial: Trial, shares: Shares, broken: Iterable[str]) -> None:
        self._trial = trial
        self._state = trial.state
        self._places = trial.places
        self._shares = shares
        self._broken = sorted(broken)
        self._first_step = trial.places.steps
        self._reasons: dict[str, list[Reason]] = {}
        self._cursors: dict[str, Cursor] = {}
        self._refused: dict[Hashable, Reason] = {}
        """By what is asked for: it has no place, and nothing has become free since."""
        self._stale: list[str] = []
        self._wake: float | None = None

    def run(self) -> Plan:
        """Decides."""
        state, settings = self._state, self._state.settings
        self._keep_nominations()
        refused = state.memory.refusals
        wanting = [
            group
            for key in sorted(state.waiting)
            if key not in refused and (group := self._valid(key)) is not None
        ]
        if settings.allocates:
            wanting = self._in_turn(wanting, self._allocate)
        self._search_end = (
            None if settings.search_steps is None else self._places.steps + settings.search_steps
        )
        for action in settings.actions:
            if action is Action.STALE:
                self._evict_stale()
            else:
                wanting = self._make_room(wanting, action)
        return self._plan()

    def _valid(self, key: str) -> Group | None:
        """A group whose queue takes work."""
        group = self._state.groups.get(key)
        if group is None:
            return None
        tree = self._state.tree
        if not tree.is_leaf(group.queue):
            exists = group.queue in tree.queues
            self._reasons[key] = [UnknownQueue(group.queue, exists)]
            return None
        return group

    def _in_turn(
        self, groups: Iterable[Group], attempt: Callable[[Group], Reason | None]
    ) -> list[Group]:
        """Tries groups in their order, again and again while they get something.

        It returns those for which others may be evicted.
        """
        turns = Turns(self._state, self._shares, groups)
        left: list[Group] = []
        while (group := turns.pop()) is not None:
            reason = attempt(group)
            if reason is None:
                if self._wants_more(group):
                    turns.push(group)
            else:
                self._reasons.setdefault(group.key, []).append(reason)
                if isinstance(reason, NoRoom | NoDomain):
                    left.append(group)
            turns.update([group.queue])
        return left

    def _wants_more(self, group: Group) -> bool:
        return any(self._state.is_pending(key) for key in self._state.members[group.key].pending)

    # Where there is room.

    def _allocate(self, group: Group) -> Reason | None:
        """Places the next chunk of a group where there is room; why not, if not."""
        chunk = self._chunk(group)
        if not isinstance(chunk, Chunk):
            return chunk
        policy = self._policy(group)
        key = self._key(chunk, policy)
        if key in self._refused:
            return self._about(self._refused[key], chunk)
        before = balance(self._state, group.queue)
        mark = self._state.mark()
        gang = Gang(
            self._state, self._trial.domains, self._places, _Taker(self._trial, policy).take
        )
        taken = gang.place(chunk)
        if not isinstance(taken, Sequence):
            if key is not None and isinstance(taken, NoRoom | NoDomain):
                self._refused[key] = taken
            return taken
        over = excess(self._state, before)
        if over is not None:
            self._state.rollback(mark)
            return over
        self._wait_together(group, taken)
        return None

    def _chunk(self, group: Group) -> Chunk | Reason | None:
        """What of a group is placed next, if its queue lets it."""
        chunk = next_chunk(self._state, group)
        if not isinstance(chunk, Chunk):
            return chunk
        asked = asked_by(self._state, chunk)
        over = refusal(self._state, group.queue, asked, preemptible=group.preemptible)
        return chunk if over is None else over

    def _wait_together(self, group: Group, taken: Sequence[Taken]) -> None:
        """Has a gang wait if one of its pods has to, and it has not had its minimum without."""
        waiting = [one for one in taken if self._trial.placed[one.pod.key].waits]
        if waiting and len(taken) > _FIRST and not self._stands_without(group, taken):
            for one in taken:
                self._trial.wait(one.pod)

    def _stands_without(self, group: Group, taken: Sequence[Taken]) -> bool:
        mark = self._state.mark()
        for one in taken:
            self._state.evict(one.pod.key)
        stands = is_satisfied(self._state, group)
        self._state.rollback(mark)
        return stands

    # Where there is none.

    def _make_room(self, groups: Sequence[Group], action: Action) -> list[Group]:
        """Makes room for groups at the cost of others; returns the groups without any."""
        if not groups:
            return []
        ranks = givers(self._state, self._shares)
        found: dict[Hashable, Victims] = {}
        refused: dict[Hashable, Reason] = {}

        def attempt(group: Group) -> Reason | None:
            of_queue = (group.queue, group.priority) if action is Action.PREEMPT else group.queue
            circle = None if action is Action.CONSOLIDATE else of_queue
            victims = found.get(circle)
            if victims is None:
                victims = found[circle] = Victims(self._trial, ranks)
            return self._hunt(group, action, victims, refused)

        self._in_turn((one for one in groups if not self._is_barred(one, action)), attempt)
        return [group for group in groups if self._wants_more(group)]

    def _hunt(
        self,
        group: Group,
        action: Action,
        victims: Victims,
        refused: dict[Hashable, Reason],
    ) -> Reason | None:
        """Makes room for the next chunk of a group by one action; why not, if not."""
        state = self._state
        delayed = self._delay(group)
        if delayed is not None:
            return delayed
        chunk = self._chunk(group)
        if not isinstance(chunk, Chunk):
            return chunk
        policy = self._policy(group)
        key = self._key(chunk, policy), group.queue, group.priority, group.preemptible
        if key[0] is not None and key in refused:
            return refused[key]
        asked = asked_by(state, chunk)
        eligibility = Eligibility(state, self._shares, group, asked, action)
        unfair = eligibility.may_reclaim()
        if unfair is not None:
            return unfair
        cursor = state.memory.cursors.get(group.key)
        skips = cursor.looked if cursor is not None and cursor.action is action else ()
        hunt = Hunt(
            self._trial,
            eligibility,
            victims,
            policy,
            last_step=self._search_end,
            skips=skips,
        )
        before, mark = balance(state, group.queue), state.mark()
        try:
            taken = hunt.run(chunk)
        except CutShortError:
            self._cursors[group.key] = Cursor(action, hunt.looked)
            return SearchCut(action, sum(hunt.looked))
        if hunt.wake is not None:
            self._wake_at(hunt.wake)
        if not isinstance(taken, Sequence):
            refused[key] = taken
            return taken
        for one in taken:
            self._trial.wait(one.pod)
        over = excess(state, before)
        if over is not None:
            state.rollback(mark)
        return over

    def _is_barred(self, group: Group, action: Action) -> bool:
        """Whether an action is not for a group."""
        policy = self._policy(group)
        if action is Action.CONSOLIDATE:
            spreads = Order.SPREAD in (policy.nodes, policy.devices)
            return not group.preemptible or spreads
        return not group.preempts

    def _delay(self, group: Group) -> Delayed | None:
        """How long nothing is evicted for a group."""
        since = max(group.created, group.evicted or group.created)
        until = since + group.preemption_delay
        if until <= self._state.now:
            return None
        self._wake_at(until)
        return Delayed(until)

    def _evict_stale(self) -> None:
        """Evicts groups that have had fewer pods than they need for too long."""
        state = self._state
        for key in self._broken:
            group = state.groups[key]
            if is_satisfied(state, group) or self._has_succeeded(key):
                continue
            self._stale.append(key)
            grace = group.staleness_grace
            grace = state.settings.staleness_grace if grace is None else grace
            since = state.now if group.stale_since is None else group.stale_since
            if since + grace > state.now:
                if not isinf(grace):
                    self._wake_at(since + grace)
                continue
            for pod in active_pods(state, key):
                if isinstance(pod.state, Placed) and state.disrupt(pod):
                    self._trial.evict(pod, Action.STALE, key)

    def _has_succeeded(self, key: str) -> bool:
        states = (
            self._state.pods[pod].state
            for of in self._state.members[key].by_set.values()
            for pod in of
        )
        return any(isinstance(one, Ended) and one.succeeded for one in states)

    # What was promised.

    def _keep_nominations(self) -> None:
        """Gives pods the places that earlier cycles have promised them, where that still holds."""
        by_group: dict[str, list[Nomination]] = {}
        for nomination in self._state.memory.nominations:
            pod = self._state.pods.get(nomination.pod)
            if pod is not None and pod.group in self._state.groups:
                by_group.setdefault(pod.group, []).append(nomination)
        for key in sorted(by_group):
            mark = self._state.mark()
            taken = []
            for nomination in sorted(by_group[key], key=lambda one: one.pod):
                one = self._keep(nomination)
                if one is None:
                    self._state.rollback(mark)
                    break
                taken.append(one)
            else:
                self._wait_together(self._state.groups[key], taken)

    def _keep(self, nomination: Nomination) -> Taken | None:
        """Gives a pod its promised place, if it waits for it and the place is there."""
        state = self._state
        pod, node = state.pods[nomination.pod], nomination.node
        room = state.rooms.get(node)
        if room is None or not state.is_pending(pod.key) or room.lacks(pod.needs) is not None:
            return None
        if node not in self._places.candidates(pod, None):
            return None
        for claim, allocation in nomination.allocations:
            is_open = claim in pod.claims and state.allocation(claim) is None
            if not is_open or not state.cluster.fits(allocation):
                return None
        promised = Place(node, nomination.allocations, waits=False)
        waits = not self._places.is_free_now(pod, promised)
        place = Place(node, nomination.allocations, waits)
        self._trial.take(pod, place)
        return Taken(pod, place)

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
        waiting = {
            key: tuple(reasons)
            for key, reasons in sorted(
                {**{k: list(v) for k, v in state.memory.refusals.items()}, **self._reasons}.items()
            )
            if key in state.waiting and reasons
        }
        memory = Memory(
            nominations=tuple(
                one for one in nominations if isinstance(state.pods[one.pod].state, Pending)
            ),
            refusals={key: of for key, of in waiting.items() if key not in self._cursors},
            cursors=dict(sorted(self._cursors.items())),
            wake=self._wake,
        )
        resources = state.tree.resources
        return Plan(
            starts=tuple(starts),
            nominations=tuple(nominations),
            evictions=tuple(trial.evictions.values()),
            waiting=waiting,
            fair_shares={
                name: {
                    describe(resource): amount
                    for resource, amount in zip(resources, self._shares.fair(name), strict=True)
                }
                for name in state.tree.queues
            },
            memory=memory,
            stale=tuple(self._stale),
            steps=self._places.steps - self._first_step,
            wake=self._wake,
        )

    def _wake_at(self, time: float) -> None:
        self._wake = time if self._wake is None else min(self._wake, time)

    def _policy(self, group: Group) -> Policy:
        settings = self._state.settings
        return group.placement or self._state.tree.placement(group.queue, settings.placement)

    def _key(self, chunk: Chunk, policy: Policy) -> Hashable | None:
        """Equal for chunks of which one has room where the other would; None if unknown."""
        if _has_topology(chunk) and chunk.held:
            return None
        return policy, self._shape(chunk)

    def _shape(self, chunk: Chunk) -> Hashable:
        return (
            chunk.part.topology,
            tuple(map(self._places.kind, chunk.pods)),
            tuple(map(self._shape, chunk.children)),
        )

    def _about(self, reason: Reason, chunk: Chunk) -> Reason:
        """A reason that was found for a chunk like this one, with the name of its own pod."""
        if isinstance(reason, NoRoom):
            pods = [pod.key for pod in chunk.all_pods()]
            return reason if reason.pod in pods else replace(reason, pod=pods[-1])
        return reason


class _Taker:
    """Gives a pod a place where there is one."""

    def __init__(self, trial: Trial, policy: Policy) -> None:
        self._trial = trial
        self._policy = policy

    def take(
        self, pod: Pod, within: frozenset[str] | None, avoided: Container[str]
    ) -> Place | Reason:
        place = self._trial.places.find(pod, self._policy, within, avoided)
        if isinstance(place, Place):
            self._trial.take(pod, place)
            return place
        return place or self._trial.places.why_not(pod, within)


def _has_topology(chunk: Chunk) -> bool:
    return chunk.part.topology is not None or any(map(_has_topology, chunk.children))
