"""In the role of kube-scheduler: finds a node for a pod, and devices there for its claims.

It looks at devices only, takes the first node that fits, and writes what kube-scheduler writes:
allocation, reservation, and the pod's node. A pod that asks for an extended resource of a
DeviceClass gets a claim of its own (KEP-5004).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceClass,
    DeviceResult,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from simulation.demo.allocator import Candidate, allocate, candidates, configurations
from simulation.demo.claim_controller import make_claims, owned_by, protect


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod runs, and the names of its claims."""

    pod: Body
    node: str
    claims: list[str]


def schedule(client: Client, pod: Body) -> Placement | None:
    """Places a pod; None if no node has the devices that it asks for."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    classes = {
        each["metadata"]["name"]: decode(DeviceClass, each)
        for each in client.list(DEVICE_CLASSES).items
    }
    names = [*make_claims(client, pod), *_extended_resource_claims(client, pod, classes)]
    bodies = [client.get(RESOURCE_CLAIMS, each, namespace=namespace) for each in names]
    claims = [decode(ResourceClaim, body) for body in bodies]
    slices = [decode(ResourceSlice, body) for body in client.list(RESOURCE_SLICES).items]
    offered = candidates(slices)
    for node in sorted(offered):
        allocations = _allocate_all(claims, classes, node, offered[node], _in_use(client))
        if allocations is None:
            continue
        for body, allocation in zip(bodies, allocations, strict=True):
            _record(client, body, allocation, pod)
        placed = client.patch(
            PODS, name, MergePatch({"spec": {"nodeName": node}}), namespace=namespace
        )
        return Placement(placed, node, names)
    return None


def _in_use(client: Client) -> frozenset[tuple[str, str, str]]:
    """The devices that are given away; admin access takes nothing from anybody."""
    claims = (decode(ResourceClaim, body) for body in client.list(RESOURCE_CLAIMS).items)
    return frozenset(
        _id(result)
        for claim in claims
        if claim.status.allocation
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    )


def _id(result: DeviceResult) -> tuple[str, str, str]:
    return result.driver, result.pool, result.device


def _allocate_all(
    claims: list[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    node: str,
    offered: tuple[Candidate, ...],
    taken: frozenset[tuple[str, str, str]],
) -> list[Allocation] | None:
    """An allocation for each claim, all on one node; those that have one keep it."""
    allocations = []
    for claim in claims:
        existing = claim.status.allocation
        if existing is not None:
            if existing.node_selector != _only(node):
                return None
            allocations.append(existing)
            continue
        wanted = claim.spec.devices
        results = allocate(wanted, classes, offered, taken)
        if results is None:
            return None
        taken |= {_id(result) for result in results if not result.admin_access}
        config = configurations(wanted, classes, results)
        allocations.append(Allocation(DeviceAllocation(results, config), _only(node)))
    return allocations


def _only(node: str) -> NodeSelector:
    field = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node,))
    return NodeSelector((NodeSelectorTerm(match_fields=(field,)),))


def _record(client: Client, claim: Body, allocation: Allocation, pod: Body) -> None:
    """Writes an allocation, if it is new, and the pod's reservation."""
    metadata, status = claim["metadata"], claim.get("status", {})
    if "allocation" not in status:
        protect(client, claim)
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    changes = {
        "allocation": encode(allocation),
        "reservedFor": [*status.get("reservedFor", ()), consumer],
    }
    client.patch(
        RESOURCE_CLAIMS,
        metadata["name"],
        MergePatch({"status": changes}),
        namespace=metadata["namespace"],
        subresource="status",
    )


def _extended_resource_claims(
    client: Client, pod: Body, classes: Mapping[str, DeviceClass]
) -> list[str]:
    """Makes the claim for what the containers ask for by `limits`; none if nothing."""
    offered = {
        each.spec.extended_resource_name: name
        for name, each in classes.items()
        if each.spec.extended_resource_name
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
