"""Which nodes the slices of pools may reach, without looking at every pair of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from carina_dra.allocator.node import Node
from carina_dra.allocator.usage import PoolId
from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    OnAllNodes,
    OnMatchingNodes,
    OnNode,
    PerDevice,
    ResourceSliceSpec,
)

_IN: Final = NodeSelectorOperator.IN
_ALWAYS_VALID: Final = {
    NodeSelectorOperator.IN,
    NodeSelectorOperator.NOT_IN,
    NodeSelectorOperator.EXISTS,
    NodeSelectorOperator.DOES_NOT_EXIST,
}
"""Operators whose requirements cannot be invalid."""

_Label: TypeAlias = tuple[str, str]


class Reach:
    """Pools and the nodes that they may reach: too many nodes rather than too few."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """`nodes` are the cluster's; `put_node` and `remove_node` tell of its changes."""
        self._nodes = nodes
        self._targets: dict[PoolId, frozenset[_Target]] = {}
        self._pools: dict[_Target, set[PoolId]] = {}
        self._keys: dict[str, int] = {}
        """The label keys of targets, with the number of targets."""
        self._labelled: dict[_Label, set[str]] = {}
        """The nodes with these labels, for the label keys of targets."""

    def put_pool(self, pool: PoolId, slices: Iterable[ResourceSliceSpec]) -> None:
        """Takes the slices of a pool in place of those before; none for a pool that is gone."""
        targets = frozenset(target for spec in slices for target in _targets(spec))
        before = self._targets.pop(pool, frozenset())
        if targets:
            self._targets[pool] = targets
        for target in targets - before:
            self._pools.setdefault(target, set()).add(pool)
            if isinstance(target, tuple):
                self._watch(target[0])
        for target in before - targets:
            self._pools[target].discard(pool)
            if not self._pools[target]:
                del self._pools[target]
            if isinstance(target, tuple):
                self._unwatch(target[0])

    def put_node(self, node: Node) -> None:
        """Takes the labels of a node that is new to the cluster."""
        for key in self._keys.keys() & node.labels.keys():
            self._labelled.setdefault((key, node.labels[key]), set()).add(node.name)

    def remove_node(self, node: Node) -> None:
        """Forgets a node as it was put."""
        for key in self._keys.keys() & node.labels.keys():
            label = key, node.labels[key]
            self._labelled[label].discard(node.name)
            if not self._labelled[label]:
                del self._labelled[label]

    def pools_of(self, node: Node) -> set[PoolId]:
        """The pools that may reach the node."""
        pools = set(self._pools.get(node.name, ()))
        pools |= self._pools.get(None, set())
        for key in self._keys.keys() & node.labels.keys():
            pools |= self._pools.get((key, node.labels[key]), set())
        return pools

    def pools_naming(self, node: str) -> Collection[PoolId]:
        """The pools with slices that name the node."""
        return self._pools.get(node, ())

    def nodes_of(self, pool: PoolId) -> Collection[str] | None:
        """The names of the nodes that the pool may reach; None for all."""
        names: set[str] = set()
        for target in self._targets.get(pool, ()):
            if target is None:
                return None
            if isinstance(target, str):
                names.add(target)
            else:
                names |= self._labelled.get(target, set())
        return names

    def nodes_of_all(self, pools: Iterable[PoolId]) -> Collection[str]:
        """The nodes of the cluster that each of the pools may reach."""
        reached = [set(names) for names in map(self.nodes_of, pools) if names is not None]
        if not reached:
            return self._nodes.keys()
        return [name for name in set.intersection(*reached) if name in self._nodes]

    def named_by(self, pool: PoolId) -> Iterator[str]:
        """The nodes that slices of the pool name."""
        return (target for target in self._targets.get(pool, ()) if isinstance(target, str))

    def _watch(self, key: str) -> None:
        self._keys[key] = self._keys.get(key, 0) + 1
        if self._keys[key] == 1:
            for node in self._nodes.values():
                if key in node.labels:
                    self._labelled.setdefault((key, node.labels[key]), set()).add(node.name)

    def _unwatch(self, key: str) -> None:
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]
            for label in [label for label in self._labelled if label[0] == key]:
                del self._labelled[label]


_Target: TypeAlias = str | _Label | None
"""The name of a node, a label of nodes, or None for every node."""


def _targets(spec: ResourceSliceSpec) -> Iterator[_Target]:
    if isinstance(spec.nodes, PerDevice):
        for device in spec.devices:
            yield from _of(device.nodes)
    else:
        yield from _of(spec.nodes)


def _of(nodes: OnNode | OnMatchingNodes | OnAllNodes | None) -> Iterator[_Target]:
    match nodes:
        case OnNode(node_name=name):
            yield name
        case OnAllNodes():
            yield None
        case OnMatchingNodes(node_selector=selector):
            yield from _labels(selector)
        case None:
            pass


def _labels(selector: NodeSelector) -> Iterator[_Target]:
    """Labels of which a node must have one; every node if there is no such condition.

    A selector that may be invalid concerns every node, since it is an error of each.
    """
    for term in selector.node_selector_terms:
        operators = {requirement.operator for requirement in term.match_expressions}
        if term.match_fields or not operators <= _ALWAYS_VALID or _IN not in operators:
            yield None
            continue
        wanted = next(
            requirement for requirement in term.match_expressions if requirement.operator is _IN
        )
        for value in wanted.values:
            yield wanted.key, value
