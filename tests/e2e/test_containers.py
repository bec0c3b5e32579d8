"""What containers get of their claims, on the real kubelet and containerd.

| here                                            | upstream (test/e2e/dra/dra.go)        |
|-------------------------------------------------|---------------------------------------|
| single_pod                                      | simple pod with inline claim          |
| two_containers_share_a_claim                    | claim shared by containers of a pod   |
| two_pods_share_a_claim                          | claim shared by pods concurrently     |
| claim_is_used_again_by_a_later_pod              | reuse of a claim sequentially         |
| devices_of_an_ended_pod_are_free_for_the_next   | deallocation after use                |
| container_gets_only_the_devices_of_its_requests | devices mapped to the right container |
| init_container_has_the_claim_too                | init containers                       |
| admin_access_sees_every_gpu_and_says_so         | DaemonSet with admin access           |
| extended_resource                               | extended resources                    |
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simulation.kubernetes.cluster import Cluster
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import Gpu, Workloads, container, request

_EXAMPLES = sorted((Path(__file__).parents[2] / "deploy/examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def plugin(kept_plugin: Plugin) -> Iterator[Plugin]:
    """A plugin for all tests, which leave nothing prepared."""
    kept_plugin.start()
    yield kept_plugin
    assert kept_plugin.prepared_claims() == set()


@pytest.fixture(scope="module")
def gpus(kept_plugin: Plugin) -> SimulatedNode:
    """The GPUs of the plugin."""
    return kept_plugin.gpus


def _gpu(gpus: SimulatedNode, minor: int) -> Gpu:
    return Gpu(minor, gpus.state.gpus[minor].uuid)


def test_single_pod(workloads: Workloads, gpus: SimulatedNode) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    (device,) = workloads.allocated(workloads.claim_of("pod"))
    (seen,) = workloads.gpus("pod")

    assert device == f"gpu-{seen.minor}"
    assert seen == _gpu(gpus, seen.minor)


def test_container_is_permitted_to_open_the_device_nodes(workloads: Workloads) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")
    (seen,) = workloads.gpus("pod")

    for name in (f"nvidia{seen.minor}", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        # No driver is behind them on this machine. What the device cgroup denies is EPERM.
        opened = workloads.run("pod", f"sh -c 'dd if=/dev/{name} count=1 2>&1 || true'")
        assert "No such device or address" in opened


def test_container_has_the_libraries_of_the_driver(
    workloads: Workloads, gpus: SimulatedNode
) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    paths = workloads.environment("pod")["LD_LIBRARY_PATH"].split(":")
    listed = workloads.run("pod", f"ls {' '.join(paths)}").split()

    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= set(listed)
    assert f"libcuda.so.{gpus.hardware.driver_version}" in listed
    workloads.run("pod", "test -x /usr/bin/nvidia-smi")


def test_nvidias_own_runtime_is_told_to_add_nothing(workloads: Workloads) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    assert workloads.environment("pod")["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_container_without_a_claim_gets_nothing(workloads: Workloads) -> None:
    workloads.pod_with_own_claim("pod", container("with", "gpu"), container("without"))
    workloads.wait_running("pod")

    assert len(workloads.gpus("pod", "with")) == 1
    assert workloads.gpus("pod", "without") == []
    assert "nvidia" not in workloads.run("pod", "ls /dev", "without")


def test_container_gets_only_the_devices_of_its_requests(workloads: Workloads) -> None:
    workloads.claim("claim", request("actor"), request("learner", count=2))
    workloads.pod(
        "pod", "claim", container("actor", "gpu/actor"), container("learner", "gpu/learner")
    )
    workloads.wait_running("pod")

    actor, learner = workloads.gpus("pod", "actor"), workloads.gpus("pod", "learner")

    assert (len(actor), len(learner)) == (1, 2)
    assert not set(actor) & set(learner)


def test_two_containers_share_a_claim(workloads: Workloads) -> None:
    workloads.pod_with_own_claim("pod", container("one", "gpu"), container("two", "gpu"))
    workloads.wait_running("pod")

    one, two = workloads.gpus("pod", "one"), workloads.gpus("pod", "two")

    assert len(one) == 1
    assert one == two


def test_init_container_has_the_claim_too(workloads: Workloads) -> None:
    looks = container("init", "gpu", command="ls /dev")
    workloads.pod_with_own_claim("pod", container("main", "gpu"), initContainers=[looks])
    workloads.wait_running("pod")

    (seen,) = workloads.gpus("pod")

    assert f"nvidia{seen.minor}" in workloads.kubectl("logs", "pod", "-c", "init").split()


def test_two_pods_share_a_claim(workloads: Workloads, plugin: Plugin) -> None:
    workloads.claim("shared")
    workloads.pod("one", "shared")
    workloads.pod("two", "shared")
    workloads.wait_running("one", "two")

    assert workloads.gpus("one") == workloads.gpus("two")

    workloads.delete("one")
    assert workloads.get("resourceclaim", "shared")["metadata"]["uid"] in plugin.prepared_claims()
    workloads.delete("two")
    assert plugin.prepared_claims() == set()


def test_claim_is_used_again_by_a_later_pod(workloads: Workloads) -> None:
    workloads.claim("reused")
    for name in ("earlier", "later"):
        workloads.pod(name, "reused", container("main", "gpu", command="ls /dev/nvidia[0-9]"))
        workloads.wait_succeeded(name)


def test_devices_of_an_ended_pod_are_free_for_the_next(workloads: Workloads) -> None:
    everything = request(count=8)
    for name in ("first", "second"):
        workloads.claim(name, everything)
        workloads.pod(name, name)
        workloads.wait_running(name)
        assert len(workloads.gpus(name)) == 8
        workloads.delete(name)


def _monitor(workloads: Workloads) -> None:
    """Makes a pod with admin access to every GPU."""
    label = "resource.kubernetes.io/admin-access=true"
    workloads.kubectl("label", "namespace", workloads.namespace, label)
    of_all = request(
        deviceClassName="monitor.gpu.carina.dev", allocationMode="All", adminAccess=True
    )
    workloads.claim("all", of_all)
    workloads.pod("monitor", "all")


def test_admin_access_sees_every_gpu_and_says_so(workloads: Workloads) -> None:
    _monitor(workloads)
    workloads.wait_running("monitor")

    assert [gpu.minor for gpu in workloads.gpus("monitor")] == list(range(8))
    environment = workloads.environment("monitor")
    assert len([name for name in environment if name.endswith("_ADMIN_ACCESS")]) == 8


def test_monitor_sees_every_gpu_while_all_are_in_use(workloads: Workloads) -> None:
    workloads.claim("everything", request(count=8))
    workloads.pod("user", "everything")
    workloads.wait_running("user")

    for _ in ("started", "restarted"):
        _monitor(workloads)
        workloads.wait_running("monitor")
        assert len(workloads.gpus("monitor")) == 8
        workloads.delete("monitor")
        workloads.kubectl("delete", "resourceclaim", "all")


def test_monitor_that_is_allocated_without_admin_access_is_not_prepared(
    workloads: Workloads,
) -> None:
    selector = "device.attributes['gpu.carina.dev'].type == 'monitor'"
    workloads.cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "any-type"},
            "spec": {"selectors": [{"cel": {"expression": selector}}]},
        }
    )
    workloads.claim("sneaky", request(deviceClassName="any-type"))
    workloads.pod("sneaky", "sneaky")

    said = workloads.wait_event("ResourceClaim", "sneaky", "PrepareFailed")
    assert "without admin access" in said


def test_gpus_seen_with_admin_access_are_free_for_others(workloads: Workloads) -> None:
    _monitor(workloads)
    workloads.wait_running("monitor")

    workloads.pod_with_own_claim("user")

    assert workloads.why_not_scheduled("user") is None


def test_claims_share_a_gpu_and_know_their_amounts(workloads: Workloads) -> None:
    amounts = {"requests": {"memory": "30Gi", "cores": "40"}}
    pods = ("one", "two", "three")
    for name in pods:
        workloads.claim(name, request(deviceClassName="share.gpu.carina.dev", capacity=amounts))
        workloads.pod(name, name)
    workloads.wait_running(*pods)

    sharing = Counter(gpu.minor for name in pods for gpu in workloads.gpus(name))
    assert sorted(sharing.values()) == [1, 2]
    environment = workloads.environment("one")
    for suffix, value in (("_MEMORY_MIB", "30720"), ("_CORES_PERCENT", "40")):
        assert [environment[name] for name in environment if name.endswith(suffix)] == [value]

    workloads.claim("whole", request(count=7))
    workloads.pod("whole", "whole")
    assert workloads.why_not_scheduled("whole") is not None


def test_a_request_for_less_than_the_least_share_gets_the_least_share(workloads: Workloads) -> None:
    amounts = {"requests": {"memory": "1Mi", "cores": "1"}}
    workloads.claim("tiny", request(deviceClassName="share.gpu.carina.dev", capacity=amounts))
    workloads.pod("tiny", "tiny")
    workloads.wait_running("tiny")

    (result,) = workloads.get("resourceclaim", "tiny")["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"]["cores"] == "10"
    environment = workloads.environment("tiny")
    (memory,) = (environment[name] for name in environment if name.endswith("_MEMORY_MIB"))
    assert result["consumedCapacity"]["memory"] == f"{memory}Mi"
    assert int(memory) > 4096


def test_a_claim_does_not_choose_the_time_slices_of_the_shares_of_others(
    workloads: Workloads,
) -> None:
    config = {
        "opaque": {
            "driver": "gpu.carina.dev",
            "parameters": {
                "apiVersion": "resource.carina.dev/v1alpha1",
                "kind": "ShareConfig",
                "timeSlicing": {"interval": "Long"},
            },
        }
    }
    workloads.claim("long", request(deviceClassName="share.gpu.carina.dev"), config=[config])
    workloads.pod("long", "long")
    said = workloads.wait_event("ResourceClaim", "long", "PrepareFailed")
    assert "timeSlicing.interval is Long" in said
    assert "share_time_slice_by_claim" in said

    workloads.claim("other", request(deviceClassName="share.gpu.carina.dev"))
    workloads.pod("other", "other")
    workloads.wait_running("other")


def test_extended_resource(workloads: Workloads) -> None:
    plain = {**container(), "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    metadata = {"namespace": workloads.namespace, "name": "pod"}
    workloads.cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [plain]}}
    )
    workloads.wait_running("pod")

    assert len(workloads.gpus("pod")) == 2


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(cluster: Cluster, workloads: Workloads, example: Path) -> None:
    objects = [each for each in yaml.safe_load_all(example.read_text()) if each]
    pods = [each for each in objects if each["kind"] == "Pod"]
    own = {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"}
    namespace = own.pop() if own else workloads.namespace

    cluster.kubectl("apply", "--namespace", namespace, "-f", str(example))
    there = Workloads(cluster, namespace)
    try:
        there.wait_running(*(pod["metadata"]["name"] for pod in pods))
        for pod in pods:
            for each in pod["spec"]["containers"]:
                assert there.gpus(pod["metadata"]["name"], each["name"])
    finally:
        cluster.kubectl("delete", "--namespace", namespace, "-f", str(example), "--now")
