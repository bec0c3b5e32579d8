"""The plugin's metrics, for Prometheus. Durations are in seconds."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

_CALL_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10, 20, 45)
_READ_BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30)


class PluginMetrics:
    """Every metric of one plugin process, in a registry of its own unless one is given."""

    CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry = CollectorRegistry() if registry is None else registry
        self.call_seconds = Histogram(
            "carina_claim_call_duration_seconds",
            "Duration of the kubelet's calls per claim, by operation (prepare, unprepare) and "
            "result (ok, error), including retries within the call.",
            ("operation", "result"),
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.call_failures = Counter(
            "carina_claim_call_failures",
            "Failed calls of the kubelet per claim, by operation and reason (one word for each "
            "cause; docs/claim-failures.md lists them).",
            ("operation", "reason"),
            registry=registry,
        )
        self.prepared_claims = Gauge(
            "carina_prepared_claims",
            "Claims that are prepared on this node.",
            registry=registry,
        )
        self.repair_failures = Counter(
            "carina_claim_repair_failures",
            "Failed attempts to restore what a prepared claim needs, by reason (as of failed "
            "calls).",
            ("reason",),
            registry=registry,
        )
        self.drift_repairs = Counter(
            "carina_drift_repairs",
            "Things of prepared claims that something else had changed and that were restored, by "
            "kind (cdi-spec, device-metadata, device-node, memory-limit, mig-instance, mig-mode).",
            ("kind",),
            registry=registry,
        )
        self.claims_with_drift = Gauge(
            "carina_claims_with_drift",
            "Prepared claims that lack something that the last repair could not restore.",
            registry=registry,
        )
        self.checkpoint_rebuilds = Counter(
            "carina_checkpoint_rebuilds",
            "Rebuilds of an unreadable checkpoint.",
            registry=registry,
        )
        self.devices = Gauge(
            "carina_devices",
            "Devices of this node, by type and state of the GPU (ready, or its worst problem; "
            "docs/health.md lists them).",
            ("type", "state"),
            registry=registry,
        )
        self.xids = Counter(
            "carina_gpu_xids",
            "XIDs that the driver has reported to this process, by GPU (UUID) and number.",
            ("UUID", "xid"),
            registry=registry,
        )
        self.inventory_seconds = Histogram(
            "carina_inventory_read_duration_seconds",
            "Duration of reads of the node's GPUs.",
            buckets=_READ_BUCKETS,
            registry=registry,
        )
        self.inventory_stalls = Counter(
            "carina_inventory_read_stalls",
            "Reads of the node's GPUs that did not return in time.",
            registry=registry,
        )
        self.slice_writes = Counter(
            "carina_resourceslice_writes",
            "Writes of ResourceSlices, by operation (create, update, delete).",
            ("operation",),
            registry=registry,
        )
        self.slice_failures = Counter(
            "carina_resourceslice_publish_failures",
            "Failed attempts to publish the node's ResourceSlices.",
            registry=registry,
        )
        self.slice_repairs = Counter(
            "carina_resourceslice_repairs",
            "Times that another client changed or deleted the node's ResourceSlices.",
            registry=registry,
        )
        self.claim_status_writes = Counter(
            "carina_claim_status_writes",
            "Writes of status.devices of ResourceClaims, by result (ok, error).",
            ("result",),
            registry=registry,
        )
        self.sharing_connected = Gauge(
            "carina_sharing_connected",
            "1 if the plugin is connected to carina-sharing, which watches what shares use; else "
            "0.",
            registry=registry,
        )
        self.events_dropped = Gauge(
            "carina_events_dropped",
            "Events since the start that could not be sent to the API server.",
            registry=registry,
        )

    def add(self, collector: Collector) -> None:
        """Adds metrics that are computed when they are asked for."""
        self._registry.register(collector)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
