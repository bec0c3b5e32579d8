"""Metrics of carina-sharing itself: that it samples, and what it has ended.

What shares use is among the metrics of the kubelet plugin, which knows the claims.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sharing.sampling import Sampling, SamplingCounts


class SharingMetrics(Collector):
    """The metrics of the process."""

    def __init__(self, counts: Callable[[], SamplingCounts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics as they are now."""
        now = self._counts()
        yield CounterMetricFamily(
            "carina_sharing_samples",
            "Samples that were taken of the processes on all shared GPUs.",
            value=now.samples,
        )
        ended = CounterMetricFamily(
            "carina_sharing_processes_ended",
            "Processes that were ended: `memory`, since their pods had exceeded their memory; "
            "`mps`, since they computed outside of MPS.",
            labels=["why"],
        )
        for why, count in now.ended.items():
            ended.add_metric([why], count)
        yield ended
        yield GaugeMetricFamily(
            "carina_sharing_driver_hangs",
            "1 while a call of the NVIDIA driver does not return, so that no GPU is watched; "
            "else 0.",
            value=int(now.hangs),
        )


def registry(sampling: Sampling) -> CollectorRegistry:
    """Returns the registry of the process's metrics."""
    made = CollectorRegistry()
    made.register(SharingMetrics(lambda: sampling.counts))
    return made
