"""What queues have and ask for, each with all that is below it."""

from collections.abc import Collection, Sequence
from functools import partial
from operator import add

from carina_dra.placement.cluster.gpu import GPU, GpuId
from controller.engine.model.resource import Amounts, minus, plus
from controller.engine.state.charge import GpuPart
from controller.engine.state.journal import Journal
from controller.engine.state.queue_tree import QueueTree


class _GpuParts:
    """The parts of GPUs in an account."""

    __slots__ = ("rests", "sums")

    def __init__(self, resources: int) -> None:
        self.sums: dict[tuple[int, GpuId], int] = {}
        """By resource and GPU: the sum of the parts of the GPU, which may be more than the GPU."""
        self.rests = [0] * resources
        """By resource: what the account has not of the GPUs of which it has parts."""

    def add(self, gpus: Sequence[GpuPart], sign: int) -> Amounts:
        """Adds parts of GPUs; returns how much more of each resource counts."""
        added = [0] * len(self.rests)
        for gpu_part in gpus:
            for at in gpu_part.columns:
                key = at, gpu_part.gpu
                before = self.sums.get(key, 0)
                after = before + sign * gpu_part.part
                if after:
                    self.sums[key] = after
                else:
                    del self.sums[key]
                more = min(GPU, after) - min(GPU, before)
                self.rests[at] += GPU * (bool(after) - bool(before)) - more
                added[at] += more
        return tuple(added)


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
        self._allocated_gpus: dict[str, _GpuParts] = {}
        self._firm_gpus: dict[str, _GpuParts] = {}
        self._requested_gpus: dict[str, _GpuParts] = {}
        self.moment = 0
        """How often something of it has changed."""

    def keeps(self, queue: str) -> Amounts:
        """What the groups of a queue keep from others, who may need whole GPUs.

        Like `allocated`, but each GPU of which they have a part counts as a whole one.
        """
        return self._whole(self.allocated[queue], self._allocated_gpus.get(queue))

    def firmly_keeps(self, queue: str) -> Amounts:
        """What the groups of a queue that are not preemptible keep from others."""
        return self._whole(self.firm[queue], self._firm_gpus.get(queue))

    def firm_gpus(self, queue: str) -> Collection[GpuId]:
        """The GPUs of which groups of a queue that are not preemptible have parts."""
        parts = self._firm_gpus.get(queue)
        return frozenset() if parts is None else {gpu for _, gpu in parts.sums}

    def _whole(self, amounts: Amounts, gpus: _GpuParts | None) -> Amounts:
        """Amounts, with each GPU of which there are parts as a whole one."""
        if gpus is None:
            return amounts
        return tuple(map(add, amounts, gpus.rests))

    def counts(self, queue: str, gpus: Sequence[GpuPart]) -> bool:
        """Whether a queue and all above it count these GPUs, if they name GPUs at all."""
        return not any(self._uncounted(name, gpus) for name in self._tree.paths[queue])

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
        """Records that a group of the queue asks for more (negative: for less).

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
        self, accounts: dict[str, _GpuParts], name: str, gpus: Sequence[GpuPart], sign: int
    ) -> Amounts:
        """Adds parts of GPUs to an account; returns by how much it counts more."""
        parts = accounts.get(name)
        if parts is None:
            parts = accounts[name] = _GpuParts(len(self.zero))
        return parts.add(gpus, sign)

    def _uncounted(self, name: str, gpus: Sequence[GpuPart]) -> int:
        """How many of the devices no resource of GPUs counts that the queue names."""
        named = self._tree.named(name)
        return sum(
            not named.isdisjoint(one.named) and named.isdisjoint(one.counted) for one in gpus
        )
