"""Measures what the devices that the plugin publishes cost kube-scheduler.

Nodes without a kubelet have the slices of a DGX H100: at first those of its whole GPUs, then those
with shares, partitions and monitors as well. Pods that ask for one device each are scheduled by the
real kube-scheduler, which says itself how much processor time it used, and how long it took to
choose a node. It looks for devices on 100 of 200 nodes or more, until enough are suitable.
"""

import ssl
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from carina_dra.kube.api_resource import RESOURCE_SLICES
from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.resource import encode
from kubelet_plugin.devices.device import GpuDevice, of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from simulation.kubernetes.cluster import Cluster, running_cluster
from simulation.kubernetes.process import wait_for
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.subject import Hear
from tests.samples.golden_slices import simulated_devices

NAME: Final = "kube-scheduler"
_DRIVER: Final = "gpu.carina.dev"
_NODES: Final = 200
_FIRST, _PODS = 5, 60
"""Pods that are scheduled before those that are measured, and these."""
_SCHEDULING_S: Final = 180.0
_WRITERS: Final = 4
_SMALLEST: Final = f"device.attributes['{_DRIVER}'].profile == '1g.10gb'"
_WHOLE: Final = {"deviceClassName": _DRIVER}
_REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "a whole GPU": _WHOLE,
    "a share": {
        "deviceClassName": f"share.{_DRIVER}",
        "capacity": {"requests": {"memory": "10Gi", "cores": "20"}},
    },
    "a partition by profile": {
        "deviceClassName": f"mig.{_DRIVER}",
        "selectors": [{"cel": {"expression": _SMALLEST}}],
    },
    "a partition by memory": {
        "deviceClassName": f"mig.{_DRIVER}",
        "capacity": {"requests": {"memory": "30Gi"}},
    },
}


@dataclass(frozen=True, slots=True)
class _Work:
    """What the scheduler has done since its start."""

    processor_s: float
    choosing_s: float
    pods: float


def measure(hear: Hear, *, scale: float) -> None:
    """Measures the nodes with whole GPUs alone, and then those with all devices."""
    number = max(1, round(_NODES * scale))
    with tempfile.TemporaryDirectory() as folder:
        devices = simulated_devices("dgx-h100", Path(folder))
    with running_cluster() as cluster:
        cluster.install_carina()
        cluster.add_fake_nodes(_names(number))
        _measure(
            hear, cluster, number, of_kinds(devices, {DeviceKind.GPU}), {"a whole GPU": _WHOLE}
        )
        _measure(hear, cluster, number, devices, _REQUESTS)


def _measure(
    hear: Hear,
    cluster: Cluster,
    number: int,
    devices: Sequence[GpuDevice],
    requests: Mapping[str, Mapping[str, Any]],
) -> None:
    with _published(cluster, number, devices):
        for name, exactly in requests.items():
            done = _scheduled(cluster, exactly)
            what = f"{name}, {number} nodes of {len(devices)} devices, processor time"
            note = f"chooses a node in {done.choosing_s * 1000 / done.pods:.0f} ms"
            per_pod = done.processor_s * 1000 / done.pods
            hear(Measurement(NAME, what, per_pod, "ms", note=note))


def _names(number: int) -> list[str]:
    return [f"node-{index:03}" for index in range(number)]


@contextmanager
def _published(cluster: Cluster, number: int, devices: Sequence[GpuDevice]) -> Iterator[None]:
    """Publishes the devices of each node while the context lasts."""
    of_node = pool(devices, PublishSettings(_DRIVER), node="")

    def publish(name: str) -> None:
        for published in resource_slices(replace(of_node, node=name), 1):
            client.create(RESOURCE_SLICES, encode(published))

    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(publish, _names(number)))
        yield
    cluster.kubectl("delete", "resourceslices", "--all")


def _scheduled(cluster: Cluster, exactly: Mapping[str, Any]) -> _Work:
    """Returns what the scheduler did to schedule pods with this request."""
    namespace = cluster.create_namespace("measured")
    claim = {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": namespace, "name": "device"},
            "spec": {"spec": claim},
        }
    )
    _schedule(cluster, namespace, range(_FIRST))
    before = _work(cluster)
    _schedule(cluster, namespace, range(_FIRST, _FIRST + _PODS))
    after = _work(cluster)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    now = ("--force", "--grace-period=0")
    cluster.kubectl("delete", "pods", "--namespace", namespace, "--all", *now)
    wait_for(
        "the claims to be gone", lambda: not _claims(cluster, namespace), timeout=_SCHEDULING_S
    )
    return _Work(
        after.processor_s - before.processor_s,
        after.choosing_s - before.choosing_s,
        after.pods - before.pods,
    )


def _schedule(cluster: Cluster, namespace: str, numbers: range) -> None:
    """Makes pods and waits until each has its node."""
    cluster.apply(*(_pod(namespace, number) for number in numbers))

    def all_have_nodes() -> bool:
        path = "jsonpath={.items[*].spec.nodeName}"
        listed = cluster.kubectl("get", "pods", "--namespace", namespace, "-o", path)
        return len(listed.split()) == numbers.stop

    wait_for("the pods to be scheduled", all_have_nodes, timeout=_SCHEDULING_S)


def _pod(namespace: str, number: int) -> dict[str, Any]:
    resources = {"claims": [{"name": "device"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": f"pod-{number}"},
        "spec": {
            "tolerations": [{"operator": "Exists"}],  # the nodes have no kubelet that says "ready"
            "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "device"}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }


def _claims(cluster: Cluster, namespace: str) -> str:
    return cluster.kubectl("get", "resourceclaims", "--namespace", namespace, "-o", "name")


def _work(cluster: Cluster) -> _Work:
    """Reads the scheduler's metrics."""
    authority = cluster.control_plane.authority
    reader = authority.issue("admin", user="carina-tests", group="system:masters")
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.load_cert_chain(reader.certificate, reader.key)
    address = f"{cluster.control_plane.scheduler}/metrics"
    with urllib.request.urlopen(address, context=context, timeout=30) as answer:
        lines = answer.read().decode().splitlines()

    def value(metric: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    choosing = "scheduler_scheduling_algorithm_duration_seconds"
    return _Work(
        value("process_cpu_seconds_total"), value(f"{choosing}_sum"), value(f"{choosing}_count")
    )
