"""Who may be evicted for whom: the rules of preemption, reclaim and consolidation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

from controller.engine.decide.queues.givers import gives_before
from controller.engine.decide.queues.overrun import is_due, overruns
from controller.engine.decide.queues.shares import Shares
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.model.reason import OverFairShare
from controller.engine.model.resource import Amounts, is_of_devices
from controller.engine.state.queue_tree import ROOT
from controller.engine.state.state import State


@dataclass(frozen=True, slots=True)
class Safe:
    """A group may not be evicted, or may not move, before a Unix time."""

    until: float


class Eligibility:
    """Who may be evicted for what one group asks for, by one action."""

    def __init__(
        self, state: State, shares: Shares, group: Group, asked: Amounts, action: Action
    ) -> None:
        self._state = state
        self._shares = shares
        self.group = group
        self._asked = asked
        self.action = action
        self.is_due = is_due(state, group)
        self._before = state.occupancy.accounts.allocated[group.queue]
        self._involved = [at for at, amount in enumerate(asked) if amount > 0]

    def may_lose(self, victim: Group) -> bool:
        """Whether a group of another name may be evicted, as far as does not change."""
        is_late = self.is_due and overruns(self._state, victim)
        if not victim.preemptible and not is_late:
            return False
        match self.action:
            case Action.PREEMPT:
                bound = self.group.priority + is_late
                return victim.queue == self.group.queue and victim.priority < bound
            case Action.RECLAIM:
                return victim.queue != self.group.queue
            case Action.CONSOLIDATE:
                return victim.moves and self._state.occupancy.tree.takes_work(victim.queue)
            case Action.STALE | Action.DRAIN | Action.RELEASE | Action.REPLACE:
                return False
        assert_never(self.action)

    def may_go(self, pod: Pod) -> bool:
        """Whether a pod with a place can be made to leave it, or to leave it sooner."""
        return isinstance(pod.state, Placed) or self.can_hasten(pod)

    def can_hasten(self, pod: Pod) -> bool:
        """Whether a pod is being deleted with a longer grace period than a reclaim leaves it."""
        return (
            self.action is Action.RECLAIM and isinstance(pod.state, Evicting) and pod.state.lingers
        )

    def safety(self, victim: Group) -> Safe | None:
        """How long a group is safe since it started (min-runtimes); None if it is not."""
        tree, settings = self._state.occupancy.tree, self._state.settings
        if victim.started is None or victim.queue not in tree.queues:
            return None
        if self.action in (Action.STALE, Action.DRAIN, Action.RELEASE, Action.REPLACE):
            return None
        is_moved = self.action is Action.CONSOLIDATE  # which costs it as much as to be evicted
        if self.action is Action.PREEMPT or (is_moved and victim.queue == self.group.queue):
            least = tree.preempt_min_runtime(victim.queue, settings.preempt_min_runtime)
        else:
            default = settings.reclaim_min_runtime
            least = tree.reclaim_min_runtime(victim.queue, self.group.queue, default)
        until = victim.started + least
        return Safe(until) if until > self._state.now else None

    def rest(self, victim: Group) -> Safe | None:
        """How long a group does not move, since a pod of it was evicted; None if it may."""
        if victim.evicted is None:
            return None
        until = victim.evicted + self._state.settings.move_interval
        return Safe(until) if until > self._state.now else None

    def may_reclaim(self) -> OverFairShare | None:
        """Why nothing is reclaimed for the group: it would exceed its queue's fair share."""
        if self.action is not Action.RECLAIM:
            return None
        queue, tree = self.group.queue, self._state.occupancy.tree
        allocated, fair = self._state.occupancy.accounts.allocated[queue], self._shares.fair(queue)
        for at in self._involved:
            if allocated[at] + self._asked[at] > fair[at]:
                resource = tree.resources[at]
                return OverFairShare(queue, resource, fair[at], allocated[at], self._asked[at])
        return None

    def exceeds_share(self, has: Amounts) -> OverFairShare | None:
        """Whether a preemption has taken more for its queue, and more than the fair share.

        What is left over where it evicts would else be taken by those who cannot keep it: others
        reclaim it, and so on. Where there is room without evictions, a queue may exceed its share.
        `has` is what the queue has before victims move to such room.
        """
        if self.action is not Action.PREEMPT:
            return None
        queue, tree = self.group.queue, self._state.occupancy.tree
        fair = self._shares.fair(queue)
        for at in self._involved:
            if has[at] > self._before[at] and has[at] > fair[at]:
                resource = tree.resources[at]
                return OverFairShare(queue, resource, fair[at], self._before[at], self._asked[at])
        return None

    def may_take_from(self, victim: str) -> bool:
        """Whether the queue of a victim has to give, as things are in the trial.

        Where the ways up from both queues meet, either the victim's side has more than it may count
        on, or the reclaimer's side stays within its quota and the victim's exceeds its own. What
        still runs in a queue above the reclaimer's, from before it had children, has no side, nor
        has a group whose queue is not in the tree: they give.
        """
        if self.action is not Action.RECLAIM:
            return True
        tree, accounts = self._state.occupancy.tree, self._state.occupancy.accounts
        if victim in tree.paths[self.group.queue] or victim not in tree.queues:
            return True
        ours, theirs = self._sides(victim)
        has, allocatable = accounts.allocated[theirs], self._shares.allocatable(theirs)
        if any(has[at] > allocatable[at] for at in self._involved):
            return True
        return self._is_within_quota(ours) and self._exceeds_quota(theirs)

    def turn(self, queue: str, others: Iterable[str]) -> int:
        """How many of other queues have to give before this one, as things are in the trial."""
        if self.action is not Action.RECLAIM:
            return 0
        return sum(
            gives_before(self._state.occupancy, self._shares, other, queue) for other in others
        )

    def is_below(self, queue: str) -> bool:
        """Whether a queue that gives, or one up to its side, has less than it may count on."""
        tree = self._state.occupancy.tree
        if queue not in tree.queues or queue in tree.paths[self.group.queue]:
            return False
        path = tree.paths[queue]
        for name in path[: path.index(self._sides(queue)[1]) + 1]:
            has, allocatable = (
                self._state.occupancy.accounts.allocated[name],
                self._shares.allocatable(name),
            )
            if any(has[at] < allocatable[at] for at in self._involved):
                return True
        return False

    def may_take(self, victim: Group) -> bool:
        """Whether a group has to give, as things are in the trial."""
        return self.may_take_from(victim.queue) or self._is_in_the_way(victim)

    def _is_in_the_way(self, victim: Group) -> bool:
        """Whether a group without devices takes cpu, memory or pods from one with a quota of these.

        What a queue may have of them without naming them goes with its devices: otherwise a queue
        without a quota could keep all devices from their owner by the cpu beside them.
        """
        if not self._has_quota_of_devices or victim.queue == self.group.queue:
            return False
        return self._counts_on_none(victim.queue) and not self._state.occupancy.has_devices(
            victim.key
        )

    @cached_property
    def _has_quota_of_devices(self) -> bool:
        """Whether the group asks for devices within the quota of its queue."""
        tree = self._state.occupancy.tree
        if self.action is not Action.RECLAIM or self.group.queue not in tree.queues:
            return False
        involved = [at for at in self._involved if is_of_devices(tree.resources[at])]
        return bool(involved) and all(map(self._is_within_quota, tree.paths[self.group.queue]))

    def _counts_on_none(self, queue: str) -> bool:
        """Whether neither a queue nor one above names what pods take themselves."""
        tree = self._state.occupancy.tree
        return queue in tree.queues and all(
            is_of_devices(resource)
            for name in tree.paths[queue]
            for resource in tree.queues[name].entitlements
        )

    def has_borrowed(self, victim: Group) -> bool:
        """Whether a group has what its queue is not guaranteed."""
        return self._is_in_the_way(victim) or self._has_borrowed(victim.queue)

    def _has_borrowed(self, victim: str) -> bool:
        """Whether the queue of a victim, and each one up to its side, has more than its quota.

        Only what is asked for counts.
        """
        tree = self._state.occupancy.tree
        path = tree.paths[victim]
        if victim not in tree.paths[self.group.queue]:
            path = path[: path.index(self._sides(victim)[1]) + 1]
        else:
            path = path[:1]
        return all(map(self._exceeds_quota, path))

    def excess(self, victim: str) -> tuple[str, Mapping[int, int]] | None:
        """How much more the side of a victim's queue has than it keeps in any case, by resource.

        It gives while it has more of any of what is asked for. With the name of the side. None if
        nothing says how much it gives at most.
        """
        tree, accounts = self._state.occupancy.tree, self._state.occupancy.accounts
        if victim in tree.paths[self.group.queue] or victim not in tree.queues:
            return None
        ours, theirs = self._sides(victim)
        has, keeps = accounts.allocated[theirs], accounts.keeps(theirs)
        kept = list(self._shares.allocatable(theirs))
        # What others give below our side may leave it within its quota later.
        if ours != self.group.queue or self._is_within_quota(ours):
            quotas = tree.quotas(theirs)
            for at in self._involved:
                quota = quotas[at]
                if quota is None:
                    continue
                if keeps[at] != has[at]:
                    return None  # it gives for parts of GPUs, of which many may come to one
                kept[at] = min(kept[at], quota)
        over = {at: has[at] - kept[at] for at in self._involved if has[at] > kept[at]}
        return theirs, over

    def may_take_from_any(self) -> bool:
        """Whether a queue that has to give has pods that may go, as things are in the trial."""
        holders = self._state.occupancy.holders
        match self.action:
            case Action.PREEMPT:
                bound = self.group.priority + self.is_due
                return any(priority < bound for priority in holders.get(self.group.queue, ()))
            case Action.RECLAIM:
                others = [
                    queue
                    for queue, priorities in holders.items()
                    if priorities and queue not in (self.group.queue, ROOT)
                ]
                return any(map(self.may_take_from, others)) or (
                    self._has_quota_of_devices
                    and any(
                        self._state.occupancy.without_devices.get(queue)
                        and self._counts_on_none(queue)
                        for queue in others
                    )
                )
            case Action.CONSOLIDATE | Action.STALE | Action.DRAIN | Action.RELEASE | Action.REPLACE:
                return True
        assert_never(self.action)

    def stays_fair(self, victims: Sequence[str]) -> bool:
        """Whether the group has, with what it gets, no more of its share than those who gave.

        At every level, the reclaimer's side may have more than its fair share only as long as its
        siblings that gave have a larger part of theirs. `victims` are the queues that gave; the
        group has its devices already.
        """
        if self.action is not Action.RECLAIM:
            return True
        tree, accounts, shares = (
            self._state.occupancy.tree,
            self._state.occupancy.accounts,
            self._shares,
        )
        gave = {name for victim in victims for name in tree.paths.get(victim, ())}
        for name in tree.paths[self.group.queue]:
            siblings = tree.children[tree.queues[name].parent or ""]
            has, fair = accounts.allocated[name], shares.fair(name)
            for sibling in siblings:
                if sibling == name or sibling not in gave:
                    continue
                other, of_other = accounts.allocated[sibling], shares.fair(sibling)
                for at in self._involved:
                    if has[at] > fair[at] and has[at] * of_other[at] >= other[at] * fair[at]:
                        return False
        return True

    def _is_within_quota(self, queue: str) -> bool:
        """Whether a queue above the group has quota for what the group asks for."""
        accounts, quotas = self._state.occupancy.accounts, self._state.occupancy.tree.quotas(queue)
        has, ours = accounts.allocated[queue], accounts.allocated[self.group.queue]
        return all(
            (quota := quotas[at]) is None
            or has[at] - (ours[at] - self._before[at]) + self._asked[at] <= quota
            for at in self._involved
        )

    def _exceeds_quota(self, queue: str) -> bool:
        """Whether a queue has more than its quota of what is asked for.

        Parts of more GPUs than its quota are more: nobody else could have these as whole ones.
        """
        tree, accounts = self._state.occupancy.tree, self._state.occupancy.accounts
        has, keeps = accounts.allocated[queue], accounts.keeps(queue)
        quotas, kept = tree.quotas(queue), tree.kept_quotas(queue)
        return any(
            (quota := quotas[at]) is not None and (has[at] > quota or keeps[at] > (kept[at] or 0))
            for at in self._involved
        )

    def _sides(self, victim: str) -> tuple[str, str]:
        """The queues just below where the ways up from both queues meet: ours, the victim's."""
        tree = self._state.occupancy.tree
        ours, theirs = tree.paths[self.group.queue], tree.paths[victim]
        at = -1
        while ours[at] == theirs[at]:
            at -= 1  # neither is above the other
        return ours[at], theirs[at]
