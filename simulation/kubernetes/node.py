"""A node that runs containers: containerd, kubelet and the images that pods use."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulation.kubernetes import (
    binaries,
    container_runtime,
    images,
    kubelet,
    process,
    service_proxy,
)
from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.container_runtime import ContainerRuntime
from simulation.kubernetes.kubelet import Kubelet

_FIRST_KUBELET_PORT = 5
_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"


@dataclass(frozen=True, slots=True)
class Node:
    """A Ready node of a cluster. It ends with the cluster."""

    name: str
    cluster: Cluster
    kubelet: Kubelet
    runtime: ContainerRuntime

    @property
    def cdi_folder(self) -> Path:
        """The folder in which a driver writes CDI specs: the node's /var/run/cdi."""
        return self.runtime.cdi_folders[-1]


def start(
    cluster: Cluster,
    name: str = "node",
    *,
    feature_gates: Mapping[str, bool] | None = None,
    sync_period: str = "1m",
) -> Node:
    """Starts a node and waits until it is Ready. A cluster can have five nodes.

    `sync_period` is the time after which the kubelet retries a failed pod, plus up to half of it.
    Kubernetes' default is "1m".

    Raises:
        BinariesMissingError: its programs are missing.
        ComponentDiedError: containerd or kubelet exited during its start.
        NotReachedError: the node did not become Ready.
    """
    programs = binaries.node()
    index = len(list(cluster.state.path.glob("n[0-9]")))
    folder = cluster.state.path / f"n{index}"
    folder.mkdir()
    root = folder / "kubelet"
    runtime = container_runtime.start(
        cluster.state, folder, programs, name, index=index, kubelet_root=root
    )
    if index == 0:
        _connect_pods_to_the_api_server(cluster)
    node_kubelet = kubelet.configure(
        cluster.state,
        cluster.control_plane,
        program=programs.kubelet,
        folder=folder,
        root=root,
        node=name,
        port=cluster.state.port(_FIRST_KUBELET_PORT + index),
        runtime_socket=runtime.socket,
        namespace=runtime.namespace,
        feature_gates={**cluster.feature_gates, **(feature_gates or {})},
        sync_period=sync_period,
    )
    node_kubelet.start()
    runtime.import_images(images.write_archive(folder / "images.tar", programs.busybox))
    node = Node(name, cluster, node_kubelet, runtime)
    _initialize(node)
    return node


def _connect_pods_to_the_api_server(cluster: Cluster) -> None:
    address = str(cluster.state.api_service_address)
    program = [sys.executable, "-I", service_proxy.__file__]
    process.start(cluster.state, "service-proxy", [*program, cluster.kubeconfig, address])


def _initialize(node: Node) -> None:
    """Sets the address and removes the taint, as a cloud provider's controller does."""
    alive = (node.kubelet.process, node.runtime.process)
    process.wait_for(
        f"node {node.name} to register",
        lambda: node.cluster.kubectl("get", "node", node.name, "-o", "name"),
        alive=alive,
        retry_on=(KubectlError,),
    )
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": node.name},
    ]
    status = json.dumps({"status": {"addresses": addresses}})
    node.cluster.kubectl("patch", "node", node.name, "--subresource=status", "-p", status)
    node.cluster.kubectl("taint", "node", node.name, f"{_UNINITIALIZED}-")
    process.wait_for(
        f"node {node.name} to be Ready, without taints",
        lambda: _is_ready(node),
        timeout=60.0,
        alive=alive,
    )


def _is_ready(node: Node) -> bool:
    body = json.loads(node.cluster.kubectl("get", "node", node.name, "-o", "json"))
    conditions = body["status"].get("conditions", [])
    statuses = {condition["type"]: condition["status"] for condition in conditions}
    return statuses.get("Ready") == "True" and not body["spec"].get("taints")
