"""Connects the plugin to carina-sharing."""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.record import ClaimRecord
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.share_metrics import ShareMetrics
from kubelet_plugin.settings import PluginSettings
from kubelet_plugin.sharing.claim_pods import ClaimPods
from kubelet_plugin.sharing.client import SharingClient

_TIMEOUT = 5.0
"""Seconds to read a claim."""


def claim_pods(client: Client, joined: Callable[[], None]) -> ClaimPods:
    """What is known of the pods of claims with shares; `joined` is called when limits change."""

    def read(claim: ClaimReference) -> Body:
        return client.get(RESOURCE_CLAIMS, claim.name, namespace=claim.namespace, timeout=_TIMEOUT)

    return ClaimPods(read, joined=joined, clock=time.monotonic)


def sharing_client(
    chosen: PluginSettings,
    record: ClaimRecord,
    live_claims: LiveClaims,
    report: ClaimReport,
    metrics: PluginMetrics,
    cleanup: contextlib.ExitStack,
    *,
    pods: ClaimPods,
    released: bool,
) -> SharingClient:
    """The client of carina-sharing, which is not started yet.

    While the node is released, there are no GPUs.
    """

    def claims() -> Collection[NodeClaim]:
        return live_claims.now.claims.values()

    def gpus() -> Mapping[str, str] | None:
        seen = live_claims.now.gpus
        if seen.inventory is None:
            return {} if released else None
        return {name: observed.gpu.uuid for name, observed in seen.gpus.items()}

    sharing = SharingClient(
        chosen.sharing_socket,
        record=record.checkpoint,
        claims=claims,
        gpus=gpus,
        pods=pods,
        seen=live_claims.shares_seen,
        reporter=report,
        clock=time.monotonic,
        now=time.time,
    )
    metrics.add(ShareMetrics(lambda: live_claims.now, lambda: sharing.report, lambda: sharing.pods))
    cleanup.callback(sharing.stop)
    return sharing
