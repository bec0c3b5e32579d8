"""The nodes of a cluster for claims of one kind, the best first.

Each node has the best score that it could have, until it is its turn: then the conditions of the
demand are checked, and at last the devices are chosen. So nodes are looked at only until no other
can be better.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias, TypeVar, assert_never

from carina_dra.allocator.allocate import Chosen, choose
from carina_dra.allocator.errors import AllocationError, ExpressionError, NodeAllocationError
from carina_dra.allocator.pool import Candidate, InvalidPool
from carina_dra.allocator.preference import FAR, Policy
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.result import node_selector
from carina_dra.allocator.search import CutShort, Impossible
from carina_dra.allocator.usage import PoolId
from carina_dra.cel import AttributeExpression
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.demand import Bound, Demand, Short
from carina_dra.placement.eligibility import Eligibility
from carina_dra.placement.offer import OfferedPool, PoolState
from carina_dra.placement.order import Entry, NodeOrder
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceAttribute

T = TypeVar("T")

_STALE: Final = 3
"""With more entries than this for each node, the heap is made anew."""


class ExpiredError(Exception):
    """Time was up before the best node was found."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node does not have the devices."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The search on the node stopped at its limit of steps."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The node has no devices for the claims, and something of it is wrong."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """The attempt fails on all nodes: the policy is upstream's, or the error is the claim's."""

    entry: Entry
    error: AllocationError


@dataclass(frozen=True, slots=True)
class Suitable:
    """The node has devices for the claims."""

    entry: Entry
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class _Bounded:
    """The conditions of the demand are met."""

    entry: Entry
    bound: Bound


Finding: TypeAlias = Refused | Undecided | Failed | Fatal | Suitable
_Known: TypeAlias = Finding | _Bounded


class Ranking:
    """What is known of each node for claims of one kind."""

    def __init__(
        self,
        claims: tuple[Claim, ...],
        demand: Demand,
        cluster: Cluster,
        order: NodeOrder,
        policy: Policy,
        max_steps: int | None,
    ) -> None:
        self.claims = claims
        """The first of the kind that were asked for; errors name them."""
        self._demand = demand
        self._cluster = cluster
        self._order = order
        self._policy = policy
        self._max_steps = max_steps
        self._known: dict[str, _Known] = {}
        self._spent: dict[str, int] = {}
        """What the selectors have cost on each node, as the node is."""
        self._amounts = demand.amounts
        self._amounts_together = demand.amounts_together
        self._untouched: Sequence[Entry] = ()
        """The nodes as they were when nothing was known of any, in order."""
        self._begun = 0
        """How many of them have been taken."""
        self._within_reach: Entry | None = None
        """The first of the others, once it is known not to be out of reach."""
        self._left_out = False
        """Whether nodes were left out that lack an attribute: they cannot be suitable, but fail."""
        self._heap: list[Entry] = []
        """Those of which more is known, or that have changed."""
        self._aside: list[Entry] = []
        """Those that an iteration has taken; they return to the heap for the next one."""
        self._turn: object = None
        """Which iteration has taken them."""
        self._node_moment = self._pool_moment = -1

    @property
    def size(self) -> int:
        """The number of nodes of which something is known."""
        return len(self._known)

    def findings(self, nodes: Collection[str] | None) -> Iterator[tuple[str, Finding]]:
        """What was found on those of the nodes that have been looked at."""
        for name, known in self._known.items():
            if not isinstance(known, _Bounded) and (nodes is None or name in nodes):
                yield name, known

    def best(
        self,
        nodes: Collection[str] | None = None,
        cost: Callable[[str], int] | None = None,
        expired: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[str, Suitable]]:
        """The suitable nodes in the order of their scores, of these `nodes` or of all.

        Nodes of a smaller `cost` come first. What changes the cluster in between must be undone
        before the next node is asked for.

        Raises:
            AllocationError: the attempt fails on a node, which is named, and with it on all: with
                policy `upstream`, or since an expression does not compile.
            ExpiredError: time is up before the next node is found.
            BudgetError: the selectors have cost more than they may.
        """
        self._catch_up()
        if cost is None and (nodes is None or len(nodes) * 2 > len(self._cluster.nodes)):
            found = self._among_all(nodes, expired)
        else:
            names = self._cluster.nodes if nodes is None else nodes
            found = self._among(names, cost or (lambda _: 0), expired)
        for name, finding in found:
            if isinstance(finding, Fatal):
                raise _named(name, finding.error) from finding.error
            yield name, finding

    def _among_all(
        self, nodes: Collection[str] | None, expired: Callable[[], bool] | None
    ) -> Iterator[tuple[str, Suitable | Fatal]]:
        turn = object()
        passed: set[str] = set()
        while True:
            if self._turn is not turn:
                self._put_back()  # what another iteration has taken
                self._turn = turn
            entry = self._next(expired)
            if entry is None:
                return
            name = entry[3]
            known = self._known.get(name)
            self._aside.append(entry)
            if name in passed or (nodes is not None and name not in nodes):
                continue
            if isinstance(known, Suitable | Fatal):
                passed.add(name)
                yield name, known
                self._catch_up()  # a trial may have come and gone
            else:
                self._look(name, entry, expired)  # if time is up, the entry stays
                self._aside.pop()

    def _put_back(self) -> None:
        for entry in self._aside:
            heappush(self._heap, entry)
        self._aside = []

    def _next(self, expired: Callable[[], bool] | None) -> Entry | None:
        """Takes the best entry of all nodes."""
        untouched, heap = self._untouched, self._heap
        while True:
            while self._begun < len(untouched):
                first = untouched[self._begun]
                if first is self._within_reach or not self._is_out_of_reach(first[3]):
                    self._within_reach = first
                    break
                if expired is not None and expired():
                    raise ExpiredError
                self._begun += 1
            if self._begun < len(untouched) and not (heap and heap[0] < untouched[self._begun]):
                entry = untouched[self._begun]
                self._begun += 1
            elif heap:
                entry = heappop(heap)
            elif self._left_out:
                self._left_out = False
                self._untouched, self._begun = tuple(self._order.entries()), 0
                untouched = self._untouched
                continue
            else:
                return None
            if self._entry(entry[3]) is entry:
                return entry

    def _among(
        self,
        names: Iterable[str],
        cost: Callable[[str], int],
        expired: Callable[[], bool] | None,
    ) -> Iterator[tuple[str, Suitable | Fatal]]:
        known_entries = ((name, self._entry(name)) for name in names)
        heap = [(cost(name), entry) for name, entry in known_entries if entry is not None]
        heapify(heap)
        while heap:
            of_node, entry = heappop(heap)
            name = entry[3]
            known = self._known.get(name)
            if isinstance(known, Suitable | Fatal):
                yield name, known
                self._catch_up()  # a trial may have come and gone
                continue
            self._look(name, entry, expired)
            after = self._entry(name)
            if after is not None:
                heappush(heap, (of_node, after))

    def _entry(self, name: str) -> Entry | None:
        """The entry of a node; None if it is known not to be suitable."""
        known = self._known.get(name)
        match known:
            case None:
                return self._order.entry(name)
            case _Bounded(entry=entry) | Suitable(entry=entry) | Fatal(entry=entry):
                return entry
            case Refused() | Undecided() | Failed():
                return None
        assert_never(known)

    def _is_out_of_reach(self, name: str) -> bool:
        """Whether a node is refused without a look at each of its devices."""
        if self._is_upstream or not self._demand.compiles:
            return False  # then an error on a node matters, whatever the node has
        asks = self._amounts or self._amounts_together
        if asks and not self._order.has_room(name, self._amounts, self._amounts_together):
            return True
        if not self._demand.may_be_out_of_reach:
            return False
        try:
            offer = self._cluster.offer(name)
        except (AllocationError, KeyError):  # the node's allocations fail, or it is gone
            return False
        if len(offer.ready) < len(offer.pools):
            return False  # what is wrong with a pool is reported
        ready: Sequence[OfferedPool] = offer.ready
        if self._cluster.has_wide_pools and not self._order.wide:
            # None of their devices is asked for, and their usage changes without the node.
            ready = [one for one in ready if not self._cluster.is_wide(one.pool.id)]
        return self._demand.is_out_of_reach([self._cluster.pool_state(one) for one in ready])

    def _look(self, name: str, entry: Entry, expired: Callable[[], bool] | None) -> None:
        """Finds out more of a node: first whether it meets the conditions, then its devices."""
        if expired is not None and expired():
            raise ExpiredError
        known = self._known.get(name)
        after: _Known
        if isinstance(known, _Bounded):
            after = self._attempt(entry, partial(self._choose_on, name, known.bound, expired))
        else:
            after = self._attempt(entry, partial(self._check, name, entry))
        self._known[name] = after
        current = self._entry(name)
        if current is not None:
            heappush(self._heap, current)

    def with_reserved(
        self, name: str, reserved: Collection[str], expired: Callable[[], bool] | None
    ) -> Finding:
        """What is found on a node where the claims may use what is reserved; not remembered.

        Raises:
            AllocationError: as for `best`.
            ExpiredError: time is up.
            BudgetError: the selectors have cost more than they may.
        """
        if expired is not None and expired():
            raise ExpiredError
        entry = 0, 0, 0, name
        finding = self._attempt(entry, partial(self._find, name, entry, reserved, expired))
        if isinstance(finding, Fatal):
            raise _named(name, finding.error) from finding.error
        return finding

    def _attempt(self, entry: Entry, find: Callable[[], T]) -> T | Failed | Fatal:
        """What is found on a node, or what failed there; what it costs is charged to the node."""
        name, meter = entry[3], self._demand.eligibility.budget.meter
        before = meter.spent
        try:
            return find()
        except NodeAllocationError as error:
            return Failed(str(error))
        except ExpressionError as error:
            return Fatal(entry, error)
        except AllocationError as error:
            return Fatal(entry, error) if self._is_upstream else Failed(str(error))
        finally:
            if meter.spent > before:
                self._spent[name] = self._spent.get(name, 0) + meter.spent - before

    @property
    def _is_upstream(self) -> bool:
        return self._policy.devices is None

    def _check(self, name: str, entry: Entry) -> Refused | Failed | _Bounded:
        if entry is not self._within_reach and self._is_out_of_reach(name):
            return Refused()
        states = [self._cluster.pool_state(one) for one in self._cluster.offer(name).ready]
        return self._bound(name, entry, states)

    def _find(
        self,
        name: str,
        entry: Entry,
        reserved: Collection[str],
        expired: Callable[[], bool] | None,
    ) -> Suitable | Refused | Undecided | Failed:
        """What is found on a node as if some reservations did not exist."""
        usage = self._cluster.state(name, without=reserved).usage
        states = [PoolState.of(one, usage, None) for one in self._cluster.offer(name).ready]
        checked = self._bound(name, entry, states)
        if not isinstance(checked, _Bounded):
            return checked
        return self._choose(name, checked.bound, states, reserved, expired)

    def _bound(
        self, name: str, entry: Entry, states: Sequence[PoolState]
    ) -> Refused | Failed | _Bounded:
        """Whether a node with these states of its pools meets the conditions of the demand."""
        offer = self._cluster.offer(name)
        if self._is_upstream and self._demand.has_all:
            bound: Bound | Short = Bound(0, 0)  # all devices that a constraint forbids are an error
        else:
            is_whole = len(offer.ready) == len(offer.pools)
            bound = self._demand.bound(states, is_whole=is_whole, wish=not self._is_upstream)
        if isinstance(bound, Short):
            is_invalid = any(isinstance(one, InvalidPool) for one in offer.pools)
            if not is_invalid and not self._may_be_fatal(bound, states):
                return Failed(bound.error) if bound.error else Refused()
            bound = Bound(0, 0)  # whether and which error matters, only the search can tell
        return _Bounded((bound.alternatives, bound.distance, entry[2], name), bound)

    def _may_be_fatal(self, short: Short, states: Sequence[PoolState]) -> bool:
        """Whether an error on the node may be one of the whole attempt."""
        if self._is_upstream:
            return bool(short.error) or self._demand.may_fail(states)
        return bool(short.error) and not self._demand.compiles

    def _choose_on(
        self, name: str, bound: Bound, expired: Callable[[], bool] | None
    ) -> Suitable | Refused | Undecided:
        states = [self._cluster.pool_state(one) for one in self._cluster.offer(name).ready]
        return self._choose(name, bound, states, (), expired)

    def _choose(
        self,
        name: str,
        bound: Bound,
        states: Sequence[PoolState],
        reserved: Collection[str],
        expired: Callable[[], bool] | None,
    ) -> Suitable | Refused | Undecided:
        verdict = choose(
            self.claims,
            self._cluster.state(name, without=reserved),
            policy=self._policy,
            max_steps=self._max_steps,
            expired=expired,
            uses=[state.uses for state in states],
            # That the first alternatives are impossible says that they are at no distance.
            least_distance=FAR if bound.alternatives else bound.distance,
            among=bound.among,
            known=_KnownOfNode(self._demand.eligibility, states),
        )
        if expired is not None and expired():
            raise ExpiredError  # a search that was ended may have missed better devices
        match verdict:
            case Chosen(score=score, choices=choices):
                for of_claim in choices:
                    node_selector(of_claim, self._cluster.nodes[name])  # an error of the node
                return Suitable((score.alternatives, score.distance, score.use, name), verdict)
            case Impossible():
                return Refused()
            case CutShort():
                return Undecided()
        assert_never(verdict)

    def _catch_up(self) -> None:
        """Forgets what was known of nodes that have changed."""
        cluster = self._cluster
        moments = self._node_moment, self._pool_moment
        if moments == (cluster.changed_nodes.now, cluster.changed_pools.now):
            return
        starts = (
            self._node_moment < 0
            or not cluster.changed_nodes.is_known_since(self._node_moment)
            or (self._pool_moment != cluster.changed_pools.now and self._order.wide)
        )
        nodes = list(self._spent if starts else cluster.changed_nodes.since(self._node_moment))
        self._pool_moment = cluster.changed_pools.now
        self._node_moment = cluster.changed_nodes.now
        if starts:
            self._known.clear()
        for name in nodes:
            self._known.pop(name, None)
            self._demand.eligibility.budget.give_back(self._spent.pop(name, 0))
        if starts:
            self._begin(self._promising())
        elif len(self._heap) + len(nodes) > _STALE * len(cluster.nodes):
            entries = [self._entry(name) for name in cluster.nodes]
            self._begin(sorted(entry for entry in entries if entry is not None))
        else:
            for name in nodes:
                entry = self._order.entry(name)
                if entry is not None:
                    heappush(self._heap, entry)

    def _begin(self, entries: Sequence[Entry]) -> None:
        self._untouched, self._begun, self._heap, self._aside = entries, 0, [], []
        self._within_reach = None

    def _promising(self) -> Sequence[Entry]:
        """The nodes with devices that have the attributes which selectors ask for."""
        self._left_out = False
        names = None if self._is_upstream else self._cluster.nodes_with(self._demand.attributes)
        if names is not None:
            self._left_out = True
            entries = (self._order.entry(name) for name in names)
            return sorted(entry for entry in entries if entry is not None)
        return tuple(self._order.entries())


def _named(node: str, error: AllocationError) -> AllocationError:
    """The error of the whole attempt, with the node on which it was met."""
    return type(error)(f"node {node}: {error}")


class _KnownOfNode:
    """What was found when the conditions were checked, for the search."""

    def __init__(self, eligibility: Eligibility, states: Iterable[PoolState]) -> None:
        self._eligibility = eligibility
        self._offered = {state.offered.pool.id: state.offered for state in states}

    def selects(self, alternative: Alternative, candidate: Candidate) -> bool | None:
        offered = self._offered[PoolId(candidate.id.driver, candidate.id.pool)]
        return self._eligibility.selects(alternative, candidate, offered)

    def amounts(
        self, alternative: Alternative, candidate: Candidate
    ) -> Mapping[str, Quantity] | None:
        return self._eligibility.amounts_of(alternative, candidate)

    def derived(
        self, expression: AttributeExpression, candidate: Candidate
    ) -> DeviceAttribute | None:
        return self._eligibility.derived(expression, candidate)
