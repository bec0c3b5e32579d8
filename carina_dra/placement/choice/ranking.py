"""The nodes of a cluster for claims of one kind, the best first.

Each node has the best score that it could have, until it is its turn. So nodes are looked at only
until no other can be better.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.placement.choice.findings import ExpiredError, Fatal, Findings, Suitable
from carina_dra.placement.choice.order import Entry, NodeOrder
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import OfferedPool
from carina_dra.step_budget import StepBudget

_STALE: Final = 3
"""With more entries than this for each node, the heap is rebuilt."""


class Ranking:
    """All nodes, ranked for claims of one kind."""

    def __init__(
        self, findings: Findings, cluster: Cluster, order: NodeOrder, steps: int = 0
    ) -> None:
        """`steps` is what it has cost to begin."""
        self.steps = steps
        self.findings = findings
        self._demand = findings.demand
        self._cluster = cluster
        self._order = order
        self._amounts = self._demand.required.amounts
        self._amounts_together = self._demand.required.amounts_together
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

    def best(
        self,
        nodes: Collection[str] | None = None,
        expired: Callable[[], bool] | None = None,
        budget: StepBudget | None = None,
    ) -> Iterator[tuple[str, Suitable]]:
        """The suitable nodes in the order of their scores, of these `nodes` or of all.

        What changes the cluster in between must be undone before the next node is asked for.

        Raises:
            AllocationError: the attempt fails on a node, which is named, and with it on all: with
                policy `upstream`, or since an expression does not compile.
            ExpiredError: time is up before the next node is found.
            OutOfStepsError: the budget does not suffice.
        """
        if budget is None:
            budget = StepBudget.unlimited()
        self._catch_up()
        if nodes is None or len(nodes) * 2 > len(self._cluster.nodes):
            found = self._among_all(nodes, expired, budget)
        else:
            found = self._among_few(nodes, expired, budget)
        for name, finding in found:
            if isinstance(finding, Fatal):
                raise type(finding.error)(f"node {name}: {finding.error}") from finding.error
            yield name, finding

    def _among_all(
        self,
        nodes: Collection[str] | None,
        expired: Callable[[], bool] | None,
        budget: StepBudget,
    ) -> Iterator[tuple[str, Suitable | Fatal]]:
        turn = object()
        bill = self.findings.dues.of(nodes, budget)
        passed: set[str] = set()
        while True:
            if self._turn is not turn:
                self._put_back()  # what another iteration has taken
                self._turn = turn
            entry = self._next(expired)
            if entry is None:
                bill.pay()
                return
            name = entry[3]
            known = self.findings.get(name)
            self._aside.append(entry)
            if name in passed or (nodes is not None and name not in nodes):
                continue
            if isinstance(known, Suitable | Fatal):
                passed.add(name)
                bill.pay(entry)
                yield name, known
                self._catch_up()  # the cluster may have changed, and changed back
            else:
                bill.pay(entry)
                self._look(entry, expired, budget)  # if it does not end, the entry stays
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

    def _among_few(
        self,
        names: Collection[str],
        expired: Callable[[], bool] | None,
        budget: StepBudget,
    ) -> Iterator[tuple[str, Suitable | Fatal]]:
        bill = self.findings.dues.of_few(names, budget)
        heap = [entry for entry in map(self._entry, names) if entry is not None]
        heapify(heap)
        while heap:
            best = heappop(heap)
            name = best[3]
            bill.pay(best)
            known = self.findings.get(name)
            if isinstance(known, Suitable | Fatal):
                yield name, known
                self._catch_up()  # the cluster may have changed, and changed back
                continue
            self._look(best, expired, budget)
            after = self._entry(name)
            if after is not None:
                heappush(heap, after)
        bill.pay()

    def _entry(self, name: str) -> Entry | None:
        return self.findings.entry(name, self._order.entry)

    def _look(self, entry: Entry, expired: Callable[[], bool] | None, budget: StepBudget) -> None:
        name = entry[3]
        is_new = self.findings.get(name) is None
        if is_new and entry is not self._within_reach and self._is_out_of_reach(name):
            self.findings.refuse(name)
            return
        self.findings.look(entry, expired, budget)
        current = self._entry(name)
        if current is not None:
            heappush(self._heap, current)

    def _is_out_of_reach(self, name: str) -> bool:
        """Whether a node is refused without a look at each of its devices."""
        if self.findings.is_upstream or not self._demand.required.compiles:
            return False  # then an error on a node matters, whatever the node has
        asks = self._amounts or self._amounts_together
        if asks and not self._order.has_room(name, self._amounts, self._amounts_together):
            return True
        if not self._demand.required.may_be_out_of_reach:
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
            ready = [offered for offered in ready if not self._cluster.is_wide(offered.pool.id)]
        return self._demand.is_out_of_reach(
            [self._cluster.pool_state(offered) for offered in ready]
        )

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
        nodes = [] if starts else list(cluster.changed_nodes.since(self._node_moment))
        self._pool_moment = cluster.changed_pools.now
        self._node_moment = cluster.changed_nodes.now
        if starts:
            self.findings.forget_all()
            self._begin(self._promising())
            return
        self.findings.forget(nodes)
        if len(self._heap) + len(nodes) > _STALE * len(cluster.nodes):
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
        names = (
            None
            if self.findings.is_upstream
            else self._cluster.nodes_with(self._demand.required.attributes)
        )
        if names is not None:
            self._left_out = True
            entries = (self._order.entry(name) for name in names)
            return sorted(entry for entry in entries if entry is not None)
        return tuple(self._order.entries())
