"""deploy/ as it is shipped: the image, the pods of DaemonSet and Deployment, and what they serve.

The other end-to-end tests run the plugin as a process of the host, which they can freeze and kill.
Here it has the mounts, the root file system, the ServiceAccount and the probes of its pod.
"""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from carina_dra.cli import command
from carina_dra.sharing.message import SharingReport
from controller.commands import listed
from controller.engine.model.queue import QUEUE_LABEL
from simulation.kubernetes import node as nodes
from simulation.kubernetes.cluster import Cluster, KubectlError, running_cluster
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.daemonset import DaemonSet, Pod
from tests.e2e.plugin import DRIVER, LIMITS_MEMORY
from tests.e2e.test_sharing import pid_of
from tests.e2e.workloads import Gpu, Workloads, container, request
from tests.memory import disk_folder


@pytest.fixture(scope="module")
def node(plugin_image: Path) -> Iterator[Node]:
    """A node of this module, which has the image."""
    with running_cluster() as running:
        node = nodes.start(running, sync_period="5s")
        node.runtime.import_images(plugin_image)
        yield node


@pytest.fixture(scope="module")
def cluster(node: Node) -> Cluster:
    """The cluster that the node is in."""
    return node.cluster


@pytest.fixture(scope="module")
def daemonset(node: Node, request: pytest.FixtureRequest) -> Iterator[DaemonSet]:
    """Carina on the node, ready."""
    with disk_folder(request.config) as folder:
        gpus = SimulatedNode.create(
            folder / "gpus", "hgx-h200-sxm", name="node", driver_version=LIMITS_MEMORY
        )
        daemonset = DaemonSet(node, gpus)
        daemonset.install(folder)
        yield daemonset


@pytest.fixture
def workloads(
    cluster: Cluster, daemonset: DaemonSet, request: pytest.FixtureRequest
) -> Iterator[Workloads]:
    """A namespace of the test, whose pods are deleted after it."""
    name = request.node.name.replace("_", "-")
    own = Workloads(cluster, cluster.create_namespace(name[:63].rstrip("-")))
    yield own
    own.delete_all()


def test_every_gpu_of_the_node_is_published(daemonset: DaemonSet) -> None:
    devices = {
        device["name"] for spec in daemonset.slices().values() for device in spec.get("devices", ())
    }

    gpus = {f"gpu-{minor}" for minor in range(8)}
    partitions = {device for device in devices if "-mig-" in device}
    kinds = ("", "-share", "-monitor")
    assert devices - partitions == {gpu + kind for gpu in gpus for kind in kinds}
    assert {partition.partition("-mig-")[0] for partition in partitions} == gpus


def test_pod_with_a_claim_has_its_gpu_until_it_ends(
    daemonset: DaemonSet, workloads: Workloads
) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    claim = workloads.claim_of("pod")
    (seen,) = workloads.gpus("pod")
    assert workloads.allocated(claim) == {f"gpu-{seen.minor}"}
    assert seen == Gpu(seen.minor, daemonset.gpus.state.gpus[seen.minor].uuid)
    assert daemonset.prepared_claims() == {claim["metadata"]["uid"]}

    workloads.delete("pod")

    assert daemonset.prepared_claims() == set()


def test_container_has_the_files_of_the_driver(daemonset: DaemonSet, workloads: Workloads) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    paths = workloads.environment("pod")["LD_LIBRARY_PATH"].split(":")
    listed = workloads.run("pod", f"ls {' '.join(paths)}").split()

    assert f"libcuda.so.{daemonset.gpus.state.driver_version}" in listed
    (seen,) = workloads.gpus("pod")
    assert seen.uuid in workloads.run("pod", "/usr/bin/nvidia-smi")


def test_rolling_update_keeps_slices_and_claims(daemonset: DaemonSet, workloads: Workloads) -> None:
    workloads.pod_with_own_claim("before")
    workloads.wait_running("before")
    slices, (old,) = daemonset.slices(), daemonset.pods()
    began = _container(workloads, "before")

    daemonset.kubectl("rollout", "restart", "daemonset")
    daemonset.wait_rolled_out()

    assert daemonset.pod["metadata"]["uid"] != old["metadata"]["uid"]
    assert daemonset.slices() == slices
    assert _container(workloads, "before") == began
    assert len(workloads.gpus("before")) == 1
    uid = daemonset.pod["metadata"]["uid"]
    assert [uid in socket.name for socket in daemonset.sockets()] == [True, True]
    workloads.pod_with_own_claim("after")
    workloads.wait_running("after")
    assert workloads.gpus("after") != workloads.gpus("before")
    workloads.delete("before")
    workloads.delete("after")
    assert daemonset.prepared_claims() == set()


def _container(workloads: Workloads, pod: str) -> dict[str, object]:
    """The status of a pod's only container, without what the plugin tells of its devices."""
    (status,) = workloads.get("pod", pod)["status"]["containerStatuses"]
    return {key: value for key, value in status.items() if key != "allocatedResourcesStatus"}


def test_new_plugin_is_ready_before_the_old_one_goes(daemonset: DaemonSet) -> None:
    old = daemonset.pod["metadata"]["uid"]

    def others_once_the_old_one_goes() -> list[Pod]:
        pods = {pod["metadata"]["uid"]: pod for pod in daemonset.pods()}
        stays = old in pods and "deletionTimestamp" not in pods[old]["metadata"]
        return [] if stays else [pod for uid, pod in pods.items() if uid != old]

    daemonset.kubectl("rollout", "restart", "daemonset")
    (new,) = wait_for("the old pod to be deleted", others_once_the_old_one_goes, timeout=60.0)

    conditions = {
        condition["type"]: condition["status"] for condition in new["status"]["conditions"]
    }
    assert conditions["Ready"] == "True"
    daemonset.wait_rolled_out()


def test_restarted_container_still_serves_its_claims(
    daemonset: DaemonSet, workloads: Workloads
) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")
    (status,) = daemonset.pod["status"]["containerStatuses"]

    daemonset.run("sh", "-c", "kill 1")
    wait_for(
        "the kubelet to restart the container",
        lambda: (
            daemonset.pod["status"]["containerStatuses"][0]["restartCount"] > status["restartCount"]
        ),
        timeout=60.0,
    )
    daemonset.wait_rolled_out()

    assert len(workloads.gpus("pod")) == 1
    workloads.delete("pod")
    assert daemonset.prepared_claims() == set()


def test_root_file_system_is_read_only(daemonset: DaemonSet) -> None:
    with pytest.raises(KubectlError, match="Read-only file system"):
        daemonset.run("touch", "/opt/carina/written")


def test_metrics_are_served_on_the_address_of_the_pod(daemonset: DaemonSet) -> None:
    address = daemonset.pod["status"]["podIP"]

    with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=10) as answer:
        names = {line.split("{")[0] for line in answer.read().decode().splitlines()}

    assert any(name.startswith("carina_") for name in names)


def test_plugin_logs_no_warning_and_reports_no_event(daemonset: DaemonSet) -> None:
    severe = [line for line in daemonset.log() if line["level"] not in {"info", "debug"}]
    events = json.loads(
        daemonset.cluster.kubectl("get", "events", "--all-namespaces", "-o", "json")
    )["items"]

    assert severe == []
    assert [event for event in events if event.get("reportingComponent") == DRIVER] == []


def test_carina_sharing_tells_what_a_pod_uses_of_the_share_that_the_plugin_names(
    daemonset: DaemonSet, workloads: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_path = daemonset.sharing_socket
    of_share = request(
        deviceClassName=f"share.{DRIVER}", capacity={"requests": {"memory": "20Gi", "cores": 20}}
    )
    workloads.claim("share", of_share)
    sleeps = container("main", "gpu", command="trap 'exit 0' TERM; sleep 4111111 & wait")
    workloads.pod("pod", "share", sleeps)
    workloads.wait_running("pod")
    (device,) = workloads.allocated(workloads.get("resourceclaim", "share"))
    minor = int(device.removeprefix("gpu-").removesuffix("-share"))
    pid = wait_for("the process of the pod", lambda: pid_of(4111111))
    daemonset.gpus.run_process(minor, pid, memory=25 * 2**30)

    monkeypatch.chdir(socket_path.parent)  # paths of sockets have a limit
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as lines:
        connection.settimeout(60)
        connection.connect(socket_path.name)
        reports = (SharingReport.parse(line) for line in islice(lines, 60))
        (use,) = next(report.uses for report in reports if any(use.exceeded for use in report.uses))
    assert (use.given_mib, use.used_mib) == (20 * 1024, 25 * 1024)
    assert use.claims == (workloads.get("resourceclaim", "share")["metadata"]["uid"],)
    assert [known.pod.name for known in use.pods] == ["pod"]


def test_the_pod_can_limit_the_cgroups_of_others(
    workloads: Workloads, daemonset: DaemonSet
) -> None:
    workloads.claim("share", request(deviceClassName=f"share.{DRIVER}"))
    workloads.pod("pod", "share")
    workloads.wait_running("pod")

    uid = workloads.get("pod", "pod")["metadata"]["uid"]
    limits = [
        Path(path).name
        for minor in daemonset.gpus.state.gpus
        for path in daemonset.gpus.memory_limits(minor)
    ]
    assert limits == [f"pod{uid}"]


def test_top_needs_the_role_that_an_administrator_binds(
    daemonset: DaemonSet, workloads: Workloads
) -> None:
    workloads.claim("share", request(deviceClassName=f"share.{DRIVER}"))
    workloads.pod("pod", "share")
    workloads.wait_running("pod")
    workloads.kubectl("create", "serviceaccount", "user")
    user = workloads.cluster.service_account_credentials(workloads.namespace, "user")

    refused = _top(user.kubeconfig)
    assert refused.returncode == 2
    assert "cannot list resource" in refused.stderr
    assert "Role carina-top" in refused.stderr

    account = f"--serviceaccount={workloads.namespace}:user"
    daemonset.kubectl("create", "rolebinding", "carina-top", "--role=carina-top", account)
    try:
        wait_for("the permission", lambda: _top(user.kubeconfig).returncode != 2)
        wait_for("its pod to be known", lambda: _rows(user.kubeconfig, "share") == [["pod"]])
        assert len(_rows(user.kubeconfig, "gpu")) == len(daemonset.gpus.state.gpus)
    finally:
        daemonset.kubectl("delete", "rolebinding", "carina-top")


def _top(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "carina_dra", "top", "-o", "json"],
        env={"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )


def _rows(kubeconfig: Path, kind: str) -> list[list[str]]:
    """The names of the pods in the rows of a kind."""
    devices = json.loads(_top(kubeconfig).stdout)["devices"]
    return [[pod["name"] for pod in row["pods"]] for row in devices if row["type"] == kind]


def test_inventory_is_shown_by_the_image(daemonset: DaemonSet) -> None:
    shown = daemonset.run("carina", "inventory")

    assert all(gpu.uuid in shown for gpu in daemonset.gpus.state.gpus.values())


def test_image_reads_kubeconfig_files(daemonset: DaemonSet) -> None:
    cluster = "{name: c, cluster: {server: 'https://127.0.0.1:1'}}"
    context = "{name: c, context: {cluster: c, user: u}}"
    user = "{name: u, user: {token: secret}}"
    kubeconfig = f"{{clusters: [{cluster}], contexts: [{context}], users: [{user}]}}"
    read = f"KUBECONFIG=/dev/fd/3 carina queue 3<<E\n{kubeconfig}\nE"

    with pytest.raises(KubectlError, match=r"https://127\.0\.0\.1:1"):
        daemonset.run("sh", "-c", read)


def test_controllers_lead_in_turn_and_start_pods_of_queues(
    daemonset: DaemonSet, workloads: Workloads
) -> None:
    queue = replace(workloads, labels={QUEUE_LABEL: "deployed"})
    kind = {"apiVersion": "scheduling.carina.dev/v1alpha1", "kind": "Queue"}
    queue.cluster.apply(
        {**kind, "metadata": {"name": "deployed"}, "spec": {"namespaces": {"selector": {}}}}
    )
    queue.claim("gpu", template=True)
    daemonset.kubectl("rollout", "status", "deployment/carina-controller", "--timeout=60s")

    leaders = []
    for pod in ("first", "second"):
        queue.pod_of_template(pod, "gpu")
        queue.wait_running(pod)
        assert len(queue.gpus(pod)) == 1
        leaders.append(daemonset.leader())
        daemonset.kubectl("delete", "pod", leaders[-1])

    assert leaders[0] != leaders[1]


def test_driver_is_replaced_while_the_node_is_released(
    daemonset: DaemonSet,
    workloads: Workloads,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(daemonset.cluster.kubeconfig))

    def carina_node(*words: str) -> int:
        verb, *others = words
        return command.run(("node", verb, daemonset.node.name, *others), {"node": listed.NODE})

    restarts = _restarts(daemonset)
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")
    assert len(daemonset.gpus.processes_with_nvml()) == 1

    assert carina_node("release", "--timeout", "0") == 3
    said = capsys.readouterr().out
    assert f"pod {workloads.namespace}/pod without a queue has devices: delete it" in said
    wait_for("the node to drain", lambda: _released(daemonset)["reason"] == "Draining")
    claim = workloads.claim_of("pod")["metadata"]["name"]
    assert f"{workloads.namespace}/{claim}" in _released(daemonset)["message"]
    wait_for("the taint", lambda: _all_tainted(daemonset))
    workloads.pod_of_template("late", "gpu")
    assert workloads.why_not_scheduled("late") is not None
    assert len(daemonset.gpus.processes_with_nvml()) == 1
    workloads.delete("pod")
    assert carina_node("release", "--timeout", "60") == 0
    assert _released(daemonset)["status"] == "True"
    assert daemonset.gpus.processes_with_nvml() == set()

    daemonset.stop_driver()
    daemonset.gpus.driver(available=False)
    daemonset.gpus.replace_driver("590.10.01")
    daemonset.gpus.driver(available=True)
    daemonset.start_driver()

    assert carina_node("restore", "--timeout", "120") == 0
    assert _released(daemonset)["reason"] == "InService"
    workloads.wait_running("late")
    paths = workloads.environment("late")["LD_LIBRARY_PATH"].split(":")
    assert "libcuda.so.590.10.01" in workloads.run("late", f"ls {' '.join(paths)}").split()
    assert _restarts(daemonset) == restarts


def _restarts(daemonset: DaemonSet) -> int:
    """How often the container of the plugin has been started again."""
    (pod,) = daemonset.pods()
    (status,) = pod["status"]["containerStatuses"]
    return int(status["restartCount"])


def _released(daemonset: DaemonSet) -> dict[str, str]:
    """The condition of the Node that says whether its GPUs are released."""
    node = json.loads(daemonset.kubectl("get", "node", daemonset.node.name, "-o", "json"))
    conditions = {each["type"]: each for each in node["status"]["conditions"]}
    found: dict[str, str] = conditions.get(f"{DRIVER}/Released", {"reason": "", "status": ""})
    return found


def _all_tainted(daemonset: DaemonSet) -> bool:
    devices = [device for spec in daemonset.slices().values() for device in spec.get("devices", ())]
    return all(
        any(taint["key"] == f"{DRIVER}/released" for taint in device.get("taints", ()))
        for device in devices
    )


# The last one, because it makes the plugin report an Event.
def test_pod_waits_for_a_driver_whose_container_restarts(
    daemonset: DaemonSet, workloads: Workloads
) -> None:
    found = (line for line in daemonset.log() if line["event"] == "found the NVIDIA driver")
    *_, record = found  # a process that was released before has looked for it again
    assert record["driver_root"] == "/run/nvidia/driver"
    assert record["not_used"]["/"] == "has no libnvidia-ml.so.1"

    daemonset.stop_driver()
    workloads.pod_with_own_claim("pod")
    workloads.wait_scheduled("pod")
    name = workloads.claim_of("pod")["metadata"]["name"]
    problem = workloads.wait_event("ResourceClaim", name, "PrepareRetrying")
    assert "not found below the driver root /driver-root or /driver-root/run/nvidia" in problem

    daemonset.start_driver()
    workloads.wait_running("pod")
