"""The node itself: it is Ready, runs containers, and leaves nothing behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from simulation.kubernetes import node as nodes
from simulation.kubernetes import reaper
from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for

_OWNER = """
import signal
from simulation.kubernetes import node as nodes
from simulation.kubernetes.cluster import running_cluster
with running_cluster() as cluster:
    node = nodes.start(cluster)
    cluster.kubectl("run", "left", "--image=busybox:1", "--command", "--", "sleep", "3600")
    cluster.kubectl("wait", "pod/left", "--for=condition=Ready")
    print(cluster.state.path, flush=True)
    signal.pause()
"""


def test_node_is_ready_and_takes_pods(cluster: Cluster, node: Node) -> None:
    seen = json.loads(cluster.kubectl("get", "node", node.name, "-o", "json"))

    conditions = {each["type"]: each["status"] for each in seen["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert "taints" not in seen["spec"]
    assert {"type": "InternalIP", "address": "127.0.0.1"} in seen["status"]["addresses"]


def test_pod_runs_and_its_log_can_be_read(cluster: Cluster) -> None:
    namespace = cluster.create_namespace("plain-pod")
    cluster.kubectl(
        *("run", "hello", "-n", namespace, "--image=busybox:1", "--restart=Never"),
        *("--command", "--", "echo", "hello from a container"),
    )

    succeeded = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("wait", "-n", namespace, "pod/hello", succeeded)

    assert cluster.kubectl("logs", "-n", namespace, "hello") == "hello from a container\n"


def test_pod_outlives_a_restart_of_the_kubelet(cluster: Cluster, node: Node) -> None:
    namespace = cluster.create_namespace("restart")
    run = ("--image=busybox:1", "--restart=Never", "--command", "--", "sleep", "3600")
    cluster.kubectl("run", "stays", "-n", namespace, *run)
    cluster.kubectl("wait", "-n", namespace, "pod/stays", "--for=condition=Ready")

    node.kubelet.restart()

    said = wait_for(
        "the kubelet to know its pods again",
        lambda: cluster.kubectl("exec", "-n", namespace, "stays", "--", "echo", "here"),
        retry_on=(KubectlError,),
    )
    assert said == "here\n"
    cluster.kubectl("delete", "pod", "-n", namespace, "stays", "--now")


def test_sockets_of_a_rolling_update_fit_into_the_kubelet_root(node: Node) -> None:
    uid = "00000000-0000-0000-0000-000000000000"

    longest = node.kubelet.plugins_registry / f"gpu.carina.dev-{uid}-reg.sock"

    assert len(str(longest)) <= 107


def test_second_node_joins_a_cluster(cluster: Cluster, node: Node) -> None:
    second = nodes.start(cluster, "second-node")

    assert second.kubelet.root != node.kubelet.root
    cluster.assign_pod("default", "on-second", service_account="default", node=second.name)
    cluster.kubectl("wait", "pod/on-second", "--for=condition=Ready")
    cluster.kubectl("delete", "pod", "on-second", "--now")
    cluster.kubectl("delete", "node", second.name)


def test_nothing_is_left_of_a_killed_owner_with_running_containers(node: Node) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        containers = _containers(path)
        owner.send_signal(signal.SIGKILL)

    wait_for("the state directory to go", lambda: not path.exists())
    assert containers
    assert not [pid for pid in containers if reaper.is_running(pid)]
    assert reaper.cgroup_folders(path) == []
    assert f"{path}/" not in Path("/proc/self/mountinfo").read_text()
    remembered = [file.read_text() for file in Path("/var/lib/cni/results").iterdir()]
    assert not [result for result in remembered if f"{path}/" in result]


def _containers(path: Path) -> set[int]:
    return {
        int(pid)
        for folder in reaper.cgroup_folders(path)
        for file in folder.rglob("cgroup.procs")
        for pid in file.read_text().split()
    }
