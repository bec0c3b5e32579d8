"""Small clusters and claims for tests, in short notation."""

import itertools
from collections.abc import Mapping
from typing import Any

from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacedClaims, Placement, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceClass, ResourceClaim, ResourceSlice, decode

DRIVER = "gpu.carina.dev"
CLASSES = {
    "gpu": decode(
        DeviceClass,
        {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
    )
}
_names = itertools.count()


def gpu(name: str, **places: Any) -> dict[str, Any]:
    """A GPU; `numa`, `root` and `nvlink` are its location, `model` its product."""
    attributes: dict[str, Any] = {"model": {"string": places.get("model", "H200")}}
    if "numa" in places:
        attributes["resource.kubernetes.io/numaNode"] = {"int": places["numa"]}
    if "root" in places:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": places["root"]}
    if "nvlink" in places:
        attributes["nvlinkDomain"] = {"string": places["nvlink"]}
    return {"name": name, "attributes": attributes}


def slices(node: str, *specs: Mapping[str, Any]) -> list[ResourceSlice]:
    """The slices of a node's pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(specs)}
    return [
        decode(
            ResourceSlice,
            {
                "metadata": {"name": f"{node}-{index}"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
            },
        )
        for index, spec in enumerate(specs)
    ]


def cluster(**nodes: list[dict[str, Any]]) -> Cluster:
    """A cluster with these devices on its nodes."""
    made = Cluster()
    for name, devices in nodes.items():
        made.put_node(Node(name))
        for published in slices(name, {"devices": devices}):
            made.put_slice(published)
    return made


def claim(count: int = 1, selector: str | None = None, **exactly: Any) -> ResourceClaim:
    """A claim for `count` GPUs."""
    asked: dict[str, Any] = {"deviceClassName": "gpu", "count": count, **exactly}
    if selector:
        asked["selectors"] = [{"cel": {"expression": selector}}]
    return claim_of({"name": "gpus", "exactly": asked})


def claim_of(*requests: dict[str, Any], **more: Any) -> ResourceClaim:
    """A claim with these requests."""
    return decode(
        ResourceClaim,
        {
            "metadata": {"name": f"claim-{next(_names)}", "namespace": "default"},
            "spec": {"devices": {"requests": list(requests), **more}},
        },
    )


def place(of: Cluster, asked: ResourceClaim, policy: Policy | None = None) -> Placement:
    """The best placement of the claim."""
    placer = Placer(of, policy or Policy(), new_share_id=lambda: "share")
    return placer.place(PlacementRequest.of([asked], CLASSES, of.features))


def give(of: Cluster, asked: ResourceClaim, policy: Policy | None = None) -> list[str]:
    """Allocates the claim; its devices as `node/device`, sorted, or nothing."""
    placed = place(of, asked, policy)
    if not isinstance(placed, PlacedClaims):
        return []
    allocation = placed.allocated.allocations[0]
    of.allocate(asked.key, allocation)
    return sorted(f"{result.pool}/{result.device}" for result in allocation.devices.results)


def network(name: str, *devices: dict[str, Any], **nodes: Any) -> ResourceSlice:
    """A pool with one slice, for all nodes unless the fields of `nodes` say otherwise."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": list(devices)}
    return decode(
        ResourceSlice,
        {"metadata": {"name": name}, "spec": {**spec, **(nodes or {"allNodes": True})}},
    )


def with_zone(zone: str) -> dict[str, Any]:
    """The node selector of nodes with this label `zone`."""
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        ]
    }


def partitions(node: str, total: int, **sizes: int) -> list[ResourceSlice]:
    """The slices of a node's pool of partitions, which consume one counter of this total."""
    return slices(
        node,
        {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": str(total)}}}]},
        {"devices": [{"name": name, **consumption(gpu=size)} for name, size in sizes.items()]},
    )


def consumption(**sizes: int) -> dict[str, Any]:
    """What a device consumes of the counter `memory` of counter sets."""
    return {
        "consumesCounters": [
            {"counterSet": name, "counters": {"memory": {"value": str(size)}}}
            for name, size in sizes.items()
        ]
    }


def model_is(model: str) -> str:
    """A selector of GPUs, which fails on devices without a model."""
    return f'device.attributes["{DRIVER}"].model == "{model}"'


def placer_of(of: Cluster, policy: str = "binpack", max_steps: int | None = None) -> Placer:
    """A placer whose shares have equal UIDs, so that its answers can be compared."""
    return Placer(of, Policy.parse(policy), new_share_id=lambda: "share", max_steps=max_steps)


def request(*claims: ResourceClaim, features: Features = DEFAULT_FEATURES) -> PlacementRequest:
    """The claims as a placer takes them."""
    return PlacementRequest.of(claims, CLASSES, features)


def devices_of(placed: Placement) -> list[str]:
    """The devices as `pool/device`, sorted; none if there is no node for the claims."""
    if not isinstance(placed, PlacedClaims):
        return []
    return sorted(
        f"{result.pool}/{result.device}"
        for allocation in placed.allocated.allocations
        for result in allocation.devices.results
    )
