"""The metric of a share says what enforces it for its claim: it may be less than the device has."""

import pytest

from kubelet_plugin.claim_status.device_health import GpusNow
from kubelet_plugin.claim_status.live_claims import ClaimsNow
from kubelet_plugin.claim_status.readiness import NotSetUp, Readiness, SetUp
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.report.share_metrics import ShareMetrics
from tests.samples.claims import allocated_share, claim
from tests.samples.gpus import observed


@pytest.mark.parametrize(
    ("readiness", "level"),
    [
        (SetUp(limited=frozenset({"gpu-0"})), "kernel"),
        (SetUp(limited=frozenset({"gpu-1"})), "none"),
        (NotSetUp("no limit"), "none"),
        (None, "none"),
    ],
)
def test_memory_is_enforced_by_the_kernel_if_the_pod_of_the_claim_is_limited(
    readiness: Readiness | None, level: str
) -> None:
    shared = claim(allocated_share("gpu-0-share", share_id="s-1"))
    now = ClaimsNow(
        claims={shared.uid: shared},
        readiness={} if readiness is None else {shared.uid: readiness},
        gpus=GpusNow(DriverReady((observed(0, memory_limits=True),))),
    )
    metrics = ShareMetrics(lambda: now, lambda: None, dict)
    (sample,) = [
        sample
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == "carina_share_info"
    ]
    assert sample.labels["memory_enforcement"] == level
