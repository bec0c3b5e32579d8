"""Small clusters and claims for tests, in short notation."""

import itertools
from collections.abc import Mapping
from typing import Any

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.placer import Placed, Placement, PlacementRequest, Placer
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
    if not isinstance(placed, Placed):
        return []
    allocation = placed.allocated.allocations[0]
    of.allocate(asked.key, allocation)
    return sorted(f"{result.pool}/{result.device}" for result in allocation.devices.results)
