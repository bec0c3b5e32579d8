"""Shares of GPUs, and reports on what they use, to write tests with."""

from carina_dra.sharing.message import (
    PodUse,
    Reference,
    ShareUse,
    SharingReport,
    Strangers,
    Unwatched,
)
from kubelet_plugin.claim_status.live_claims import ClaimsNow, LiveClaims
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.inventory.inventory import DriverReady
from tests.samples.claims import allocated_share
from tests.samples.gpus import gpu, observed

GPUS = (gpu(0).uuid, gpu(1).uuid)


def pod(name: str) -> Reference:
    """A pod of the namespace `team`."""
    return Reference(namespace="team", name=name, uid=f"uid-{name}")


def shared(name: str, memory: str = "10Gi", cores: int = 40, minor: int = 0) -> NodeClaim:
    """A claim of the namespace `team` with a share."""
    device = f"gpu-{minor}-share"
    share = allocated_share(device, share_id=name, memory=memory, cores=cores)
    return NodeClaim(name, "team", name, (share,))


def now(*claims: NodeClaim) -> ClaimsNow:
    """A node with two GPUs and these claims."""
    live = LiveClaims()
    live.gpus_seen(DriverReady((observed(0), observed(1))))
    live.recorded(claims)
    return live.now


def use(
    claims: tuple[str, ...],
    *pods: tuple[str, int, int | None],
    given_mib: int = 10240,
    minor: int = 0,
    idle_since: float | None = None,
    exceeded_since: float | None = None,
    exceeded: int = 0,
    ended: int = 0,
) -> ShareUse:
    """What pods use together; each has a name, MiB of memory and percent of SMs."""
    return ShareUse(
        gpu=GPUS[minor],
        claims=claims,
        given_mib=given_mib,
        given_cores=40,
        used_mib=sum(mib for _, mib, _ in pods),
        pods=tuple(
            PodUse(pod=pod(name), memory_mib=mib, sm_percent=percent, processes=1)
            for name, mib, percent in pods
        ),
        idle_since=idle_since,
        exceeded_since=exceeded_since,
        exceeded=exceeded,
        ended=ended,
    )


def report(
    *uses: ShareUse,
    strangers: tuple[Strangers, ...] = (),
    unwatched: tuple[Unwatched, ...] = (),
) -> SharingReport:
    """A report on these uses."""
    return SharingReport(
        generation=1, time=1000.0, uses=uses, strangers=strangers, unwatched=unwatched
    )
