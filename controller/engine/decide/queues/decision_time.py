"""Decision time, shared by deficit: per queue, and in it per namespace.

What attempts cost in steps is charged to the queue of the group and to its namespace there. Each
cycle gives every account an allowance. Who has spent more is in debt, and is not asked while
somebody else asks, until later allowances have paid that off.

An attempt that is undecided ends a cycle, for whose end all others wait. Who has had one is
asked after all others for a while: however many of them there are, nobody waits for another one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from controller.engine.model.group import Group

_ALLOWANCE: Final = 10_000
"""Steps for each account in each cycle: a tenth of a second, or hundreds of pods that start."""
_LATE_SECONDS: Final = 300.0
"""For how long a namespace is asked after others: longer than hundreds of undecided attempts."""
_NOBODY: Final[Mapping[str, float]] = MappingProxyType({})


class DecisionTime:
    """The accounts of decision time in one cycle."""

    def __init__(
        self,
        debts: Mapping[str, int],
        limit: int,
        part: int,
        late: Mapping[str, float] = _NOBODY,
        now: float = 0.0,
    ) -> None:
        """`debts` are those that the last cycle has left; nobody owes more than `limit`.

        `part` is what an account may spend in a cycle before all others have been asked. `late` are
        those that are asked after others now, and until when.
        """
        self._debts = debts
        self._limit = limit
        self._part = part
        self._late = {account: until for account, until in late.items() if until > now}
        self._now = now
        self.late_namespaces = frozenset(account.rpartition("/")[2] for account in self._late)
        """Those that are asked after others in some queue."""
        self._spent: dict[str, int] = {}
        self._overdrawn: set[str] = set()

    def charge(self, group: Group, steps: int) -> None:
        """Charges what an attempt for a group has cost, whatever came of it."""
        for account in (_queue(group), _namespace(group)):
            self._spent[account] = self._spent.get(account, 0) + steps

    def parts(self, groups: Sequence[Group]) -> Sequence[Callable[[Group], bool]]:
        """What delays these groups, the one that delays most first; nobody waits for himself."""
        queues = {group.queue for group in groups}
        if len(queues) > 1:
            return self.has_spent, self.has_spent_most
        first = next(map(_namespace, groups), None)
        is_alone = all(_namespace(group) == first for group in groups)
        return () if is_alone else (self.has_spent_most,)

    def has_spent(self, group: Group) -> bool:
        """Whether a group has had its part of this cycle, so that others come first."""
        # Its queue has been charged with all that its namespace has.
        return self._spent.get(_queue(group), 0) >= self._part

    def has_spent_most(self, group: Group) -> bool:
        """Whether the group's namespace has had that by itself, so that others of the queue come
        first.
        """
        return self._spent.get(_namespace(group), 0) >= self._part

    def has_spent_nothing(self, group: Group) -> bool:
        """Whether nothing has been tried for the group's namespace in its queue in this cycle."""
        return not self._spent.get(_namespace(group))

    def overdraw(self, group: Group) -> None:
        """Records that an attempt for a group has used up its whole budget in vain."""
        account = _namespace(group)
        self._overdrawn.add(account)
        self._late[account] = self._now + _LATE_SECONDS

    def is_late(self, group: Group) -> bool:
        """Whether the group's namespace is asked after others in its queue."""
        return _namespace(group) in self._late

    def is_overdrawn(self, group: Group) -> bool:
        """Whether nothing more of the group's namespace in its queue is asked in this cycle.

        Otherwise a cycle, for whose end all others wait, would last for as many attempts as a
        tenant has expensive groups.
        """
        return bool(self._overdrawn) and _namespace(group) in self._overdrawn

    def turn(self, groups: Iterable[Group]) -> tuple[list[Group], list[Group]]:
        """Who of these groups is asked in this cycle, and who after them.

        Those of queues without debt are; if there are none, those of the queue that owes least. The
        same holds for the namespaces of each queue.
        """
        by_queue: dict[str, list[Group]] = {}
        for group in self._least(groups, _queue):
            by_queue.setdefault(group.queue, []).append(group)
        asked: list[Group] = []
        late: list[Group] = []
        for of_queue in by_queue.values():
            for group in self._least(of_queue, _namespace):
                (late if _namespace(group) in self._late else asked).append(group)
        return asked, late

    def debts(self) -> Mapping[str, int]:
        """What is owed at the end of the cycle, by account."""
        left = {
            account: min(
                self._debts.get(account, 0) + self._spent.get(account, 0) - _ALLOWANCE, self._limit
            )
            for account in sorted(self._debts.keys() | self._spent.keys())
        }
        return {account: debt for account, debt in left.items() if debt > 0}

    def late(self) -> Mapping[str, float]:
        """Who is asked after others, and until when."""
        return dict(sorted(self._late.items()))

    def _least(self, groups: Iterable[Group], account: Callable[[Group], str]) -> list[Group]:
        """The groups whose accounts owe nothing, or else those of the one that owes least."""
        known = list(groups)
        if not self._debts:
            return known
        accounts = {account(group) for group in known}
        solvent = {holder for holder in accounts if not self._debts.get(holder)}
        if not solvent and accounts:
            solvent = {min(accounts, key=lambda holder: (self._debts[holder], holder))}
        return [group for group in known if account(group) in solvent]


def _queue(group: Group) -> str:
    return group.queue


def _namespace(group: Group) -> str:
    namespace, _, _ = group.key.partition("/")
    return f"{group.queue}/{namespace}"
