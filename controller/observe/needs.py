"""What a pod needs of a node, from its body, as kube-scheduler computes it.

Pods of one template have equal needs, and share one value.
"""

import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from carina_dra.quantity import Quantity
from carina_dra.resource import DecodeError, JsonObject, NodeSelector, decode
from controller.engine.model.pod import PodNeeds, PodTolerationOperator, Toleration
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import NODE_ANNOTATION
from controller.observe.pod_affinity import affinity_terms, read_affinity
from controller.observe.spread import read_spread, spread_terms

_CPU: Final = "cpu"
_MEMORY: Final = "memory"
_HUGE_PAGES: Final = "hugepages-"
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared, not bound
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = frozenset(PodTolerationOperator)
_NO_NODE: Final = NodeSelector(())
_ZERO: Final = Quantity.of(0)

_TEMPLATES: Final = 4096
"""The most templates whose needs are kept, those read last."""
_LONGEST: Final = 16_384
"""Longer ones, in bytes, are not kept: a tenant chooses their length."""
_MOST_PARTS: Final = 256
"""The most terms, requirements, labels and tolerations of a pod by which nodes are chosen."""
_MOST_EXTENDED: Final = 64
"""The most extended resources of a pod that count; kube-scheduler checks the rest."""
_NOWHERE: Final = {"nodeSelectorTerms": ()}
"""The node affinity of a pod that has more parts: it matches no node."""
_FORMAT: Final = 2
"""The version of marshal's format in which equal JSON is equal bytes; from 3 on it is not."""

_Requests = Mapping[str, Any]
_Amounts = dict[str, Quantity]


class _Container(NamedTuple):
    """What matters of a container. A tuple, since marshal writes no other values."""

    is_sidecar: bool
    """Whether it is an init container that keeps running (`restartPolicy: Always`)."""
    requests: Sequence[_Requests]
    """What it requests; during a resize also what the kubelet allocated, and what it uses."""
    ports: Sequence[Mapping[str, Any]]
    """Those on the node."""


def needs_of(body: JsonObject) -> PodNeeds:
    """What a Pod needs of a node besides devices.

    Requests are those of `PodRequests` in k8s.io/component-helpers (`resource/helpers.go`, 1.37),
    with resizes in place. Resources other than cpu and memory are all in `extended`, ephemeral
    storage and huge pages too, but not those that kube-scheduler serves by a claim. What dynamic
    resource allocation adds to requests (`nodeAllocatableResourceClaimStatuses`, alpha) is not.

    The node to which the controller pinned the pod is left out: the pod that replaces it may go
    elsewhere. A bound pod that names no queue has no constraints, since nobody places it again; but
    by its anti-affinity it keeps others away. A node affinity that cannot be read matches no node.

    Raises:
        ValueError: a quantity cannot be read.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    metadata = body["metadata"]
    affinity, namespace = spec.get("affinity") or {}, metadata.get("namespace", "")
    constraints: dict[str, Any]
    if spec.get("nodeName") and QUEUE_LABEL not in (metadata.get("labels") or {}):
        terms = affinity_terms(affinity, namespace, anti_only=True) if affinity else ()
        constraints = {"podAffinity": terms} if terms else {}
    else:
        pin = (metadata.get("annotations") or {}).get(NODE_ANNOTATION)
        constraints = {
            "nodeSelector": spec.get("nodeSelector"),
            "nodeAffinity": _without_pin((affinity.get("nodeAffinity") or {}).get(_REQUIRED), pin),
            "podAffinity": affinity_terms(affinity, namespace),
            "spread": spread_terms(
                spec.get("topologySpreadConstraints") or (),
                namespace,
                metadata.get("labels") or {},
            ),
            "tolerations": spec.get("tolerations"),
        }
        if _size(constraints) > _MOST_PARTS:
            constraints |= {"nodeSelector": None, "nodeAffinity": _NOWHERE, "tolerations": None}
    served = (status.get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
    parts: Any = (
        _containers(spec.get("containers"), status),
        _containers(spec.get("initContainers"), status),
        (spec.get("resources") or {}).get("requests"),
        spec.get("overhead"),
        constraints,
        sorted({mapping.get("resourceName", "") for mapping in served}),
    )
    key = marshal.dumps(parts, _FORMAT)
    return _read_shared(key) if len(key) <= _LONGEST else _read(key)


def _size(constraints: Mapping[str, Any]) -> int:
    """How many parts node selector, node affinity and tolerations have. Tenants choose it."""
    terms = (constraints["nodeAffinity"] or {}).get("nodeSelectorTerms") or ()
    parts = sum(
        1 + len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ())
        for term in terms
    )
    return parts + len(constraints["nodeSelector"] or ()) + len(constraints["tolerations"] or ())


def _read(key: bytes) -> PodNeeds:
    """The needs from the parts of a body that matter for them."""
    main, init, pod_level, overhead, constraints, served = marshal.loads(key)  # noqa: S302 - written above
    containers = [_Container(*container) for container in main]
    init_containers = [_Container(*container) for container in init]
    amounts = _pod_requests(containers, init_containers, pod_level, overhead)
    sidecars = [container for container in init_containers if container.is_sidecar]
    return PodNeeds(
        cpu=amounts.pop(_CPU, _ZERO).milli_value(),
        memory=amounts.pop(_MEMORY, _ZERO).value(),
        extended=tuple(
            sorted(
                (name, amount.value())
                for name, amount in amounts.items()
                if amount and name not in served
            )[:_MOST_EXTENDED]
        ),
        node_selector=tuple(sorted((constraints.get("nodeSelector") or {}).items())),
        affinity=_node_selector(constraints.get("nodeAffinity")),
        tolerations=tuple(_tolerations(constraints.get("tolerations") or ())),
        host_ports=tuple(_host_ports((*sidecars, *containers))),
        pod_affinity=read_affinity(constraints.get("podAffinity") or ()),
        spread=read_spread(constraints.get("spread") or ()),
    )


_read_shared: Final = lru_cache(_TEMPLATES)(_read)


# Requests ----------------------------------------------------------------------------------------


def _containers(containers: Sequence[JsonObject] | None, status: JsonObject) -> list[Any]:
    """The containers, with the sizes that a resize in place is between."""
    statuses = {
        container_status["name"]: container_status
        for kind in ("initContainerStatuses", "containerStatuses")
        for container_status in status.get(kind) or ()
    }
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    return [
        (
            container.get("restartPolicy") == "Always",
            _sizes(container, statuses.get(container["name"]) or {}, infeasible=infeasible),
            [port for port in container.get("ports") or () if port.get("hostPort")],
        )
        for container in containers or ()
    ]


def _sizes(container: JsonObject, status: JsonObject, *, infeasible: bool) -> list[_Requests]:
    """What a container requests, was allocated, and uses; the request alone if all are the same."""
    requests: _Requests = (container.get("resources") or {}).get("requests") or {}
    requested: _Requests = {} if infeasible else requests  # the kubelet will never grant it
    allocated: _Requests | None = status.get("allocatedResources")
    if allocated is None:
        allocated = requested
    used: _Requests | None = (status.get("resources") or {}).get("requests")
    if used is None:
        used = allocated
    return [requested] if requested == allocated == used else [requested, allocated, used]


def _pod_requests(
    containers: Sequence[_Container],
    init_containers: Sequence[_Container],
    pod_level: _Requests | None,
    overhead: _Requests | None,
) -> _Amounts:
    result: _Amounts = {}
    for size in range(
        max((len(container.requests) for container in (*containers, *init_containers)), default=0)
    ):
        _raise_to(result, _sum(containers, init_containers, size))
    for name, amount in _amounts(pod_level).items():
        if name in (_CPU, _MEMORY) or name.startswith(_HUGE_PAGES):
            result[name] = amount
    _add(result, _amounts(overhead))
    return result


def _sum(
    containers: Sequence[_Container], init_containers: Sequence[_Container], size: int
) -> _Amounts:
    """The containers with the sidecars, or one init container with the sidecars before it."""
    running: _Amounts = {}
    for container in containers:
        _add(running, _of_size(container, size))
    sidecars: _Amounts = {}
    starting: _Amounts = {}
    for container in init_containers:
        amounts = _of_size(container, size)
        if container.is_sidecar:
            _add(running, amounts)
            _add(sidecars, amounts)
        else:
            _add(amounts, sidecars)
            _raise_to(starting, amounts)
    _raise_to(running, starting)
    return running


def _of_size(container: _Container, size: int) -> _Amounts:
    return _amounts(container.requests[min(size, len(container.requests) - 1)])


def _amounts(requests: _Requests | None) -> _Amounts:
    return {name: Quantity.parse(str(text)) for name, text in (requests or {}).items()}


def _add(amounts: _Amounts, others: _Amounts) -> None:
    for name, amount in others.items():
        amounts[name] = amounts[name] + amount if name in amounts else amount


def _raise_to(amounts: _Amounts, others: _Amounts) -> None:
    for name, amount in others.items():
        if name not in amounts or amount > amounts[name]:
            amounts[name] = amount


# Constraints -------------------------------------------------------------------------------------


def _without_pin(required: JsonObject | None, pin: str | None) -> JsonObject | None:
    """A required node affinity without the node to which the controller pinned the pod."""
    if required is None or pin is None:
        return required
    added = {"key": "metadata.name", "operator": "In", "values": [pin]}
    terms: list[JsonObject] = []
    for term in required.get("nodeSelectorTerms") or ():
        fields = [field for field in term.get("matchFields") or () if field != added]
        if not fields and not term.get("matchExpressions"):
            return None  # nothing else was required
        terms.append({**term, "matchFields": fields})
    return {"nodeSelectorTerms": terms}


def _node_selector(required: JsonObject | None) -> NodeSelector | None:
    if required is None:
        return None
    try:
        return decode(NodeSelector, required)
    except DecodeError:  # of a newer API
        return _NO_NODE


def _tolerations(tolerations: Iterable[JsonObject]) -> Iterator[Toleration]:
    for each in tolerations:
        operator = each.get("operator") or PodTolerationOperator.EQUAL
        if operator in _OPERATORS:  # one of a newer API tolerates nothing that is known here
            yield Toleration(
                each.get("key", ""),
                each.get("value", ""),
                PodTolerationOperator(operator),
                each.get("effect", ""),
            )


def _host_ports(containers: Iterable[_Container]) -> Iterator[tuple[str, str, int]]:
    for container in containers:
        for port in container.ports:
            yield (
                port.get("protocol") or "TCP",
                port.get("hostIP") or _ANY_ADDRESS,
                port["hostPort"],
            )
