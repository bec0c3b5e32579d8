"""Node selectors (core/v1)."""

from dataclasses import dataclass
from enum import StrEnum

from carina_dra.resource.schema import Struct


class NodeSelectorOperator(StrEnum):
    """How a label or field is compared with the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class NodeSelectorRequirement(Struct):
    """A requirement on one label or field of a node."""

    key: str
    operator: NodeSelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm(Struct):
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    """On labels."""
    match_fields: tuple[NodeSelectorRequirement, ...] = ()
    """On fields: only `metadata.name` is supported."""


@dataclass(frozen=True, slots=True)
class NodeSelector(Struct):
    """Terms of which at least one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]
