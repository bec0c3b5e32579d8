"""The story on a real Kubernetes, whose node has simulated GPUs.

kube-apiserver, kube-scheduler, kube-controller-manager, kubelet and containerd are the real ones.
The plugin is a process of the host, since there is no image of it: it has the token of a pod of its
ServiceAccount, and so the permissions of deploy/.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from carina_dra.kube.body import Body
from simulation.demo import manifests
from simulation.demo.container_runtime import specs
from simulation.demo.deadline import wait_for
from simulation.demo.entitlement import allocated, claim_names, devices_behind, devices_of
from simulation.demo.gpu_node import GpuNode, PluginPaths
from simulation.demo.narration import DemoError, Narrator
from simulation.nvml.node import SimulatedNode

_PROFILE, _GPUS = "hgx-h200-sxm", 8
_NAMESPACE, _ACCOUNT = "carina-system", "carina-kubelet-plugin"
_CLUSTER = (sys.executable, "-m", "simulation.kubernetes")
_POD_SECONDS = 90


@dataclass(frozen=True, slots=True)
class RealCluster:
    """A cluster with one node, as `python -m simulation.kubernetes up` describes it."""

    node: str
    kubelet_root: Path
    cdi_directory: Path
    kubeconfig: Path
    kubectl_program: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What a kubectl command prints.

        Raises:
            DemoError: it fails.
        """
        done = subprocess.run(
            [self.kubectl_program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if done.returncode != 0:
            raise DemoError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *what: str) -> Body:
        """An object, or a list of them."""
        found: Body = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found


def run(narrator: Narrator, *, keep: bool) -> None:
    """Tells the story; `keep` stops before the last pod is deleted, until Ctrl-C.

    Raises:
        DemoError: something was not as it ought to be.
    """
    begun = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="carina-demo-", dir="/tmp"))
    narrator.headline("A real Kubernetes with one node starts; what is missing is built first")
    with _running_cluster(narrator) as cluster, contextlib.ExitStack() as cleanup:
        narrator.say(f"node {cluster.node}; export KUBECONFIG={cluster.kubeconfig}")
        node = _node(cluster, directory)
        cleanup.callback(node.stop)
        _start_plugin(narrator, cluster, node, directory)
        for name in manifests.EXAMPLES:
            last = name == manifests.EXAMPLES[-1]
            _show_example(narrator, cluster, name, keep=keep and last)
        narrator.headline("The plugin stops")
        narrator.check("it ends well", node.stop() == 0)
    narrator.headline("Summary")
    narrator.say(
        f"examples  {len(manifests.EXAMPLES)}, on a node with {_GPUS} simulated GPUs\n"
        f"checked   {narrator.checked} things, all right\n"
        f"time      {time.monotonic() - begun:.0f} s\n"
        f"files     {directory} (the plugin's log in plugin.log)"
    )


@contextlib.contextmanager
def _running_cluster(narrator: Narrator) -> Iterator[RealCluster]:
    started = subprocess.Popen(
        (*_CLUSTER, "up"),
        cwd=manifests.REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = []
    for line in started.stdout or ():
        narrator.say(line)
        lines.append(line)
    if started.wait() != 0:
        raise DemoError(f"there is no cluster: {lines[-1].strip() if lines else 'no word why'}")
    try:
        yield _described("".join(lines))
    finally:
        subprocess.run((*_CLUSTER, "down"), cwd=manifests.REPOSITORY, check=False)


def _described(text: str) -> RealCluster:
    def find(pattern: str) -> str:
        match = re.search(pattern, text)
        if match is None:
            raise DemoError(f"the cluster does not say {pattern!r} of itself:\n{text}")
        return match[1]

    return RealCluster(
        node=find(r"node '([^']+)'"),
        kubelet_root=Path(find(r"kubelet root\s+(\S+)")),
        cdi_directory=Path(find(r"CDI specs\s+(\S+)")),
        kubeconfig=Path(find(r"export KUBECONFIG=(\S+)")),
        kubectl_program=Path(find(r"kubectl is in (\S+)")) / "kubectl",
    )


def _node(cluster: RealCluster, directory: Path) -> GpuNode:
    gpus = SimulatedNode.create(directory / "gpus", _PROFILE, name=cluster.node)
    paths = PluginPaths(cluster.kubelet_root, cluster.cdi_directory, directory / "plugin.log")
    return GpuNode(cluster.node, gpus, paths)


def _start_plugin(narrator: Narrator, cluster: RealCluster, node: GpuNode, directory: Path) -> None:
    narrator.headline("deploy/ is applied, and the plugin starts with the permissions of its pod")
    narrator.call("kubectl apply -k deploy/")
    narrator.say(cluster.kubectl("apply", "-k", str(manifests.DEPLOY)))
    narrator.say("There is no image: the DaemonSet goes, and the plugin is a process of the host.")
    cluster.kubectl("delete", "daemonset", "--namespace", _NAMESPACE, "--all")
    node.start(_plugin_kubeconfig(cluster, directory))

    def serving() -> bool:
        node.check_alive()
        return "registered with the kubelet" in node.paths.log.read_text()

    wait_for("the kubelet to register the plugin", serving, seconds=60)

    def devices() -> list[str] | None:
        items = cluster.get("resourceslices")["items"]
        found = [device["name"] for each in items for device in each["spec"].get("devices", ())]
        return found if len(found) == _GPUS else None

    published = wait_for("the node's slices", devices)
    narrator.call("kubectl get resourceslices")
    narrator.say(cluster.kubectl("get", "resourceslices"))
    narrator.check(f"all {_GPUS} GPUs are published: {', '.join(published)}", published)


def _plugin_kubeconfig(cluster: RealCluster, directory: Path) -> Path:
    """A kubeconfig with a token that is bound to a pod on the node, as the policy demands."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plugin", "namespace": _NAMESPACE},
        "spec": {
            "serviceAccountName": _ACCOUNT,
            "nodeName": cluster.node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:1",
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "86400"],
                }
            ],
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    uid = cluster.get("pod", "plugin", "--namespace", _NAMESPACE)["metadata"]["uid"]
    token = cluster.kubectl(
        *("create", "token", _ACCOUNT, "--namespace", _NAMESPACE, "--bound-object-kind=Pod"),
        *("--bound-object-name=plugin", f"--bound-object-uid={uid}"),
    )
    config = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--flatten"))
    for each in config["users"]:
        each["user"] = {"token": token.strip()}
    path = directory / "plugin-kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _show_example(narrator: Narrator, cluster: RealCluster, name: str, *, keep: bool) -> None:
    path = manifests.example(name)
    narrator.headline(f"{name}: {manifests.purpose(path)}")
    objects = manifests.load(path)
    narrator.call(f"kubectl apply -f deploy/examples/{name}.yaml")
    cluster.kubectl("apply", "-f", str(path))
    for pod in manifests.pods(objects):
        _show_pod(narrator, cluster, pod["metadata"]["name"], pod["metadata"]["namespace"])
    for spec in specs(cluster.cdi_directory):
        narrator.say(f"CDI spec {spec}")
        if name == manifests.EXAMPLES[0]:
            narrator.spec(json.loads(spec.read_text()))
    if keep:
        narrator.wait_for_interrupt(cluster.kubeconfig)
    cluster.kubectl("delete", "--timeout=120s", "-f", str(path))
    wait_for("the kubelet to have the claims unprepared", lambda: not specs(cluster.cdi_directory))
    narrator.check("after the pods no CDI spec is left", not specs(cluster.cdi_directory))


def _show_pod(narrator: Narrator, cluster: RealCluster, name: str, namespace: str) -> None:
    here = ("--namespace", namespace)
    ready = ("--for=condition=Ready", f"--timeout={_POD_SECONDS}s")
    cluster.kubectl("wait", f"pod/{name}", *here, *ready)
    pod = cluster.get("pod", name, *here)
    claims = [cluster.get("resourceclaim", each, *here) for each in claim_names(pod)]
    given = allocated(claims)
    for claim in claims:
        devices = ", ".join(f"{request}={device}" for request, device in allocated([claim]))
        narrator.say(f"claim {claim['metadata']['name']} on {pod['spec']['nodeName']}: {devices}")
    for container in pod["spec"]["containers"]:
        own = devices_of(container, given)
        log = _log(cluster, name, container["name"], *here)
        narrator.call(f"kubectl logs {name} -c {container['name']}")
        nodes = re.findall(r"^c.*(/dev/nvidia\S*)$", log, re.MULTILINE)
        told = re.findall(r"^(CARINA_\S+=\S+)$", log, re.MULTILINE)
        narrator.say("\n".join([*sorted(told), *nodes]))
        narrator.check(
            f"{container['name']} sees what its requests were given and no more: {', '.join(own)}",
            devices_behind(nodes) == own,
        )
        narrator.check(
            f"{container['name']} is told the UUIDs of these",
            {line.partition("=")[2] for line in told if "=GPU-" in line}
            == {_uuids(cluster)[device] for device in own},
        )


def _uuids(cluster: RealCluster) -> dict[str, str]:
    return {
        device["name"]: device["attributes"]["uuid"]["string"]
        for each in cluster.get("resourceslices")["items"]
        for device in each["spec"].get("devices", ())
    }


def _log(cluster: RealCluster, pod: str, container: str, *here: str) -> str:
    """A container's log, once it has listed the device nodes, of which this is the last."""

    def complete() -> str | None:
        log = cluster.kubectl("logs", pod, "-c", container, *here)
        return log if "/dev/nvidiactl" in log else None

    return wait_for(f"{pod} to list its device nodes", complete)
