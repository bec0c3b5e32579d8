"""Free GPUs that nobody can use: no wish that is typical of the cluster has room beside them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import WHOLE
from controller.engine.decide.nodes.usable import Left, possible
from controller.engine.model.wish import TypicalWish
from controller.engine.state.devices import NodeGpus
from controller.engine.state.state import State
from controller.engine.state.wishes import Beside


class Lack(StrEnum):
    """For lack of what a free GPU, or a part of one, cannot be used."""

    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    FRAGMENTS = "fragments"
    """What is free of it is too small a part."""


_WORDS: Final = {
    Lack.CPU: "cpu",
    Lack.MEMORY: "memory",
    Lack.PODS: "pods",
    Lack.FRAGMENTS: "large enough parts",
}


def in_words(gpus: Mapping[Lack, float]) -> str:
    """How many GPUs are stranded for lack of what; empty if none is."""
    return ", ".join(
        f"{gpus[lack]:.4g} for lack of {words}" for lack, words in _WORDS.items() if gpus.get(lack)
    )


def stranded(left: Left, wishes: Sequence[TypicalWish]) -> Mapping[Lack, int]:
    """What is free of a node's GPUs and meets no wish, in millionths, by what is lacking first.

    A GPU meets a wish for several if the node has as many.
    """
    found = Counter[Lack]()
    whole = left.parts.count(WHOLE)
    several = [wish for _, wish in wishes if wish.devices == 1 or whole >= wish.devices]
    for part in filter(None, left.parts):
        fitting = [wish for wish in several if wish.part <= part]
        if not fitting:
            found[Lack.FRAGMENTS] += part
        elif left.pods < 1:
            found[Lack.PODS] += part
        elif all(wish.cpu > max(0, left.cpu) for wish in fitting):
            found[Lack.CPU] += part
        elif all(
            wish.cpu > max(0, left.cpu) or wish.memory > max(0, left.memory) for wish in fitting
        ):
            found[Lack.MEMORY] += part
    return found


class StrandedGpus:
    """Counts what is stranded of the nodes of a state, again where something has changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of_node: dict[str, Mapping[Lack, int]] = {}
        self._total = Counter[Lack]()
        self._gpus: dict[str, NodeGpus] = {}
        self._wishes: Sequence[TypicalWish] = ()
        self._moments = (-1, -1)

    def is_of(self, state: State) -> bool:
        """Whether it counts the nodes of this state."""
        return state is self._state

    def by_lack(self) -> Mapping[Lack, float]:
        """How many GPUs are stranded on nodes that take pods, by what is lacking."""
        state = self._state
        changes, before = state.occupancy.cluster.changed_nodes, self._moments
        self._moments = state.occupancy.capacity.moment, changes.now
        if before[0] == self._moments[0] and changes.is_known_since(before[1]):
            changed = set(changes.since(before[1]))
        else:
            changed = {*state.occupancy.nodes, *self._of_node}
        for name in changed:
            self._gpus.pop(name, None)
            gpus = state.occupancy.devices.model(name) if name in state.occupancy.nodes else None
            if gpus is not None and gpus.number:
                self._gpus[name] = gpus
        wishes = self._typical()
        if wishes != self._wishes:
            self._wishes = wishes
            changed = {*state.occupancy.nodes, *self._of_node}
        for name in changed:
            self._total.subtract(self._of_node.pop(name, {}))
            node = state.occupancy.nodes.get(name)
            if node is not None and not node.unschedulable:
                self._of_node[name] = found = self._count(name)
                self._total.update(found)
        return {lack: self._total[lack] / WHOLE for lack in Lack}

    def by_node(self) -> Mapping[str, Mapping[Lack, float]]:
        """The same by node; those where nothing is stranded are left out."""
        self.by_lack()
        return {
            name: {lack: amount / WHOLE for lack, amount in found.items()}
            for name, found in sorted(self._of_node.items())
            if found
        }

    def _typical(self) -> Sequence[TypicalWish]:
        state = self._state
        beside = Beside.of(
            sum(state.occupancy.nodes[name].cpu for name in self._gpus),
            sum(state.occupancy.nodes[name].memory for name in self._gpus),
            sum(gpus.number for gpus in self._gpus.values()),
        )
        in_parts = any(gpus.ways > 1 for gpus in self._gpus.values())
        most = max((gpus.number for gpus in self._gpus.values()), default=0)
        return possible(state.requests.wishes.typical(beside), in_parts=in_parts, most=most)

    def _count(self, node: str) -> Mapping[Lack, int]:
        room = self._state.occupancy.rooms[node]
        try:
            parts = self._state.occupancy.devices.free_parts(node)
        except AllocationError:  # nothing can be allocated there
            return {}
        return stranded(Left(room.cpu, room.memory, room.pods, parts), self._wishes)
