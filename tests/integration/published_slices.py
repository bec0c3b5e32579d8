"""A node whose slices are published, and the reports of its publisher."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import ApiError
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.feature_gate import FeatureGate
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch, same_name_plugin
from kubelet_plugin.publish.other_drivers import BesideOtherDrivers, Contested, Decision
from kubelet_plugin.publish.pool import PublishedPool
from kubelet_plugin.publish.publisher import Publisher, SliceOperation
from tests.samples.gpus import MIG, whole

DRIVER = "gpu.carina.dev"
DEADLINE = 20.0
TWO_GPUS = (whole(0, mig=MIG), whole(1))


@dataclass
class Report:
    """The reports of a publisher."""

    written: list[SliceOperation] = field(default_factory=list)
    published: list[PublishedPool] = field(default_factory=list)
    repairs: list[float] = field(default_factory=list)
    """The times of the repairs, in monotonic seconds."""
    failures: list[ApiError] = field(default_factory=list)
    gates_off: list[FeatureGate] = field(default_factory=list)
    contested: list[tuple[Contested, ...]] = field(default_factory=list)

    def slice_written(self, operation: SliceOperation) -> None:
        self.written.append(operation)

    def slices_published(self, pool: PublishedPool) -> None:
        self.published.append(pool)

    def slices_repaired(self) -> None:
        self.repairs.append(monotonic())

    def publishing_failed(self, error: ApiError) -> None:
        self.failures.append(error)

    def feature_gate_off(self, gate: FeatureGate) -> None:
        self.gates_off.append(gate)

    def gpus_contested(self, decision: Decision) -> None:
        self.contested.append(decision.contested)


@dataclass(frozen=True)
class NodeInApi:
    """A Node, with clients of an administrator and of the plugin on the node."""

    name: str
    admin: Client
    plugin: Client

    @property
    def selection(self) -> Selection:
        """What selects the node's slices."""
        return Selection(fields=f"spec.driver={DRIVER},spec.nodeName={self.name}")

    def uid(self) -> str:
        """The Node's."""
        uid: str = self.admin.get(NODES, self.name)["metadata"]["uid"]
        return uid

    def slices(self) -> list[dict[str, Any]]:
        """The slices there are, in the order of their places."""
        found = self.admin.list(RESOURCE_SLICES, self.selection).items
        return sorted(found, key=lambda body: str(body["metadata"]["name"]))

    def versions(self) -> list[str]:
        """Says whether any slice was written since."""
        return [body["metadata"]["resourceVersion"] for body in self.slices()]

    def devices(self) -> dict[str, dict[str, Any]]:
        """The devices of the pool if it is complete; of one that is not, none."""
        slices = self.slices()
        pools = [body["spec"]["pool"] for body in slices]
        if len({pool["generation"] for pool in pools}) != 1 or any(
            pool["resourceSliceCount"] != len(slices) for pool in pools
        ):
            return {}
        return {
            device["name"]: device
            for body in slices
            for device in body["spec"].get("devices") or ()
        }

    def generation(self) -> int:
        """The pool's, of which all slices are."""
        (generation,) = {body["spec"]["pool"]["generation"] for body in self.slices()}
        return int(generation)

    @contextmanager
    def publisher(
        self,
        report: Report,
        *,
        beside_other_drivers: BesideOtherDrivers = "withhold",
        plugin_directory: Path = Path("/nonexistent"),
        order: DeviceOrder = DeviceOrder.NONE,
        reorder_seconds: float = 0.5,
        settings: PublishSettings = PublishSettings(DRIVER),  # noqa: B008 - a frozen value
    ) -> Iterator[Publisher]:
        """A publisher for the node, which stops in the end. It soon looks at the node again."""
        publisher = Publisher(
            self.plugin,
            settings=settings,
            node=self.name,
            reporter=report,
            clock=monotonic,
            other_drivers=OtherDriverWatch(
                read_node=lambda: self.plugin.get(NODES, self.name),
                same_name_plugin=lambda: same_name_plugin(
                    plugin_directory, plugin_directory / "dra-own.sock"
                ),
                pod_devices=tuple,
                clock=monotonic,
                interval=0.2,
                memory=0.5,
            ),
            beside_other_drivers=beside_other_drivers,
            ordering=Ordering(order, seconds=reorder_seconds),
            backoff=Backoff(initial=0.05, cap=0.5),
        )
        publisher.start()
        try:
            yield publisher
        finally:
            publisher.stop()
