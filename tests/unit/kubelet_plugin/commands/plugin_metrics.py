"""What a plugin says of its GPUs and shares, as its metrics page has it."""

from prometheus_client import CollectorRegistry, generate_latest

from carina_dra.sharing.message import SharingReport
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.nvml.usage import GpuUsage
from kubelet_plugin.report.gpu_metrics import GpuMetrics
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.share_metrics import ShareMetrics
from kubelet_plugin.sharing.wanted import PodsOfClaims
from tests.samples.shares import GPUS, now

MIB = 2**20


def metrics(
    *claims: NodeClaim, seen: SharingReport | None = None, pods: PodsOfClaims | None = None
) -> str:
    """What a plugin says; without a report there is no carina-sharing."""
    registry = CollectorRegistry()
    plugin = PluginMetrics(registry)
    plugin.sharing_connected.set(seen is not None)
    state = now(*claims)
    usage = {GPUS[0]: GpuUsage(80 * 1024 * MIB, 100 * MIB, None, 0.35)}
    plugin.add(GpuMetrics(lambda: state, lambda: usage))
    plugin.add(ShareMetrics(lambda: state, lambda: seen, lambda: pods or {}))
    return generate_latest(registry).decode()
