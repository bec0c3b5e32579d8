"""The demo on a real Kubernetes with one node, whose GPUs are simulated.

kube-apiserver, kube-scheduler, kube-controller-manager, kubelet and containerd are real.
The plugin and the controller run as processes of the host, since they have no image here. They use
tokens of their ServiceAccounts, and so have the permissions that deploy/ grants.
"""

import contextlib
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from carina_dra.kube.body import Body
from kubelet_plugin.devices.name import gpu_name, parse_name
from simulation.demo import manifests, two_teams
from simulation.demo.console import Console, DemoError
from simulation.demo.container_runtime import specs
from simulation.demo.controller_process import start_controller
from simulation.demo.expected_devices import (
    allocated,
    claim_names,
    devices_of,
    gpus_behind,
    gpus_of,
    partitions_among,
)
from simulation.demo.gpu_node import GpuNode, PluginPaths
from simulation.demo.wait import wait_for
from simulation.kubernetes import binaries, build, debian, process
from simulation.kubernetes import node as nodes
from simulation.kubernetes.cluster import Cluster, KubectlError, running_cluster
from simulation.kubernetes.node import Node
from simulation.nvml.node import SimulatedNode

_EXAMPLES = (*manifests.EXAMPLES, *manifests.PARTS)
_PROFILE, _GPUS = "hgx-h200-sxm", 8
_NAMESPACE, _ACCOUNT, _POD = "carina-system", "carina-kubelet-plugin", "plugin"
_CONTROLLER_ACCOUNT = "carina-controller"
_POD_SECONDS = 90
_HARNESS_ERRORS = (
    binaries.BinariesMissingError,
    build.BuildError,
    debian.PackagesMissingError,
    process.ComponentDiedError,
    process.NotReachedError,
    KubectlError,
)


def run(console: Console, *, keep: bool) -> None:
    """Runs the demo; with `keep` it waits for Ctrl-C before it deletes the last pod.

    Raises:
        DemoError: a check failed, or no cluster can run here.
    """
    try:
        _run(console, keep=keep)
    except _HARNESS_ERRORS as error:
        raise DemoError(str(error)) from error


def _run(console: Console, *, keep: bool) -> None:
    begun = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="carina-demo-", dir="/tmp"))
    console.headline("A real Kubernetes with one node starts; missing programs are built first")
    with _running_node() as node, contextlib.ExitStack() as cleanup:
        console.say(f"node {node.name}; export KUBECONFIG={node.cluster.kubeconfig}")
        gpu_node = _gpu_node(node, directory)
        cleanup.callback(gpu_node.stop)
        _start_plugin(console, node, gpu_node)
        for name in _EXAMPLES:
            last = name == _EXAMPLES[-1]
            _show_example(console, node, name, keep=keep and last)
        _show_queues(console, node.cluster, directory)
        console.headline("The plugin stops")
        console.check("the plugin exits with 0", gpu_node.stop() == 0)
    console.headline("Summary")
    console.say(
        f"examples  {len(_EXAMPLES)}, on a node with {_GPUS} simulated GPUs\n"
        f"checks    {console.checked}, all passed\n"
        f"time      {time.monotonic() - begun:.0f} s\n"
        f"files     {directory} (logs in plugin.log and controller.log)"
    )


@contextlib.contextmanager
def _running_node() -> Iterator[Node]:
    """A node in a new cluster, which ends with the context or with this process."""
    reason = binaries.why_no_node()
    if reason is not None:
        raise DemoError(reason)
    debian.install_missing()
    build.build((*binaries.control_plane_releases(), *binaries.node_releases()))
    with running_cluster() as cluster:
        yield nodes.start(cluster)


def _gpu_node(node: Node, directory: Path) -> GpuNode:
    gpus = SimulatedNode.create(directory / "gpus", _PROFILE, name=node.name)
    paths = PluginPaths(node.kubelet.root, node.cdi_folder, directory / "plugin.log")
    return GpuNode(node.name, gpus, paths)


def _start_plugin(console: Console, node: Node, gpu_node: GpuNode) -> None:
    cluster = node.cluster
    console.headline("deploy/ is applied, and the plugin starts with the permissions of its pod")
    console.call("kubectl apply -k deploy/")
    cluster.install_carina()
    console.say(
        "There is no image: the DaemonSet and the Deployment are deleted, and the plugin and the "
        "controller run as processes of the host."
    )
    cluster.kubectl("delete", "daemonset,deployment", "--namespace", _NAMESPACE, "--all")
    cluster.assign_pod(_NAMESPACE, _POD, service_account=_ACCOUNT, node=node.name)
    credentials = cluster.service_account_credentials(_NAMESPACE, _ACCOUNT, pod=_POD)
    gpu_node.start(credentials.kubeconfig)

    def serving() -> bool:
        gpu_node.check_alive()
        return "registered with the kubelet" in gpu_node.paths.log.read_text()

    wait_for("the kubelet to register the plugin", serving, seconds=60)

    def devices() -> list[str] | None:
        found = [name for name in _uuids(cluster) if name == gpu_name(parse_name(name))]
        return found if len(found) == _GPUS else None

    published = wait_for("the node's slices", devices)
    console.call("kubectl get resourceslices")
    console.say(cluster.kubectl("get", "resourceslices"))
    console.check(f"all {_GPUS} GPUs are published: {', '.join(published)}", published)


def _show_example(console: Console, node: Node, name: str, *, keep: bool) -> None:
    cluster = node.cluster
    path = manifests.example(name)
    console.headline(f"{name}: {manifests.purpose(path)}")
    objects = manifests.load(path)
    console.call(f"kubectl apply -f deploy/examples/{name}.yaml")
    cluster.kubectl("apply", "-f", str(path))
    for pod in manifests.pods(objects):
        _show_pod(console, cluster, pod["metadata"]["name"], pod["metadata"]["namespace"])
    for spec in specs(node.cdi_folder):
        console.say(f"CDI spec {spec}")
        if name == _EXAMPLES[0]:
            console.spec(json.loads(spec.read_text()))
    if keep:
        console.wait_for_interrupt(cluster.kubeconfig)
    cluster.kubectl("delete", "--timeout=120s", "-f", str(path))
    wait_for("the kubelet to have the claims unprepared", lambda: not specs(node.cdi_folder))
    console.check("no CDI spec is left after the pods", not specs(node.cdi_folder))


def _show_pod(console: Console, cluster: Cluster, name: str, namespace: str) -> None:
    here = ("--namespace", namespace)
    ready = ("--for=condition=Ready", f"--timeout={_POD_SECONDS}s")
    cluster.kubectl("wait", f"pod/{name}", *here, *ready)
    pod = _get(cluster, "pod", name, *here)
    claims = [_get(cluster, "resourceclaim", claim, *here) for claim in claim_names(pod)]
    given = allocated(claims)
    for claim in claims:
        devices = ", ".join(f"{request}={device}" for request, device in allocated([claim]))
        console.say(f"claim {claim['metadata']['name']} on {pod['spec']['nodeName']}: {devices}")
    for container in pod["spec"]["containers"]:
        own = devices_of(container, given)
        log = _log(cluster, name, container["name"], *here)
        console.call(f"kubectl logs {name} -c {container['name']}")
        nodes = re.findall(r"^c.*(/dev/nvidia\S*)$", log, re.MULTILINE)
        variables = re.findall(r"^(CARINA_\S+=\S+)$", log, re.MULTILINE)
        console.say("\n".join([*sorted(variables), *nodes]))
        console.check(
            f"{container['name']} sees the devices of its requests and no others: {', '.join(own)}",
            gpus_behind(nodes) == gpus_of(own),
        )
        made = partitions_among(own)
        values = {line.partition("=")[2] for line in variables}
        console.check(
            f"{container['name']} has their UUIDs in its environment",
            {value for value in values if value.startswith("GPU-")}
            == {_uuids(cluster)[device] for device in own if device not in made}
            and len({value for value in values if value.startswith("MIG-")}) == len(made),
        )


def _show_queues(console: Console, cluster: Cluster, directory: Path) -> None:
    for name in two_teams.TEAMS:
        cluster.create_namespace(name)
    credentials = cluster.service_account_credentials(_NAMESPACE, _CONTROLLER_ACCOUNT)
    controller = start_controller(credentials.kubeconfig, directory / "controller.log")
    try:
        two_teams.show(console, cluster.kubeconfig, _GPUS, controller.check_alive)
    finally:
        stopped = controller.stop()
    console.check("the controller exits with 0", stopped == 0)


def _uuids(cluster: Cluster) -> dict[str, str]:
    """The UUIDs of the devices that exist before a claim has them, by their names."""
    return {
        device["name"]: device["attributes"]["uuid"]["string"]
        for body in _get(cluster, "resourceslices")["items"]
        for device in body["spec"].get("devices", ())
        if "uuid" in device["attributes"]
    }


def _log(cluster: Cluster, pod: str, container: str, *here: str) -> str:
    """A container's log, once it lists all device nodes; /dev/nvidiactl is the last."""

    def complete() -> str | None:
        log = cluster.kubectl("logs", pod, "-c", container, *here)
        return log if "/dev/nvidiactl" in log else None

    return wait_for(f"{pod} to list its device nodes", complete)


def _get(cluster: Cluster, *what: str) -> Body:
    """An object, or a list of them."""
    found: Body = json.loads(cluster.kubectl("get", *what, "-o", "json"))
    return found
