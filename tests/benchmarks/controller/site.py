"""A control plane with simulated GPU nodes, on which schedulers are measured.

The nodes have no kubelet, so the controllers that react to silent nodes are off: nodes stay ready,
and bound pods stay as they are. The limits of clients are raised for every component. etcd does
not wait for its disk.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.resource import encode
from kubelet_plugin.devices.device import GpuDevice, of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.mig import MigUnsupported
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from simulation.kubernetes.cluster import Cluster, fake_node, running_cluster
from simulation.kubernetes.control_plane import Arguments
from tests.benchmarks.fleet import DRIVER
from tests.benchmarks.pool import node_name
from tests.samples.golden_slices import simulated_devices

T = TypeVar("T")

_WRITERS: Final = 8
_LIMIT: Final = ("--kube-api-qps=5000", "--kube-api-burst=5000")
_ARGUMENTS: Final = Arguments(
    api_server=("--disable-admission-plugins=TaintNodesByCondition",),
    controller_manager=(
        *_LIMIT,
        "--concurrent-resourceclaim-syncs=100",
        "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
    ),
    scheduler=_LIMIT,
)
_OCCUPIED: Final = "occupied"
_REMOVAL_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Site:
    """A running control plane and its nodes."""

    cluster: Cluster
    client: Client
    """Of an administrator, whose requests the API server does not limit."""
    nodes: int
    """The number of nodes."""
    devices: tuple[GpuDevice, ...]
    """The GPUs of each node."""

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Gives all devices to claims, one a node, while the context lasts. No pod uses them."""
        in_parallel(self._occupy, map(node_name, range(self.nodes)))
        yield
        of_nodes = Selection(_OCCUPIED)
        self.client.delete_collection(RESOURCE_CLAIMS, of_nodes, timeout=_REMOVAL_S)

    def _occupy(self, node: str) -> None:
        exactly = {"deviceClassName": DRIVER, "count": len(self.devices)}
        claim = self.client.create(
            RESOURCE_CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"namespace": _OCCUPIED, "name": node},
                "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
            },
        )
        results = [
            {"request": "gpus", "driver": DRIVER, "pool": node, "device": device.name}
            for device in self.devices
        ]
        allocation = {"devices": {"results": results}, "nodeSelector": _only(node)}
        self.client.replace_status(RESOURCE_CLAIMS, {**claim, "status": {"allocation": allocation}})


@contextmanager
def running_site(nodes: int) -> Iterator[Site]:
    """Runs a control plane with this number of nodes, each with eight H100 without MIG."""
    devices = _gpus()
    with (
        running_cluster(arguments=_ARGUMENTS) as cluster,
        Client(from_kubeconfig(cluster.kubeconfig)) as client,
    ):
        cluster.install_carina()
        cluster.create_namespace(_OCCUPIED)
        in_parallel(partial(_add_node, client, devices), map(node_name, range(nodes)))
        yield Site(cluster, client, nodes, devices)


def in_parallel(write: Callable[[T], object], items: Iterable[T]) -> None:
    """Calls `write` for each item, in several threads; raises what a call raises."""
    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(write, items):
            pass


def _add_node(client: Client, devices: tuple[GpuDevice, ...], name: str) -> None:
    client.create(NODES, fake_node(name))
    for published in resource_slices(pool(devices, PublishSettings(DRIVER), node=name), 1):
        client.create(RESOURCE_SLICES, encode(published))


def _gpus() -> tuple[GpuDevice, ...]:
    with tempfile.TemporaryDirectory() as folder:
        devices = of_kinds(simulated_devices("dgx-h100", Path(folder)), {DeviceKind.GPU})
    return tuple(
        replace(device, gpu=replace(device.gpu, mig=MigUnsupported())) for device in devices
    )


def _only(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}
