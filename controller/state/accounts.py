"""What queues have and ask for, each with all that is below it."""

from functools import partial

from controller.model.resource import Amounts, minus, plus
from controller.state.journal import Journal
from controller.state.queue_tree import QueueTree


class Accounts:
    """The sums of a tree of queues."""

    def __init__(self, tree: QueueTree, journal: Journal) -> None:
        self._tree = tree
        self._journal = journal
        zero = self.zero = (0,) * len(tree.resources)
        self.allocated: dict[str, Amounts] = dict.fromkeys(tree.paths, zero)
        """What the groups of each queue have."""
        self.firm: dict[str, Amounts] = dict.fromkeys(tree.paths, zero)
        """The part of it that is not preemptible."""
        self.requested: dict[str, Amounts] = dict.fromkeys(tree.paths, zero)
        """What they have and wait for."""
        self.moment = 0
        """How often something of it has changed."""

    def take(self, queue: str, amounts: Amounts, *, preemptible: bool) -> None:
        """Charges a queue, and all above it, with what a group gets."""
        self._take(queue, amounts, preemptible=preemptible)
        self._journal.record(partial(self._give, queue, amounts, preemptible=preemptible))

    def give(self, queue: str, amounts: Amounts, *, preemptible: bool) -> None:
        """Takes from a queue's account what a group gives back; the exact inverse of `take`."""
        self._give(queue, amounts, preemptible=preemptible)
        self._journal.record(partial(self._take, queue, amounts, preemptible=preemptible))

    def request(self, queue: str, amounts: Amounts) -> None:
        """Takes notice that a group of the queue asks for more (negative: for less)."""
        self.moment += 1
        for name in self._tree.paths[queue]:
            self.requested[name] = plus(self.requested[name], amounts)

    def _take(self, queue: str, amounts: Amounts, *, preemptible: bool) -> None:
        self.moment += 1
        for name in self._tree.paths[queue]:
            self.allocated[name] = plus(self.allocated[name], amounts)
            if not preemptible:
                self.firm[name] = plus(self.firm[name], amounts)

    def _give(self, queue: str, amounts: Amounts, *, preemptible: bool) -> None:
        self.moment += 1
        for name in self._tree.paths[queue]:
            self.allocated[name] = minus(self.allocated[name], amounts)
            if not preemptible:
                self.firm[name] = minus(self.firm[name], amounts)
