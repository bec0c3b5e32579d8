"""Claims to write tests with."""

from carina_dra.config.device import GpuConfig, ShareConfig
from carina_dra.quantity import Quantity
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim

UID = "d3797add-c027-4ff8-ade9-756e9b3fba9d"


def allocated(
    device: str,
    request: str = "gpu",
    *,
    admin_access: bool = False,
    share_id: str | None = None,
) -> AllocatedDevice:
    """A device that was allocated to a request."""
    return AllocatedDevice(request, "node-1", device, GpuConfig(), admin_access, share_id)


def allocated_share(
    device: str,
    request: str = "gpu",
    *,
    share_id: str,
    memory: str = "30Gi",
    cores: int = 40,
    config: ShareConfig | None = None,
) -> AllocatedDevice:
    """A share that was allocated to a request."""
    return AllocatedDevice(
        request,
        "node-1",
        device,
        config or ShareConfig(),
        share_id=share_id,
        consumed_capacity={"memory": Quantity.parse(memory), "cores": Quantity.of(cores)},
    )


def claim(*devices: AllocatedDevice, uid: str = UID, name: str = "train") -> NodeClaim:
    """A claim of the namespace `default`, of `gpu-0` if nothing else is said."""
    return NodeClaim(uid, "default", name, devices or (allocated("gpu-0"),))
