"""What groups are kept from for a while: nodes that they avoid, and being placed at all."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from controller.engine.model.pod import PodNeeds
from controller.observe.alarms import Alarms


@dataclass(frozen=True, slots=True)
class _Hold:
    """A group is not placed."""

    until: float
    """A Unix time."""
    keeps: bool
    """Whether it keeps tentative allocations meanwhile."""


class Deferrals:
    """What groups, which may have no pods by then, are kept from until Unix times."""

    def __init__(self) -> None:
        self._avoided: dict[str, dict[str, float]] = {}
        """By group: the nodes that kube-scheduler has refused, and until when they are avoided."""
        self._held_back: dict[str, _Hold] = {}
        """The groups that are not placed for a while."""
        self._due = Alarms()

    def __len__(self) -> int:
        return len(self._avoided.keys() | self._held_back.keys())

    def avoid(self, group: str, node: str, until: float) -> None:
        """Keeps a group from a node until a Unix time."""
        self._avoided.setdefault(group, {})[node] = until
        self._due.set(group, until)

    def hold_back(self, group: str, until: float, *, keeps: bool) -> None:
        """Delays the next start of a group until a Unix time; it may keep tentative allocations."""
        self._held_back[group] = _Hold(until, keeps)
        self._due.set(group, until)

    def is_held_back(self, group: str) -> bool:
        """Whether a group is not to be placed now."""
        return group in self._held_back

    def keeps(self, group: str | None) -> bool:
        """Whether a group that is held back keeps its tentative allocations."""
        hold = None if group is None else self._held_back.get(group)
        return hold is not None and hold.keeps

    def avoided_by(self, group: str) -> Collection[str]:
        """The nodes that a group avoids."""
        return self._avoided.get(group, {}).keys()

    @property
    def wake(self) -> float | None:
        """When something is over."""
        return self._due.next

    def take_due(self, now: float) -> list[str]:
        """Ends what is over; returns the groups that it concerned."""
        due = self._due.take_due(now)
        for group in due:
            for node, until in self._avoided.pop(group, {}).items():
                if until > now:
                    self.avoid(group, node, until)
            hold = self._held_back.pop(group, None)
            if hold is not None and hold.until > now:
                self.hold_back(group, hold.until, keeps=hold.keeps)
        return due


def avoiding(needs: PodNeeds, nodes: Collection[str]) -> PodNeeds:
    """The needs of a pod that avoids some nodes."""
    return replace(needs, affinity=_avoiding(needs.affinity, nodes)) if nodes else needs


def _avoiding(affinity: NodeSelector | None, nodes: Iterable[str]) -> NodeSelector:
    """A node selector that matches none of some nodes."""
    other = tuple(
        NodeSelectorRequirement("metadata.name", NodeSelectorOperator.NOT_IN, (node,))
        for node in sorted(nodes)
    )
    if affinity is None:
        return NodeSelector((NodeSelectorTerm(match_fields=other),))
    return NodeSelector(
        tuple(
            replace(term, match_fields=(*term.match_fields, *other))
            if term.match_expressions or term.match_fields
            else term
            for term in affinity.node_selector_terms
        )
    )
