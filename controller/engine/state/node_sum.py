"""A number for each node of a cluster and their sum, found out again for nodes that change."""

from collections.abc import Callable

from carina_dra.placement.cluster.cluster import Cluster


class NodeSum:
    """Adds up what a function gives for each node."""

    def __init__(self, cluster: Cluster, of_node: Callable[[str], int]) -> None:
        """`of_node` depends on nothing but what is of a node: its devices, pods and claims."""
        self._cluster = cluster
        self._of = of_node
        self._of_node: dict[str, int] = {}
        self._total = 0
        self._moments = (-1, -1)

    def total(self) -> int:
        """The sum over all nodes, as they are."""
        cluster = self._cluster
        nodes, before = cluster.changed_nodes, self._moments
        self._moments = now = cluster.wide_moment, nodes.now
        if before[0] == now[0] and nodes.is_known_since(before[1]):
            changed = set(nodes.since(before[1]))
        else:
            changed = {*cluster.nodes, *self._of_node}
        for name in changed:
            self._total -= self._of_node.pop(name, 0)
            if name in cluster.nodes:
                self._of_node[name] = self._of(name)
                self._total += self._of_node[name]
        return self._total
