"""A small cluster of GPUs, and the pods, claims and groups that tests put on it."""

from typing import Any

from carina_dra.allocator.node import Node
from carina_dra.resource import DeviceClass, ResourceClaim, ResourceSlice, decode
from controller.engine.model.group import Group, PodSet
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import DevicesOf

GPU = DevicesOf("gpu")
NEEDS = PodNeeds(cpu=100)
CLASS = decode(
    DeviceClass,
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}},
)


def node(name: str = "n1", **fields: Any) -> ClusterNode:
    """A node with 100 CPUs."""
    return ClusterNode(Node(name), **{"cpu": 100_000, "memory": 1 << 40, "pods": 1000, **fields})


def gpus(node_name: str = "n1", count: int = 8) -> ResourceSlice:
    """The slice of a node's GPUs."""
    return decode(
        ResourceSlice,
        {
            "metadata": {"name": node_name},
            "spec": {
                "driver": "d",
                "nodeName": node_name,
                "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"g{index}"} for index in range(count)],
            },
        },
    )


def claim(key: str, count: int = 1, *, has: tuple[str, ...] = (), users: int = 0) -> ResourceClaim:
    """A claim for GPUs; `has` are those that it has, as `node/device`."""
    namespace, _, name = key.partition("/")
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    body: dict[str, Any] = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"devices": {"requests": [request]}},
    }
    if has:
        results = [
            {
                "request": "r",
                "driver": "d",
                "pool": each.split("/")[0],
                "device": each.split("/")[1],
            }
            for each in has
        ]
        users_of = [
            {"resource": "pods", "name": f"u{index}", "uid": f"u{index}"} for index in range(users)
        ]
        body["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": users_of}
    return decode(ResourceClaim, body)


def queue(name: str, quota: int | None = 0, limit: int | None = None, **fields: Any) -> Queue:
    """A queue that is entitled to GPUs."""
    return Queue(name, entitlements={GPU: Entitlement(quota, limit)}, **fields)


def group(key: str, of_queue: str = "q", least: int = 1, **fields: Any) -> Group:
    """A group with one pod set."""
    return Group(key, of_queue, PodSet("", least), **fields)


def waiting(key: str, of_group: str, *claims: str, **fields: Any) -> Pod:
    """A pod that waits."""
    return Pod(key, fields.pop("needs", NEEDS), Pending(), of_group, claims=claims, **fields)


def running(key: str, of_group: str, *claims: str, on: str = "n1", **fields: Any) -> Pod:
    """A pod that runs."""
    return Pod(key, NEEDS, Placed(on), of_group, claims=claims, **fields)
