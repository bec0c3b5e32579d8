"""The metric of a share says what enforces it for its claim: it may be less than the device has."""

from dataclasses import replace

import pytest

from carina_dra.config.device import Enforcement, ShareConfig
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


@pytest.mark.parametrize(("has_daemon", "level"), [(True, "mps"), (False, "none")])
def test_memory_is_enforced_per_process_if_the_claim_has_the_daemon_that_it_demands(
    has_daemon: bool, level: str
) -> None:
    config = ShareConfig(enforcement=Enforcement(memory=("mps",)))
    shared = claim(replace(allocated_share("gpu-0-share", share_id="s-1"), config=config))
    now = ClaimsNow(
        claims={shared.uid: shared},
        readiness={shared.uid: SetUp(mps=has_daemon)},
        gpus=GpusNow(DriverReady((observed(0),))),
    )
    metrics = ShareMetrics(lambda: now, lambda: None, dict)
    (sample,) = [
        sample
        for metric in metrics.collect()
        for sample in metric.samples
        if sample.name == "carina_share_info"
    ]
    assert sample.labels["memory_enforcement"] == level
