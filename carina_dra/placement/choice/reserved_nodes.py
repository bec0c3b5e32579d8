"""The nodes on which claims may use what is reserved for them, the best first."""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from carina_dra.allocator.group import WHOLE
from carina_dra.allocator.preference import Order
from carina_dra.placement.choice.findings import Findings, Suitable, best_first, raise_if_fatal
from carina_dra.placement.choice.order import Entry
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.step_budget import StepBudget

_LEAST_USE: Final = {Order.BINPACK: -WHOLE, Order.SPREAD: 0, Order.FRAGMENTATION: 0}
"""No node has a better usage in its score."""


class ReservedNodes:
    """What is known of the nodes that some reservations concern, for claims of one kind."""

    def __init__(self, findings: Findings, cluster: Cluster, order: Order) -> None:
        self.findings = findings
        self._cluster = cluster
        self._least_use = _LEAST_USE[order]
        self._node_moment = self._pool_moment = -1

    def best(
        self,
        nodes: Collection[str],
        cost: Callable[[str], int],
        expired: Callable[[], bool] | None,
        budget: StepBudget,
    ) -> Iterator[tuple[tuple[int, Entry], Suitable]]:
        """The suitable ones of these nodes in the order of their costs and scores, with both.

        Raises:
            AllocationError: as for `Ranking.best`.
            ExpiredError: time is up before the next node is found.
            OutOfStepsError: the budget does not suffice.
        """
        self._catch_up()

        def look(entry: Entry) -> None:
            self.findings.look(entry, expired, budget)

        bill = self.findings.dues.of_few(nodes, budget)
        ranked = best_first(self.findings, nodes, self._entry, look, cost, bill)
        for of_node, name, known in ranked:
            found = raise_if_fatal(name, known)
            yield (of_node, found.entry), found
            self._catch_up()  # a trial may have come and gone

    def _entry(self, name: str) -> Entry | None:
        return self.findings.entry(name, lambda node: (0, 0, self._least_use, node))

    def _catch_up(self) -> None:
        """Forgets what was known of nodes that have changed."""
        nodes, pools = self._cluster.changed_nodes, self._cluster.changed_pools
        if self._pool_moment == pools.now and nodes.is_known_since(self._node_moment):
            self.findings.forget(list(nodes.since(self._node_moment)))
        else:
            self.findings.forget_all()  # a wide pool may have been asked for
        self._node_moment, self._pool_moment = nodes.now, pools.now
