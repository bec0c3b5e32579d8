"""docs/reference/metrics.md: the metrics of the processes, from their registries."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.report.metrics import ControllerMetrics
from documentation import markdown
from documentation.markdown import code, paragraph, sentence, table
from kubelet_plugin.claim_status.live_claims import ClaimsNow
from kubelet_plugin.report.gpu_metrics import GpuMetrics
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.mps_metrics import MpsMetrics
from kubelet_plugin.report.share_metrics import ShareMetrics
from sharing.metrics import SharingMetrics
from sharing.sampling import SamplingCounts

_SUFFIXES: Final = {"counter": "_total"}


class _Registry(CollectorRegistry):
    """A registry that knows its collectors, in the order of their registration."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def page() -> str:
    """The page, in Markdown."""
    return markdown.page(
        "Metrics",
        "the registries of the plugin, the controller and carina-sharing",
        paragraph(
            "Each process serves its metrics for Prometheus at `/metrics` of `http_address` "
            "([settings](settings.md)). A histogram has the "
            "series `_bucket`, `_sum` and `_count`. Durations are in seconds."
        ),
        paragraph(
            "The metrics of GPUs have the labels of dcgm-exporter, so that they join `on (UUID)`, "
            "or `on (UUID, GPU_I_ID)` for partitions. A series names the claim if one alone holds "
            "the GPU or partition; `carina_device_claim_info` names all, also those of shares. "
            "`pod` is the pod that this claim was made for, from a template or for an extended "
            "resource. It is empty for a claim that several pods can use, which name it in "
            "`status.resourceClaimStatuses`; `container` is always empty. "
            "Memory and utilization are read from NVML when somebody scrapes, every 30 s at "
            "most, and are missing while the driver does not answer. A node with 8 GPUs of 7 "
            "partitions has 56 series of each."
        ),
        paragraph(
            "The metrics of shares, `carina_share_*`, have the labels of GPUs, and those of pod "
            "and claim where there is one: several pods can use a claim, and a pod can have "
            "several claims on a GPU. `carina_share_pod_info` has all pairs. What claims are given "
            "is known from their allocation; what they use, from carina-sharing, and is missing "
            "where `carina_sharing_connected` is 0 ([enforcement](../enforcement.md)). There are "
            "as many series of each as claims with shares, or as pods that use them."
        ),
        ["## carina-kubelet-plugin", "", *_table(_of_plugin())],
        ["## carina-controller", "", *_table(_of_controller())],
        ["## carina-sharing", "", *_table(_of_sharing())],
    )


def _of_plugin() -> _Registry:
    registry = _Registry()
    metrics = PluginMetrics(registry)
    metrics.add(GpuMetrics(ClaimsNow, dict))
    metrics.add(ShareMetrics(ClaimsNow, lambda: None, dict))
    metrics.add(MpsMetrics(lambda: None))
    return registry


def _of_controller() -> _Registry:
    registry = _Registry()
    ControllerMetrics(registry)
    return registry


def _of_sharing() -> _Registry:
    registry = _Registry()
    nothing = SamplingCounts(0, {"memory": 0, "mps": 0}, hangs=False)
    registry.register(SharingMetrics(lambda: nothing))
    return registry


def _table(registry: _Registry) -> Iterator[str]:
    found = sorted(row for collector in registry.collectors for row in rows(collector))
    return table(("metric", "type", "labels", "meaning"), found)


def rows(collector: Collector) -> list[tuple[str, str, str, str]]:
    """The rows of what a collector gives: one metric of the library, or several of ours."""
    match collector:
        case MetricWrapperBase():
            (family,) = collector.describe()
            return [_row(family, collector)]
        case _:
            return [_row(family, family) for family in collector.collect()]


def _row(family: Metric, labelled: Collector | Metric) -> tuple[str, str, str, str]:
    name = family.name + _SUFFIXES.get(family.type, "")
    labels = ", ".join(map(code, _labels(labelled)))
    return code(name), family.type, labels, sentence(family.documentation)


def _labels(labelled: Collector | Metric) -> tuple[str, ...]:
    """The labels of a metric, for which the library has no public name."""
    return tuple(getattr(labelled, "_labelnames"))  # noqa: B009 - the type does not have it
