"""What queues have and ask for, each with all that is below it."""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from carina_dra.placement.cluster.gpu import GPU, GpuId
from controller.engine.model.resource import Amounts, minus, plus
from controller.engine.state.charge import GpuPart
from controller.engine.state.journal import Journal
from controller.engine.state.queue_tree import QueueTree

_Parts: TypeAlias = dict[tuple[int, GpuId], int]
"""By resource and GPU: the sum of the parts of the GPU, which may be more than the GPU."""


class Accounts:
    """The sums of a tree of queues. For one GPU, an account has at most a whole one."""

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
        self.uncounted: dict[str, int] = dict.fromkeys(tree.paths, 0)
        """How many devices of GPUs they have that no resource of GPUs of the queue counts."""
        self._allocated_gpus: dict[str, _Parts] = {}
        self._firm_gpus: dict[str, _Parts] = {}
        self._requested_gpus: dict[str, _Parts] = {}
        self.moment = 0
        """How often something of it has changed."""

    def take(
        self, queue: str, amounts: Amounts, *, preemptible: bool, gpus: Sequence[GpuPart] = ()
    ) -> None:
        """Charges a queue, and all above it, with what a group gets."""
        self._take(queue, amounts, gpus, preemptible=preemptible)
        self._journal.record(partial(self._give, queue, amounts, gpus, preemptible=preemptible))

    def give(
        self, queue: str, amounts: Amounts, *, preemptible: bool, gpus: Sequence[GpuPart] = ()
    ) -> None:
        """Takes from a queue's account what a group gives back; the exact inverse of `take`."""
        self._give(queue, amounts, gpus, preemptible=preemptible)
        self._journal.record(partial(self._take, queue, amounts, gpus, preemptible=preemptible))

    def request(
        self, queue: str, amounts: Amounts, gpus: Sequence[GpuPart] = (), *, sign: int = 1
    ) -> None:
        """Takes notice that a group of the queue asks for more (negative: for less).

        `sign` is that of the parts of GPUs.
        """
        self.moment += 1
        for name in self._tree.paths[queue]:
            more = amounts
            if gpus:
                more = plus(more, self._added(self._requested_gpus, name, gpus, sign))
            self.requested[name] = plus(self.requested[name], more)

    def _take(
        self, queue: str, amounts: Amounts, gpus: Sequence[GpuPart], *, preemptible: bool
    ) -> None:
        self.moment += 1
        for name in self._tree.paths[queue]:
            more = firm = amounts
            if gpus:
                self.uncounted[name] += self._uncounted(name, gpus)
                more = plus(more, self._added(self._allocated_gpus, name, gpus, 1))
            self.allocated[name] = plus(self.allocated[name], more)
            if not preemptible:
                if gpus:
                    firm = plus(firm, self._added(self._firm_gpus, name, gpus, 1))
                self.firm[name] = plus(self.firm[name], firm)

    def _give(
        self, queue: str, amounts: Amounts, gpus: Sequence[GpuPart], *, preemptible: bool
    ) -> None:
        self.moment += 1
        for name in self._tree.paths[queue]:
            less = firm = amounts
            if gpus:
                self.uncounted[name] -= self._uncounted(name, gpus)
                less = minus(less, self._added(self._allocated_gpus, name, gpus, -1))
            self.allocated[name] = minus(self.allocated[name], less)
            if not preemptible:
                if gpus:
                    firm = minus(firm, self._added(self._firm_gpus, name, gpus, -1))
                self.firm[name] = minus(self.firm[name], firm)

    def _added(
        self, accounts: dict[str, _Parts], name: str, gpus: Sequence[GpuPart], sign: int
    ) -> Amounts:
        """Adds parts of GPUs to an account; returns by how much it counts more."""
        parts = accounts.setdefault(name, {})
        added = list(self.zero)
        for one in gpus:
            for at in one.columns:
                key = at, one.gpu
                before = parts.get(key, 0)
                after = before + sign * one.part
                if after:
                    parts[key] = after
                else:
                    del parts[key]
                added[at] += min(GPU, after) - min(GPU, before)
        return tuple(added)

    def _uncounted(self, name: str, gpus: Sequence[GpuPart]) -> int:
        """How many of the devices no resource of GPUs counts that the queue names."""
        named = self._tree.named(name)
        return sum(
            not named.isdisjoint(one.named) and named.isdisjoint(one.counted) for one in gpus
        )
