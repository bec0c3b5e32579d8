"""The parts of a group: pods that are alike, and sub-groups of them.

They are written as a list in which each part may name its parent, since the schema of an object
cannot refer to itself.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from controller.engine.files.checked import (
    DNS_LABEL,
    LABEL_KEY,
    LONGEST_LABEL,
    LONGEST_NAME,
    Rule,
    integer,
    text,
)
from controller.engine.model.group import PodSet, SubGroup, SubGroups, TopologyConstraint

_DEEPEST: Final = 3
"""Levels of sub-groups. The rule on the depth of a spec spells them out."""
_MOST_PODS: Final = 100_000

PodCount: TypeAlias = Annotated[int, integer(0, _MOST_PODS)]
_Name: TypeAlias = Annotated[str, text("the name of a sub-group", DNS_LABEL, LONGEST_LABEL)]
_Level: TypeAlias = Annotated[
    str, text("the key of a node label", LABEL_KEY, LONGEST_NAME + 1 + LONGEST_LABEL)
]


@dataclass(frozen=True, slots=True)
class Topology:
    """Pods that must be, or should be, close to each other.

    Raises:
        ValueError: it names no level.
    """

    RULES: ClassVar = (
        Rule(
            "has(self.requiredLevel) || has(self.preferredLevel)",
            "topologyConstraint: write requiredLevel, preferredLevel or both",
        ),
    )

    topology: Annotated[str, text("the name of a topology", DNS_LABEL, LONGEST_LABEL)]
    """The name of a topology in the settings of the controller."""
    required_level: _Level | None = None
    """A level of the topology, which is the key of a node label. All pods are on nodes with one
    value of it."""
    preferred_level: _Level | None = None
    """A level of the topology at which the pods should be together. Wider levels are tried after
    it, up to the required level."""

    def __post_init__(self) -> None:
        if self.required_level is None and self.preferred_level is None:
            raise ValueError("write requiredLevel, preferredLevel or both")

    def constraint(self) -> TopologyConstraint:
        """The constraint as the engine has it."""
        return TopologyConstraint(self.topology, self.required_level, self.preferred_level)


@dataclass(frozen=True, slots=True)
class SubGroupSpec:
    """A part of a group: pods that are alike, or sub-groups."""

    RULES: ClassVar = (
        Rule(
            "!has(self.minCount) || !has(self.minSubGroups)",
            "write minCount if the sub-group has pods, or minSubGroups if it has sub-groups",
        ),
    )

    name: _Name
    """The name of the sub-group. Its pods have it in the label `scheduling.carina.dev/pod-set`."""
    parent: _Name | None = None
    """The name of the sub-group that this one is part of. Without it, this is part of the group."""
    min_count: PodCount | None = None
    """How many of its pods start together. A sub-group that no other names as its parent needs it;
    with 0, all of its pods are optional."""
    min_sub_groups: PodCount | None = None
    """How many of the sub-groups that name this one as their parent must have what they need. All
    of them if it is absent."""
    topology_constraint: Topology | None = None
    """How close the pods of the sub-group are to each other."""

    def constraint(self) -> TopologyConstraint | None:
        """Its topology constraint as the engine has it."""
        return None if self.topology_constraint is None else self.topology_constraint.constraint()


RULES: Final = (
    Rule(
        "!has(self.minSubGroups) || has(self.subGroups) && self.minSubGroups <= "
        "self.subGroups.filter(a, !has(a.parent)).size()",
        "minSubGroups must not be more than the number of subGroups without a parent",
    ),
    Rule(
        "!has(self.subGroups) || self.subGroups.all(a, !has(a.parent) || "
        "self.subGroups.exists(b, b.name == a.parent))",
        "subGroups: parent must be the name of another sub-group",
    ),
    Rule(
        "!has(self.subGroups) || self.subGroups.all(a, !has(a.parent) || "
        "self.subGroups.all(b, b.name != a.parent || !has(b.parent) || "
        "self.subGroups.all(c, c.name != b.parent || !has(c.parent))))",
        "subGroups: at most 3 levels are possible, and no sub-group can be below itself",
    ),
    Rule(
        "!has(self.subGroups) || self.subGroups.all(a, has(a.minCount) != "
        "self.subGroups.exists(b, has(b.parent) && b.parent == a.name))",
        "subGroups: write minCount in sub-groups without others below them, and only there",
    ),
    Rule(
        "!has(self.subGroups) || self.subGroups.all(a, !has(a.minSubGroups) || a.minSubGroups <= "
        "self.subGroups.filter(b, has(b.parent) && b.parent == a.name).size())",
        "subGroups: minSubGroups must not be more than the sub-groups with this parent",
    ),
)
"""The rules of an object with `subGroups` and `minSubGroups`; `check` has the same."""


def check(parts: Sequence[SubGroupSpec], least: int | None) -> None:
    """Checks the parts of a group, of which `least` must have what they need.

    Raises:
        ValueError: they do not form a tree, or the counts do not fit it.
    """
    children = _by_parent(parts)
    if least is not None and least > len(children.get(None, ())):
        raise ValueError(
            "minSubGroups must not be more than the number of subGroups without a parent"
        )
    by_name = {part.name: part for part in parts}
    for part in parts:
        _check_part(part, by_name, children.get(part.name, ()))


def tree(
    parts: Sequence[SubGroupSpec], least: int | None, topology: TopologyConstraint | None
) -> SubGroups:
    """The parts of a group, which `check` accepts, as the engine has them."""
    children = _by_parent(parts)

    def part_of(part: SubGroupSpec) -> SubGroup:
        if part.name in children:
            return inner(part.name, part.name, part.min_sub_groups, part.constraint())
        return PodSet(part.name, part.min_count or 0, part.constraint())

    def inner(
        name: str, parent: str | None, least: int | None, topology: TopologyConstraint | None
    ) -> SubGroups:
        below = tuple(map(part_of, children[parent]))
        return SubGroups(name, below, len(below) if least is None else least, topology)

    return inner("", None, least, topology)


def _check_part(
    part: SubGroupSpec, by_name: Mapping[str, SubGroupSpec], below: Sequence[SubGroupSpec]
) -> None:
    where = f"sub-group {part.name}"
    if part.parent is not None and part.parent not in by_name:
        raise ValueError(f"{where}: parent {part.parent} is not the name of another sub-group")
    levels, above = 1, part.parent
    while above is not None and levels <= _DEEPEST:
        levels, above = levels + 1, by_name[above].parent if above in by_name else None
    if levels > _DEEPEST:
        raise ValueError(
            f"{where}: is below more than {_DEEPEST - 1} others; at most {_DEEPEST} levels are "
            "possible, and no sub-group can be below itself"
        )
    if part.min_count is not None and below:
        raise ValueError(f"{where}: has sub-groups below it; write minSubGroups, not minCount")
    if part.min_count is None and not below:
        raise ValueError(f"{where}: write minCount, since no other names it as its parent")
    if (part.min_sub_groups or 0) > len(below):
        raise ValueError(f"{where}: minSubGroups must not be more than {len(below)}")


def _by_parent(parts: Sequence[SubGroupSpec]) -> dict[str | None, list[SubGroupSpec]]:
    children: dict[str | None, list[SubGroupSpec]] = defaultdict(list)
    for part in parts:
        children[part.parent].append(part)
    return dict(children)
