"""The domains of a topology: nodes with the same values of its labels."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller.engine.model.group import TopologyConstraint
from controller.engine.state.state import State

Domain = tuple[str, ...]
"""The values of the labels, from the widest level on: two racks of one name may be different."""
_LEVELS: Final = 256
"""Levels of which the domains are remembered; a group may name any label as one."""


class Domains:
    """The domains of a cluster, remembered until its nodes change."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._moment = -1
        self._by_level: dict[tuple[str, str], Mapping[Domain, frozenset[str]]] = {}
        self._domain_of: dict[tuple[str, str], Mapping[str, Domain]] = {}
        """By level: the domain of each node."""

    def of(self, topology: str, level: str) -> Mapping[Domain, frozenset[str]]:
        """The nodes of each domain of a level; those that lack a label are in none."""
        if self._moment != self._state.occupancy.capacity.moment:
            self._moment = self._state.occupancy.capacity.moment
            self._forget()
        known = self._by_level.get((topology, level))
        if known is None:
            if len(self._by_level) >= _LEVELS:
                self._forget()
            known = self._by_level[topology, level] = self._divided(topology, level)
        return known

    def _forget(self) -> None:
        self._by_level.clear()
        self._domain_of.clear()

    def levels(self, constraint: TopologyConstraint) -> Iterator[str | None]:
        """The levels at which the pods may be together, the preferred one first; None for any."""
        known = self._state.topologies.get(constraint.topology, ())
        required = constraint.required
        narrowest = constraint.preferred or required
        if narrowest is not None and narrowest in known:
            widest = known.index(required) if required in known else 0
            yield from reversed(known[widest : known.index(narrowest) + 1])
        elif required is not None:
            yield required
        if required is None:
            yield None

    def holding(self, topology: str, level: str, nodes: Iterable[str]) -> set[Domain | None]:
        """The domains in which the nodes are; None for a node that is in none."""
        domains = self.of(topology, level)
        domain_of = self._domain_of.get((topology, level))
        if domain_of is None:
            domain_of = {node: domain for domain, names in domains.items() for node in names}
            self._domain_of[topology, level] = domain_of
        return {domain_of.get(node) for node in nodes}

    def _divided(self, topology: str, level: str) -> Mapping[Domain, frozenset[str]]:
        known = self._state.topologies.get(topology, ())
        keys = known[: known.index(level) + 1] if level in known else (level,)
        found: dict[Domain, set[str]] = {}
        for name, node in self._state.occupancy.nodes.items():
            values = tuple(node.node.labels.get(key, "") for key in keys)
            if all(values):
                found.setdefault(values, set()).add(name)
        return {domain: frozenset(names) for domain, names in sorted(found.items())}
