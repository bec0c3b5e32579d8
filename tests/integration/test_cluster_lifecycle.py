"""Clusters come and go: side by side, gone whatever ends their owner, loud when they fail."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from simulation.kubernetes import reaper
from simulation.kubernetes.cluster import Cluster, running_cluster
from simulation.kubernetes.process import ComponentDiedError, wait_for

pytestmark = pytest.mark.kubernetes

_OWNER = """
import signal
from simulation.kubernetes.cluster import running_cluster
with running_cluster() as cluster:
    print(cluster.state.path, flush=True)
    {then}
"""


def test_api_server_answers_and_knows_dynamic_resource_allocation(cluster: Cluster) -> None:
    served = cluster.kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "name")

    assert "resourceslices.resource.k8s.io" in served.split()


def test_clusters_run_side_by_side(cluster: Cluster) -> None:
    with running_cluster() as other:
        other.kubectl("create", "namespace", "of-the-other")

        assert other.server != cluster.server
        assert "of-the-other" not in cluster.kubectl("get", "namespaces", "-o", "name")


@pytest.mark.parametrize(
    "then",
    ["raise RuntimeError", "signal.raise_signal(signal.SIGTERM)", "signal.pause()"],
    ids=["exception", "SIGTERM", "SIGKILL"],
)
def test_nothing_is_left_when_the_owner_ends(then: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        ports = [21000 + int(path.name) * 10 + index for index in range(5)]
        if then == "signal.pause()":
            owner.send_signal(signal.SIGKILL)
        owner.wait()

    wait_for("the state directory to go", lambda: not path.exists())
    assert not [port for port in ports if _is_served(port)]


def test_leftovers_of_a_killed_guard_are_swept_by_the_next_cluster() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER.format(then="signal.pause()")],
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        (guard,) = (pid for pid in _all_pids() if f"{reaper.__file__} {path} " in _command(pid))
        os.kill(guard, signal.SIGKILL)
        owner.kill()
    left = [int(file.read_text()) for file in path.glob("processes/*.pid")]
    assert path.exists()

    with running_cluster() as following:
        assert following.state.path == path
        assert not [pid for pid in left if _command(pid)]


def test_component_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(ComponentDiedError, match="unrecognized feature gate: NoSuchGate"),
        running_cluster(feature_gates={"NoSuchGate": True}),
    ):
        pass


def test_feature_gates_reach_the_api_server() -> None:
    with running_cluster(feature_gates={"DRAListTypeAttributes": True}) as gated:
        metrics = gated.kubectl("get", "--raw", "/metrics")

    enabled = 'kubernetes_feature_enabled{name="DRAListTypeAttributes",stage="ALPHA"} 1'
    assert enabled in metrics.splitlines()


def test_fake_nodes_take_pods_that_nobody_runs(cluster: Cluster) -> None:
    cluster.add_fake_nodes(["fake-a", "fake-b"])

    ready = cluster.kubectl(
        *("get", "node", "fake-b", "-o"),
        'jsonpath={.status.conditions[?(@.type=="Ready")].status}',
    )
    assert ready == "True"


def _is_served(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
