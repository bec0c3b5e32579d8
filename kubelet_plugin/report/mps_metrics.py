"""Metrics of the MPS daemons that prepared claims have, as carina-sharing says."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from carina_dra.sharing.message import SharingReport

_CLAIM: Final = ("dra_claim_namespace", "dra_claim_name")


class MpsMetrics(Collector):
    """The metrics of the node's MPS daemons."""

    def __init__(self, report: Callable[[], SharingReport | None]) -> None:
        """`report` returns None without carina-sharing."""
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics as they are now."""
        ready = GaugeMetricFamily(
            "carina_mps_daemon_ready",
            "1 if the MPS daemon of a claim runs with its limits, else 0.",
            labels=_CLAIM,
        )
        restarts = CounterMetricFamily(
            "carina_mps_daemon_restarts",
            "How many times the MPS daemon of a claim was started again.",
            labels=_CLAIM,
        )
        report = self._report()
        found = {} if report is None else {own.wanted.claim: own for own in report.daemons}
        names = {(claim.namespace, claim.name): own for claim, own in found.items()}
        for labels, daemon in names.items():  # of a claim that was made again, the last
            ready.add_metric(labels, int(daemon.state == "ready"))
            restarts.add_metric(labels, daemon.restarts)
        yield from (ready, restarts)
