"""The plan that disturbs least, found by trying all of them, with books of its own.

A pod stays, goes for good, or moves. Of all ways that the rules of the action permit and that leave
room for the group that waits and for those who move, the first in the order of `Disturbance` is
the best.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import itemgetter
from typing import Final, NamedTuple

from controller.engine.model.plan import Action, Plan
from tests.unit.controller.engine.properties.occupancy import placements
from tests.unit.controller.engine.properties.small_clusters import UNITS, Case, Size, Work

_NOBODY: Final = -1_000


class Disturbance(NamedTuple):
    """How much a plan disturbs, the least first."""

    bystanders: bool
    """Whether somebody moves whose queue need not give."""
    falls: bool
    """Whether a group ends, rather than spare some pods."""
    turn: int
    """Whether a queue gives before another one that has more beyond its quota."""
    is_below: bool
    """Whether a queue is left with less than its quota."""
    priority: int
    """The highest priority of a group that falls."""
    gone: int
    """The pods that are evicted for good."""
    groups: int
    """The groups that fall."""
    pods: int
    """The pods that go or move."""
    ages: tuple[int, ...]
    """When their groups were created, negated, the oldest first: the youngest groups are least."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who goes for good, and who moves, by their index."""

    gone: frozenset[int]
    moved: frozenset[int]


def chosen(case: Case, plan: Plan) -> Choice | None:
    """What a plan has chosen; None if the group that waits gets no place."""
    placed = {step.pod for step in placements(plan)}
    if not all(case.wanted_name(index) in placed for index in range(len(case.wanted))):
        return None
    index_of = {case.name(index): index for index in range(len(case.pods))}
    evicted = {index_of[one.pod] for one in plan.evictions}
    moved = {index for index in evicted if case.name(index) in placed}
    return Choice(frozenset(evicted - moved), frozenset(moved))


class BruteForce:
    """All choices for one case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        # By who goes for good: who moves changes neither, and many choices differ in that alone.
        self._known_turns: dict[frozenset[int], int | None] = {}
        self._known_holdings: dict[frozenset[int], dict[str, int]] = {}

    def has_room(self) -> bool:
        """Whether the group that waits needs nobody to go."""
        return self._fits(frozenset(), ())

    def could_ever(self) -> bool:
        """Whether there are as many units free as the group wants that waits."""
        wanted = sum(size.total for size in self._case.wanted)
        return sum(map(sum, self._free(frozenset()))) >= wanted

    def best(self) -> Disturbance | None:
        """How little the best choice disturbs; None if none is possible."""
        known: dict[tuple[frozenset[int], frozenset[int]], bool] = {}
        for disturbance, choice in sorted(self._permitted(), key=itemgetter(0)):
            key = choice.gone | choice.moved, choice.moved
            if key not in known:
                known[key] = self._fits(key[0], [self._case.pods[at].size for at in choice.moved])
            if known[key] and not self._is_needless(choice):
                return disturbance
        return None

    def _is_needless(self, choice: Choice) -> bool:
        """Whether somebody goes for good who could stay, so that it is the turn of another one."""
        for name in {self._case.pods[at].group for at in choice.gone}:
            members = self._members[name] & choice.gone
            is_spared = len(self._members[name]) - len(members) >= self._case.groups[name].least
            for staying in (frozenset({at}) for at in members) if is_spared else (members,):
                left = (choice.gone | choice.moved) - staying
                if self._fits(left, [self._case.pods[at].size for at in choice.moved]):
                    return True
        return False

    def disturbance(self, choice: Choice) -> Disturbance | None:
        """How much a choice disturbs; None if the rules forbid it."""
        case = self._case
        if any(at not in self._eligible for at in choice.gone | choice.moved):
            return None
        falling = []
        for name, members in self._members.items():
            gone = choice.gone & members
            if not gone:
                continue
            if len(members) - len(gone) >= case.groups[name].least:
                continue
            if gone != members:
                return None
            falling.append(name)
        bystanders = False
        turn, is_below = 0, False
        match case.action:
            case Action.CONSOLIDATE:
                if choice.gone:
                    return None
            case Action.RECLAIM:
                worst = self._worst_turn(choice.gone, frozenset(falling))
                if worst is None:
                    return None
                turn = worst
                is_below = self._is_below(choice.gone)
                bystanders = any(not self._gives(at) for at in choice.moved)
            case _:
                pass
        disturbed = choice.gone | choice.moved
        return Disturbance(
            bystanders,
            bool(falling),
            turn,
            is_below,
            max((case.groups[name].priority for name in falling), default=_NOBODY),
            len(choice.gone),
            len(falling),
            len(disturbed),
            tuple(sorted((-self._work(at).created for at in disturbed), reverse=True)),
        )

    def _permitted(self) -> Iterator[tuple[Disturbance, Choice]]:
        eligible = sorted(self._eligible)
        wanted = sum(size.total for size in self._case.wanted)
        free = sum(map(sum, self._free(frozenset())))
        for fates in product("sgm", repeat=len(eligible)):
            gone = frozenset(at for at, fate in zip(eligible, fates, strict=True) if fate == "g")
            moved = frozenset(at for at, fate in zip(eligible, fates, strict=True) if fate == "m")
            if free + sum(self._case.pods[at].size.total for at in gone) < wanted:
                continue
            choice = Choice(gone, moved)
            disturbance = self.disturbance(choice)
            if disturbance is not None:
                yield disturbance, choice

    @cached_property
    def _members(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        for at, pod in enumerate(self._case.pods):
            found.setdefault(pod.group, set()).add(at)
        return {name: frozenset(members) for name, members in found.items()}

    @cached_property
    def _eligible(self) -> frozenset[int]:
        return frozenset(at for at in range(len(self._case.pods)) if self._may_go(at))

    def _may_go(self, at: int) -> bool:
        work = self._work(at)
        below = self._case.action is not Action.PREEMPT or work.priority < self._case.priority
        return work.preemptible and below

    def _work(self, at: int) -> Work:
        return self._case.groups[self._case.pods[at].group]

    # Queues.

    def _gives(self, at: int) -> bool:
        """Whether the queue of a pod has more than its quota as things are."""
        queue = self._work(at).queue
        return self._has(frozenset())[queue] > self._case.quotas[queue]

    def _is_below(self, gone: frozenset[int]) -> bool:
        """Whether a queue that gives is left with less than its quota."""
        has = self._has(gone)
        giving = {self._work(at).queue for at in gone}
        return any(has[queue] < self._case.quotas[queue] for queue in giving)

    def _has(self, gone: frozenset[int]) -> dict[str, int]:
        if (known := self._known_holdings.get(gone)) is not None:
            return known
        has = dict.fromkeys(self._case.quotas, 0)
        for at, pod in enumerate(self._case.pods):
            if at not in gone:
                has[self._work(at).queue] += pod.size.total
        self._known_holdings[gone] = has
        return has

    def _worst_turn(self, gone: frozenset[int], falling: frozenset[str]) -> int | None:
        """How far from its turn a queue gives at worst, in the best order; None if one need not."""
        if gone not in self._known_turns:
            spared = [frozenset({at}) for at in gone if self._case.pods[at].group not in falling]
            units = [*map(self._members.__getitem__, falling), *spared]
            self._known_turns[gone] = self._order(units, frozenset())
        return self._known_turns[gone]

    def _order(self, units: Sequence[frozenset[int]], gone: frozenset[int]) -> int | None:
        if not units:
            return 0
        has, quotas = self._has(gone), self._case.quotas
        giving = {
            self._work(at).queue
            for at in self._eligible - gone
            if has[self._work(at).queue] > quotas[self._work(at).queue]
        }
        best: int | None = None
        for index, unit in enumerate(units):
            queue = self._work(next(iter(unit))).queue
            if has[queue] <= quotas[queue]:
                continue
            ahead = sum(has[one] * quotas[queue] > has[queue] * quotas[one] for one in giving)
            rest = self._order([*units[:index], *units[index + 1 :]], gone | unit)
            if rest is not None and (best is None or max(rest, ahead) < best):
                best = max(rest, ahead)
            if best == 0:
                break
        return best

    # Cards.

    def _free(self, without: frozenset[int]) -> list[list[int]]:
        free = [[UNITS] * count for count in self._case.cards]
        for at, pod in enumerate(self._case.pods):
            if at not in without:
                for card in pod.cards:
                    free[pod.node][card] -= pod.size.units
        return free

    def _fits(self, without: frozenset[int], moved: Sequence[Size]) -> bool:
        sizes = sorted([*self._case.wanted, *moved], key=lambda one: (-one.total, -one.units))
        return _fits(self._free(without), sizes)


def _fits(free: list[list[int]], sizes: Sequence[Size]) -> bool:
    """Whether all of some pods have room on the cards of nodes."""
    if not sizes:
        return True
    size, rest = sizes[0], sizes[1:]
    for node, cards in enumerate(free):
        if size.nodes is not None and node not in size.nodes:
            continue
        for chosen_cards in _places(cards, size):
            for card in chosen_cards:
                cards[card] -= size.units
            fits = _fits(free, rest)
            for card in chosen_cards:
                cards[card] += size.units
            if fits:
                return True
    return False


def _places(cards: Sequence[int], size: Size) -> Iterator[tuple[int, ...]]:
    """The ways to have units of cards of a node, of which no two leave the same."""
    if size.units == UNITS:
        free = [card for card, left in enumerate(cards) if left == UNITS]
        if len(free) >= size.cards:
            yield tuple(free[: size.cards])
        return
    seen = set()
    for card, left in enumerate(cards):
        if left >= size.units and left not in seen:
            seen.add(left)
            yield (card,)
