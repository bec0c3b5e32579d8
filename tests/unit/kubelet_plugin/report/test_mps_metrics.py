"""Metrics of MPS daemons, as carina-sharing says how they are."""

from prometheus_client import CollectorRegistry, generate_latest

from carina_dra.sharing.message import (
    MpsDaemon,
    MpsDevice,
    Reference,
    SharingReport,
    WantedDaemon,
)
from kubelet_plugin.report.mps_metrics import MpsMetrics


def daemon(name: str, *, uid: str = "1", ready: bool = True, restarts: int = 0) -> MpsDaemon:
    wanted = WantedDaemon(
        claim=Reference(namespace="team", name=name, uid=uid),
        devices=(MpsDevice(uuid="GPU-0", memory_mib=1024),),
        thread_percentage=10,
    )
    return MpsDaemon(wanted=wanted, state="ready" if ready else "failed", restarts=restarts)


def scrape(*daemons: MpsDaemon) -> list[str]:
    registry = CollectorRegistry()
    report = SharingReport(generation=1, time=1.0, daemons=daemons)
    registry.register(MpsMetrics(lambda: report))
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_each_claim_with_a_daemon_has_its_state_and_its_restarts() -> None:
    lines = scrape(daemon("train", restarts=3), daemon("serve", ready=False))
    train = 'dra_claim_name="train",dra_claim_namespace="team"'
    serve = 'dra_claim_name="serve",dra_claim_namespace="team"'
    assert f"carina_mps_daemon_ready{{{train}}} 1.0" in lines
    assert f"carina_mps_daemon_ready{{{serve}}} 0.0" in lines
    assert f"carina_mps_daemon_restarts_total{{{train}}} 3.0" in lines


def test_a_claim_that_was_made_again_has_one_series() -> None:
    lines = scrape(daemon("train", uid="1", ready=False), daemon("train", uid="2"))
    assert len([line for line in lines if line.startswith("carina_mps_daemon_ready")]) == 1


def test_without_carina_sharing_there_is_none() -> None:
    assert all(metric.samples == [] for metric in MpsMetrics(lambda: None).collect())
