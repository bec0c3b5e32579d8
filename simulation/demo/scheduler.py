"""Stands in for kube-scheduler: finds a node for a pod, and devices of the node for its claims.

The product's allocator chooses the devices, with the policy that follows kube-scheduler's order.
Only devices and required node affinity are considered. The scheduler writes what kube-scheduler
writes: allocation, reservation, finalizer, and the pod's node. A pod that requests an extended
resource of a DeviceClass gets a claim of its own (KEP-5004).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.explanation import explain
from carina_dra.allocator.node import Node, selects
from carina_dra.allocator.preference import UPSTREAM
from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    NodeSelector,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from simulation.demo.claim_controller import make_claims, owned_by, protect
from simulation.demo.console import DemoError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScheduledPod:
    """A pod, the node that it is bound to, and the names of its claims."""

    pod: Body
    node: str
    claims: list[str]


def is_gated(pod: Body) -> bool:
    """Whether a scheduling gate keeps the pod from being scheduled."""
    return bool(pod["spec"].get("schedulingGates"))


def schedule(client: Client, pod: Body) -> ScheduledPod:
    """Allocates the pod's claims, all on one node, and binds the pod to that node.

    Claims that are allocated keep their devices.

    Raises:
        DemoError: no node has the devices that the pod requests; the message says why, by node.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    classes = {found.metadata.name: found for found in _list(client, DEVICE_CLASSES, DeviceClass)}
    names = [*make_claims(client, pod), *_extended_resource_claims(client, pod, classes)]
    bodies = [client.get(RESOURCE_CLAIMS, claim, namespace=namespace) for claim in names]
    claims = [decode(ResourceClaim, body) for body in bodies]
    try:
        node, allocations = _place(pod, claims, classes, snapshot(client))
    except (AllocationError, DemoError) as error:
        raise DemoError(f"pod {namespace}/{name} cannot be scheduled: {error}") from error
    for body, claim in zip(bodies, claims, strict=True):
        _record(client, body, allocations.get(claim.key), pod)
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    client.create_subresource(PODS, name, "binding", binding, namespace=namespace)
    return ScheduledPod(client.get(PODS, name, namespace=namespace), node, names)


def snapshot(client: Client) -> Cluster:
    """The nodes, their devices and the current allocations, as read from the API."""
    cluster = Cluster()
    for node in client.list(NODES).items:
        cluster.put_node(Node.of(node))
    for rule in _list(client, DEVICE_TAINT_RULES, DeviceTaintRule):
        cluster.put_rule(rule)
    for published in _list(client, RESOURCE_SLICES, ResourceSlice):
        cluster.put_slice(published)
    for claim in _list(client, RESOURCE_CLAIMS, ResourceClaim):
        cluster.put_claim(claim)
    return cluster


def _list(client: Client, resource: ApiResource, kind: type[T]) -> list[T]:
    return [decode(kind, body) for body in client.list(resource).items]


def _place(
    pod: Body,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    cluster: Cluster,
) -> tuple[str, dict[str, Allocation]]:
    """A node for the pod, and new allocations by claim key for those without one.

    Raises:
        AllocationError: a claim cannot be satisfied anywhere.
        DemoError: no node has the devices.
    """
    pending = [claim for claim in claims if claim.status.allocation is None]
    nodes = [
        name
        for name, node in cluster.nodes.items()
        if _may_run_on(pod, node) and all(_is_reachable(claim, node) for claim in claims)
    ]
    request = PlacementRequest.of(pending, classes, cluster.features)
    placer = Placer(cluster, UPSTREAM, new_share_id=lambda: str(uuid.uuid4()))
    placement = placer.place(request, nodes)
    if not isinstance(placement, PlacedClaims):
        reasons = [line for name in nodes for line in _why_not(request, cluster, name)]
        raise DemoError("\n  ".join(["no node has the devices", *reasons]))
    keys = (claim.key for claim in pending)
    return placement.node, dict(zip(keys, placement.allocated.allocations, strict=True))


def _why_not(request: PlacementRequest, cluster: Cluster, node: str) -> list[str]:
    return list(explain(request.claims, cluster.state(node)).lines())


def _may_run_on(pod: Body, node: Node) -> bool:
    """Whether the required node affinity of the pod, if it has any, matches the node."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or selects(decode(NodeSelector, required), node)


def _is_reachable(claim: ResourceClaim, node: Node) -> bool:
    """Whether the devices allocated to the claim, if any, are usable on the node."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return True
    return selects(allocation.node_selector, node)


def _record(client: Client, claim: Body, allocation: Allocation | None, pod: Body) -> None:
    """Writes the pod's reservation, and the allocation, unless the claim has them."""
    metadata = claim["metadata"]
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    reserved = claim.get("status", {}).get("reservedFor", ())
    if allocation is None and consumer in reserved:
        return
    status: Body = {"reservedFor": [*reserved, consumer]}
    if allocation is not None:
        protect(client, claim)
        status["allocation"] = encode(allocation)
    client.patch(
        RESOURCE_CLAIMS,
        metadata["name"],
        MergePatch({"status": status}),
        namespace=metadata["namespace"],
        subresource="status",
    )


def _extended_resource_claims(
    client: Client, pod: Body, classes: Mapping[str, DeviceClass]
) -> list[str]:
    """Creates the claim for extended resources in the containers' limits, if there are any."""
    offered = {
        device_class.spec.extended_resource_name: name
        for name, device_class in classes.items()
        if device_class.spec.extended_resource_name
    }
    requests = []
    mappings = []
    for number, container in enumerate(pod["spec"]["containers"]):
        limits = container.get("resources", {}).get("limits", {})
        wanted = ((name, count) for name, count in sorted(limits.items()) if name in offered)
        for index, (resource, count) in enumerate(wanted):
            request = f"container-{number}-request-{index}"
            exactly = {"deviceClassName": offered[resource], "count": int(count)}
            requests.append({"name": request, "exactly": exactly})
            mappings.append(
                {
                    "containerName": container["name"],
                    "resourceName": resource,
                    "requestName": request,
                }
            )
    if not requests:
        return []
    metadata = pod["metadata"]
    claim = client.create(
        RESOURCE_CLAIMS,
        {
            "metadata": {
                "generateName": f"{metadata['name']}-extended-resources-",
                "namespace": metadata["namespace"],
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [owned_by(pod)],
            },
            "spec": {"devices": {"requests": requests}},
        },
    )
    name: str = claim["metadata"]["name"]
    status = {"resourceClaimName": name, "requestMappings": mappings}
    client.patch(
        PODS,
        metadata["name"],
        MergePatch({"status": {"extendedResourceClaimStatus": status}}),
        namespace=metadata["namespace"],
        subresource="status",
    )
    return [name]
