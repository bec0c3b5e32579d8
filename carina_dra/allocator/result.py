"""The allocation in a claim's status: devices, configurations and node selector.

Source: KEP-4381, and `Allocate` of k8s.io/dynamic-resource-allocation v0.37.0.
"""

from collections.abc import Callable, Iterable, Sequence

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.search import Choice
from carina_dra.resource import (
    Allocation,
    AllocationConfigSource,
    AllocationConfiguration,
    DeviceAllocation,
    DeviceResult,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    OnMatchingNodes,
    OnNode,
    PerDevice,
)


def allocation(
    claim: Claim,
    choices: Sequence[Choice],
    node: Node,
    features: Features,
    new_share_id: Callable[[], str],
) -> Allocation:
    """The allocation of a claim on a node, without `allocation_timestamp`.

    `new_share_id` returns a new UID for each share. The timestamp is set by the code that writes
    the status.

    Raises:
        AllocationError: a slice's node selector has several terms, which the API forbids.
    """
    chosen = _chosen_alternatives(claim, choices)
    return Allocation(
        devices=DeviceAllocation(
            results=tuple(_result(choice, features, new_share_id) for choice in choices),
            config=(*_of_classes(chosen), *_of_claim(claim, chosen)),
        ),
        node_selector=node_selector(choices, node),
    )


def _chosen_alternatives(claim: Claim, choices: Sequence[Choice]) -> list[Alternative]:
    """The chosen alternative of each request."""
    by_request = {choice.alternative.request: choice.alternative for choice in choices}
    return [by_request[request.name] for request in claim.requests]


def _result(choice: Choice, features: Features, new_share_id: Callable[[], str]) -> DeviceResult:
    candidate, alternative = choice.candidate, choice.alternative
    device = candidate.device
    return DeviceResult(
        request=alternative.name,
        driver=candidate.id.driver,
        pool=candidate.id.pool,
        device=candidate.id.device,
        admin_access=True if alternative.admin_access else None,
        tolerations=alternative.tolerations,
        binding_conditions=device.binding_conditions if features.binding_conditions else (),
        binding_failure_conditions=(
            device.binding_failure_conditions if features.binding_conditions else ()
        ),
        share_id=None if choice.share is None else new_share_id(),
        consumed_capacity=choice.share or {},
        skip_node_operations=(
            candidate.slice.skip_node_operations if features.optional_node_operations else ()
        ),
    )


def _of_classes(chosen: Sequence[Alternative]) -> Iterable[AllocationConfiguration]:
    """The configurations of each class once, for the requests that use the class."""
    users: dict[str, list[Alternative]] = {}
    for alternative in chosen:
        users.setdefault(alternative.device_class.metadata.name, []).append(alternative)
    for using in users.values():
        names = (
            () if len(using) == len(chosen) else tuple(alternative.name for alternative in using)
        )
        for config in using[0].device_class.spec.config:
            yield AllocationConfiguration(AllocationConfigSource.CLASS, names, config.opaque)


def _of_claim(claim: Claim, chosen: Sequence[Alternative]) -> Iterable[AllocationConfiguration]:
    """The claim's configurations that apply to a chosen alternative.

    A configuration for all requests is written without request names, which means the same.
    """
    for config in claim.source.spec.devices.config:
        meant = [alternative for alternative in chosen if alternative.is_meant_by(config.requests)]
        if not meant and config.requests:
            continue
        names = () if len(meant) == len(chosen) else config.requests
        yield AllocationConfiguration(AllocationConfigSource.CLAIM, names, config.opaque)


def node_selector(choices: Sequence[Choice], node: Node) -> NodeSelector | None:
    """The nodes where all devices are usable; None for every node.

    Raises:
        AllocationError: a slice's node selector has several terms, which the API forbids.
    """
    on_labels: list[NodeSelectorRequirement] = []
    on_fields: list[NodeSelectorRequirement] = []
    for choice in choices:
        candidate = choice.candidate
        nodes = candidate.slice.nodes
        if isinstance(nodes, PerDevice):
            nodes = candidate.device.nodes
        if isinstance(nodes, OnNode) or candidate.device.binds_to_node:
            this = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node.name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(this,)),))
        if isinstance(nodes, OnMatchingNodes):
            for term in _only_term(nodes.node_selector):
                _add_new(on_labels, term.match_expressions)
                _add_new(on_fields, term.match_fields)
    if not on_labels and not on_fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(on_labels), tuple(on_fields)),))


def _only_term(selector: NodeSelector) -> tuple[NodeSelectorTerm, ...]:
    if len(selector.node_selector_terms) > 1:
        raise AllocationError(
            f"unsupported ResourceSlice.NodeSelector with {len(selector.node_selector_terms)} terms"
        )
    return selector.node_selector_terms


def _add_new(
    present: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]
) -> None:
    for requirement in more:
        if not any(_is_same(requirement, known) for known in present):
            present.append(requirement)


def _is_same(left: NodeSelectorRequirement, right: NodeSelectorRequirement) -> bool:
    return (left.key, left.operator, frozenset(left.values)) == (
        right.key,
        right.operator,
        frozenset(right.values),
    )
