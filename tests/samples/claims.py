"""Claims to write tests with."""

from carina_dra.config.device import GpuConfig
from kubelet_plugin.claims.claim import ClaimDevice, PreparedClaim

UID = "d3797add-c027-4ff8-ade9-756e9b3fba9d"


def granted(
    device: str,
    request: str = "gpu",
    *,
    admin_access: bool = False,
    share_id: str | None = None,
) -> ClaimDevice:
    """A device granted to a request."""
    return ClaimDevice(request, "node-1", device, GpuConfig(), admin_access, share_id)


def claim(*devices: ClaimDevice, uid: str = UID, name: str = "train") -> PreparedClaim:
    """A claim of the namespace `default`, of `gpu-0` if nothing else is said."""
    return PreparedClaim(uid, "default", name, devices or (granted("gpu-0"),))
