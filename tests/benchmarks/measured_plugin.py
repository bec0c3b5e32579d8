"""A plugin process to measure: started as its pod is, on a simulated node, with claims to serve."""

import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from carina_dra.kube.api_resource import RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.kubeconfig import from_kubeconfig
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from simulation.kubernetes.cluster import Cluster, ServiceAccountCredentials
from simulation.nvml import SimulatedNode

DRIVER, NODE = "gpu.carina.dev", "measured"
_NAMESPACE, _ACCOUNT = "carina-system", "carina-kubelet-plugin"
_OWN = Selection(fields=f"spec.driver={DRIVER},spec.nodeName={NODE}")
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

Prepare: TypeAlias = Callable[[pb.Claim | None], None]
Unprepare: TypeAlias = Callable[[pb.Claim], None]


@dataclass(frozen=True)
class Bench:
    """A node of a real control plane, and a folder for it."""

    folder: Path
    """On a disk, as a node's /var/lib is."""
    memory: Path
    """In memory, as a node's /var/run is."""
    gpus: SimulatedNode
    cluster: Cluster
    credentials: ServiceAccountCredentials
    admin: Client

    @contextmanager
    def plugin(self) -> Iterator["RunningPlugin"]:
        """Runs the plugin; it is up when its DRA socket is."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            http = f"127.0.0.1:{free.getsockname()[1]}"
        command = self.gpus.plugin_command(
            {
                "node-name": NODE,
                "kubelet-root": self.folder / "k",
                "cdi-directory": self.memory / "cdi",
                "service-account": self.credentials.folder,
                "http-address": http,
                "device-kinds": "gpu,mig,share,monitor",
            }
        )
        host, _, port = self.cluster.server.removeprefix("https://").partition(":")
        environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "PYTHONOPTIMIZE": "2",
            "MALLOC_ARENA_MAX": "1",
        }
        with (self.folder / "log").open("ab") as log:
            begun = time.perf_counter()
            process = subprocess.Popen(command, env=environment, stderr=log)
        try:
            yield RunningPlugin(self, process, begun, http)
        finally:
            process.terminate()
            process.wait(30)

    def claim(self, name: str, device: str, **result_fields: object) -> pb.Claim:
        """Makes a claim with an allocation, as a scheduler would."""
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        claim = self.admin.create(
            RESOURCE_CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        named = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
        result = {**named, **result_fields}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.admin.replace_status(RESOURCE_CLAIMS, claim)
        return pb.Claim(namespace="default", name=name, uid=claim["metadata"]["uid"])

    def slices(self) -> list[dict[str, Any]]:
        """The plugin's slices, as they are in the API."""
        return list(self.admin.list(RESOURCE_SLICES, _OWN).items)

    def remove_slices(self) -> None:
        """Removes them, as the kubelet does when it starts."""
        self.admin.delete_collection(RESOURCE_SLICES, _OWN)


@dataclass(frozen=True)
class RunningPlugin:
    """A plugin at work."""

    bench: Bench
    process: "subprocess.Popen[bytes]"
    begun: float
    http: str
    """HOST:PORT of its metrics and probes."""

    def seconds_to_publish(self) -> float:
        """Waits for all slices of the node; gives how long that took since the start."""
        while not _complete(self.bench.slices()):
            if self.process.poll() is not None or time.perf_counter() - self.begun > 30:
                raise RuntimeError((self.bench.folder / "log").read_text()[-2000:])
            time.sleep(0.005)
        return time.perf_counter() - self.begun

    def rss_mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

    def observe(self) -> None:
        """Asks what a kubelet and Prometheus ask every half minute."""
        for path in ("healthz", "metrics"):
            with urllib.request.urlopen(f"http://{self.http}/{path}", timeout=15) as answer:
                answer.read()

    @contextmanager
    def calls(self) -> Iterator[tuple[Prepare, Unprepare]]:
        """Gives prepare (of nothing, for None) and unprepare, which raise if a claim fails."""
        dra_socket = self.bench.folder / "k/plugins" / DRIVER / "dra.sock"
        with grpc.insecure_channel(f"unix:{dra_socket}") as channel:
            prepare_call = channel.unary_unary(
                f"{_SERVICE}/NodePrepareResources",
                request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
                response_deserializer=pb.NodePrepareResourcesResponse.FromString,
            )
            unprepare_call = channel.unary_unary(
                f"{_SERVICE}/NodeUnprepareResources",
                request_serializer=pb.NodeUnprepareResourcesRequest.SerializeToString,
                response_deserializer=pb.NodeUnprepareResourcesResponse.FromString,
            )

            def prepare(claim: pb.Claim | None) -> None:
                claims = [] if claim is None else [claim]
                answer = prepare_call(
                    pb.NodePrepareResourcesRequest(claims=claims), timeout=45, wait_for_ready=True
                )
                _check(each.error for each in answer.claims.values())

            def unprepare(claim: pb.Claim) -> None:
                answer = unprepare_call(
                    pb.NodeUnprepareResourcesRequest(claims=[claim]), timeout=45
                )
                _check(each.error for each in answer.claims.values())

            yield prepare, unprepare


@contextmanager
def bench(cluster: Cluster) -> Iterator[Bench]:
    """Makes a node of the cluster, with the plugin's own rights on it."""
    cluster.install_carina()
    cluster.add_fake_nodes([NODE])
    cluster.assign_pod(_NAMESPACE, NODE, service_account=_ACCOUNT, node=NODE)
    credentials = cluster.service_account_credentials(_NAMESPACE, _ACCOUNT, pod=NODE)
    with (
        tempfile.TemporaryDirectory(prefix="carina-bench", dir="/var/tmp") as name,
        tempfile.TemporaryDirectory(prefix="carina-bench", dir="/dev/shm") as memory,
        Client(from_kubeconfig(cluster.kubeconfig)) as admin,
    ):
        folder = Path(name)
        gpus = SimulatedNode.create(folder / "node", "dgx-h100", name=NODE)
        yield Bench(folder, Path(memory), gpus, cluster, credentials, admin)


def _complete(slices: list[dict[str, Any]]) -> bool:
    return bool(slices) and len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]


def _check(errors: Iterator[str]) -> None:
    failed = [error for error in errors if error]
    if failed:
        raise RuntimeError(failed[0])
