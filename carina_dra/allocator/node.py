"""Nodes, and the selectors that choose among them (core/v1 NodeSelector).

Source of the rules: component-helpers `scheduling/corev1/nodeaffinity`.
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
    """What the allocator needs to know of a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()
    """`status.declaredFeatures`."""

    @classmethod
    def of(cls, body: JsonObject) -> "Node":
        """Reads a core/v1 Node, as the API has it."""
        metadata = body["metadata"]
        declared = (body.get("status") or {}).get("declaredFeatures") or ()
        return cls(metadata["name"], metadata.get("labels") or {}, frozenset(declared))


def reaches(nodes: OnNode | OnMatchingNodes | OnAllNodes | None, node: Node) -> bool:
    """Whether devices that are usable on `nodes` are usable on this one.

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
    """Whether one of the selector's terms holds for the node.

    Raises:
        AllocationError: the selector is not valid.
    """
    holding = [_term_holds(term, node) for term in selector.node_selector_terms]
    return any(holding)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    on_labels = [_requirement_holds(each, node.labels) for each in term.match_expressions]
    on_fields = [_field_holds(each, node) for each in term.match_fields]
    return all(on_labels) and all(on_fields)


def _field_holds(requirement: NodeSelectorRequirement, node: Node) -> bool:
    operators = (NodeSelectorOperator.IN, NodeSelectorOperator.NOT_IN)
    if requirement.operator not in operators or len(requirement.values) != 1:
        raise AllocationError(
            f"node selector: the field {requirement.key} takes In or NotIn with one value, "
            f"not {requirement.operator} with {len(requirement.values)}"
        )
    return _requirement_holds(requirement, {_NAME_FIELD: node.name})


def _requirement_holds(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
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
