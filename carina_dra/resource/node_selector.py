"""Which nodes: core/v1 NodeSelector."""

from dataclasses import dataclass
from enum import StrEnum

from carina_dra.resource.schema import Struct


class NodeSelectorOperator(StrEnum):
    """How a label or field is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class NodeSelectorRequirement(Struct):
    """A condition on one label or field of a node."""

    key: str
    operator: NodeSelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm(Struct):
    """Conditions that all must hold; one without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    """On labels."""
    match_fields: tuple[NodeSelectorRequirement, ...] = ()
    """On fields; the API knows `metadata.name`."""


@dataclass(frozen=True, slots=True)
class NodeSelector(Struct):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]
