"""The node's memory that a pod needs for a device, beside its own requests (KEP-5517).

CUDA contexts and pinned buffers take memory of the host for each process that computes on a GPU.
The scheduler adds this to the requests of each pod with the device, and the kubelet adds it to the
limits, so that the pod is not killed for memory that it did not ask for.
"""

from collections.abc import Mapping

from carina_dra.quantity import Quantity
from carina_dra.resource import NodeAllocatableOverhead, NodeAllocatableResource
from kubelet_plugin.devices.publish_settings import PublishSettings


def host_memory(settings: PublishSettings) -> Mapping[str, NodeAllocatableResource]:
    """Returns what a device on which pods compute costs the node; nothing unless it is set."""
    if not settings.host_memory_mib:
        return {}
    per_pod = Quantity.of(settings.host_memory_mib * 2**20)
    return {"memory": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod=per_pod))}
