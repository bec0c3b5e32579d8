"""Connects the plugin to carina-sharing."""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Self

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.sharing.message import WantedDaemon
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.record import ClaimRecord
from kubelet_plugin.prepare.daemon_records import DaemonRecords
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.resource import ResourceError
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.mps_metrics import MpsMetrics
from kubelet_plugin.report.share_metrics import ShareMetrics
from kubelet_plugin.settings import PluginSettings
from kubelet_plugin.sharing.claim_pods import ClaimPods
from kubelet_plugin.sharing.client import SharingClient
from kubelet_plugin.sharing.guards import ShareGuards
from kubelet_plugin.sharing.supervision import Supervision

_TIMEOUT = 5.0
"""Seconds to read a claim."""


@dataclass(frozen=True, slots=True)
class SharingTies:
    """What ties the client of carina-sharing to the devices and to what claims need."""

    guards: ShareGuards
    records: DaemonRecords
    supervision: Supervision
    mps_daemons: MpsDaemons
    pods: ClaimPods

    @classmethod
    def of(
        cls,
        chosen: PluginSettings,
        client: Client,
        boot: str,
        *,
        offers_changed: Callable[[], None],
        pods_joined: Callable[[], None],
    ) -> Self:
        """`offers_changed` is called when other devices may have to be published.

        `pods_joined` is called when the limits of pods have to be set again.
        """

        def read(claim: ClaimReference) -> Body:
            return client.get(
                RESOURCE_CLAIMS, claim.name, namespace=claim.namespace, timeout=_TIMEOUT
            )

        records, supervision = DaemonRecords(chosen.mps_records, boot), Supervision()
        return cls(
            ShareGuards(changed=offers_changed, clock=time.monotonic),
            records,
            supervision,
            MpsDaemons(records, chosen.mps_folders, supervision),
            ClaimPods(read, joined=pods_joined, clock=time.monotonic),
        )


def sharing_client(
    chosen: PluginSettings,
    record: ClaimRecord,
    live_claims: LiveClaims,
    report: ClaimReport,
    metrics: PluginMetrics,
    cleanup: contextlib.ExitStack,
    *,
    ties: SharingTies,
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

    def daemons() -> tuple[WantedDaemon, ...]:
        try:
            return ties.records.wanted()
        except ResourceError as error:
            raise ClaimError(NodeResourceFailed(None, error.failure)) from error

    sharing = SharingClient(
        chosen.sharing_socket,
        record=record.checkpoint,
        claims=claims,
        gpus=gpus,
        pods=ties.pods,
        daemons=daemons,
        guards=ties.guards,
        supervision=ties.supervision,
        seen=live_claims.shares_seen,
        reporter=report,
        clock=time.monotonic,
        now=time.time,
    )
    metrics.add(ShareMetrics(lambda: live_claims.now, lambda: sharing.report, lambda: sharing.pods))
    metrics.add(MpsMetrics(lambda: sharing.report))
    cleanup.callback(sharing.stop)
    return sharing
