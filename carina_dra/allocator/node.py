"""Nodes, and whether node selectors match them (core/v1 NodeSelector).

The rules are those of component-helpers `scheduling/corev1/nodeaffinity`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.resource import (
    JsonObject,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    OnAllNodes,
    OnMatchingNodes,
    OnNode,
)

_NAME_FIELD: Final = "metadata.name"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a core/v1 Node that allocation depends on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()
    """`status.declaredFeatures`."""

    @classmethod
    def of(cls, body: JsonObject) -> "Node":
        """Reads the body of a core/v1 Node."""
        metadata = body["metadata"]
        declared = (body.get("status") or {}).get("declaredFeatures") or ()
        return cls(metadata["name"], metadata.get("labels") or {}, frozenset(declared))


def reaches(nodes: OnNode | OnMatchingNodes | OnAllNodes | None, node: Node) -> bool:
    """Whether devices that are usable on `nodes` are usable on this node.

    Raises:
        AllocationError: the selector is not valid.
    """
    match nodes:
        case OnNode(node_name=name):
            return name == node.name
        case OnAllNodes():
            return True
        case OnMatchingNodes(node_selector=selector):
            return selects(selector, node)
        case None:
            return False
    assert_never(nodes)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether a term of the selector matches the node.

    Raises:
        AllocationError: the selector is not valid.
    """
    # All terms are evaluated: an invalid one is an error beside one that matches.
    matching = [_term_matches(term, node) for term in selector.node_selector_terms]
    return any(matching)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    on_labels = [
        _requirement_matches(requirement, node.labels) for requirement in term.match_expressions
    ]
    on_fields = [_field_matches(requirement, node) for requirement in term.match_fields]
    return all(on_labels) and all(on_fields)


def _field_matches(requirement: NodeSelectorRequirement, node: Node) -> bool:
    operators = (NodeSelectorOperator.IN, NodeSelectorOperator.NOT_IN)
    if requirement.operator not in operators or len(requirement.values) != 1:
        raise AllocationError(
            f"node selector: the field {requirement.key} takes In or NotIn with one value, "
            f"not {requirement.operator} with {len(requirement.values)}"
        )
    return _requirement_matches(requirement, {_NAME_FIELD: node.name})


def _requirement_matches(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case NodeSelectorOperator.IN:
            return value is not None and value in requirement.values
        case NodeSelectorOperator.NOT_IN:
            return value is None or value not in requirement.values
        case NodeSelectorOperator.EXISTS:
            return value is not None
        case NodeSelectorOperator.DOES_NOT_EXIST:
            return value is None
        case NodeSelectorOperator.GREATER:
            bound = _bound(requirement)
            return value is not None and _is_number(value) and int(value) > bound
        case NodeSelectorOperator.LESS:
            bound = _bound(requirement)
            return value is not None and _is_number(value) and int(value) < bound
    assert_never(requirement.operator)


def _bound(requirement: NodeSelectorRequirement) -> int:
    if len(requirement.values) != 1 or not _is_number(requirement.values[0]):
        raise AllocationError(
            f"node selector: {requirement.key} {requirement.operator} takes one whole number, "
            f"not {list(requirement.values)}"
        )
    return int(requirement.values[0])


def _is_number(text: str) -> bool:
    return _WHOLE_NUMBER.fullmatch(text) is not None
