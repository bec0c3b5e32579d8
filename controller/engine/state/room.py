"""What is left of a node for pods, besides devices."""

from collections import Counter
from collections.abc import Iterable, Iterator

from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import PodNeeds

_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - a host port on all addresses


class NodeCapacity:
    """What the nodes have together that take pods, and how often nodes have changed."""

    def __init__(self) -> None:
        self.moment = 0
        self.cpu = 0
        self.memory = 0
        self.pods = 0
        self.offered: Counter[str] = Counter()
        """By extended resource: how many nodes offer it by a device plugin."""

    def add(self, node: ClusterNode) -> None:
        """Adds what a node has."""
        self._change(node, 1)

    def remove(self, node: ClusterNode) -> None:
        """Takes off what a node had; the exact inverse of `add`."""
        self._change(node, -1)

    def _change(self, node: ClusterNode, sign: int) -> None:
        self.moment += 1
        if not node.unschedulable:
            self.cpu += sign * node.cpu
            self.memory += sign * node.memory
            self.pods += sign * node.pods
            for name in node.offered:
                self.offered[name] += sign
                if not self.offered[name]:
                    del self.offered[name]


class Room:
    """Free cpu, memory, pods, extended resources and host ports of a node.

    They are negative if pods have more than the node offers.
    """

    __slots__ = ("cpu", "extended", "memory", "offered", "pods", "ports")

    def __init__(self, node: ClusterNode) -> None:
        self.cpu = node.cpu
        self.memory = node.memory
        self.pods = node.pods
        self.extended = dict(node.extended)
        self.offered = node.offered
        self.ports: list[tuple[str, str, int]] = []

    def lacks(self, needs: PodNeeds) -> str | None:
        """The first thing that is not left for a pod; None if it has room."""
        if self.pods < 1:
            return "pods"
        if self.cpu < needs.cpu and needs.cpu:
            return "cpu"
        if self.memory < needs.memory and needs.memory:
            return "memory"
        for name, amount in needs.extended:
            if self.extended.get(name, 0) < amount:
                return name
        for name, amount in needs.mapped:
            if name in self.offered and self.extended[name] < amount:
                return name
        if needs.host_ports and any(_collide(needs.host_ports, self.ports)):
            return "host ports"
        return None

    def take(self, needs: PodNeeds) -> None:
        """Gives a pod what it needs."""
        self.cpu -= needs.cpu
        self.memory -= needs.memory
        self.pods -= 1
        for name, amount in needs.extended:
            self.extended[name] = self.extended.get(name, 0) - amount
        for name, amount in needs.mapped:
            if name in self.offered:
                self.extended[name] -= amount
        self.ports += needs.host_ports

    def give_back(self, needs: PodNeeds) -> None:
        """Takes from a pod what it had; the exact inverse of `take`."""
        self.cpu += needs.cpu
        self.memory += needs.memory
        self.pods += 1
        for name, amount in needs.extended:
            self.extended[name] += amount
        for name, amount in needs.mapped:
            if name in self.offered:
                self.extended[name] += amount
        for port in needs.host_ports:
            self.ports.remove(port)


def _collide(
    wanted: Iterable[tuple[str, str, int]], taken: Iterable[tuple[str, str, int]]
) -> Iterator[bool]:
    for protocol, address, port in wanted:
        for other, of, number in taken:
            same = address == of or address in _EVERY_ADDRESS or of in _EVERY_ADDRESS
            yield protocol == other and port == number and same
