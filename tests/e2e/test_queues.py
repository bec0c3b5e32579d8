"""Queues on a node: the controller, kube-scheduler, the kubelet and the plugin, one after another.

The controller is a process on the host, with the permissions that deploy/ gives it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GATE
from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import Gpu, Object, Workloads, container, request
from tests.integration.controller.live.site import Site

_SHARE, _MIG = "share.gpu.carina.dev", "mig.gpu.carina.dev"
_ALL = 8
"""The GPUs of the node."""
_IGNORES_SIGTERM = "trap '' TERM; while :; do sleep 1; done"
_GRACE_S = 3

NewQueue = Callable[..., Workloads]

pytestmark = pytest.mark.usefixtures("credentials")  # Carina is installed


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """The cluster."""
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        yield Site(cluster, client)


@pytest.fixture
def controller(site: Site) -> Iterator[None]:
    """A controller runs."""
    with site.controller():
        yield


@pytest.fixture
def new_queue(cluster: Cluster, workloads: Workloads) -> Iterator[NewQueue]:
    """Creates queues; gives the test's namespace, with pods of the queue."""
    made: list[str] = []

    def new_queue(name: str = "queue", **spec: object) -> Workloads:
        made.append(name)
        cluster.apply(
            {
                "apiVersion": "scheduling.carina.dev/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"namespaces": {"names": [workloads.namespace]}, **spec},
            }
        )
        return replace(workloads, labels={QUEUE_LABEL: name})

    yield new_queue
    workloads.delete_all()
    for name in made:  # whether a controller still runs or not
        free = '--patch={"metadata": {"finalizers": null}}'
        cluster.kubectl("patch", "queue", name, "--type=merge", free)
    cluster.kubectl("delete", "queue", *made)


def _is_gated(pod: Object) -> bool:
    return {"name": GATE} in pod["spec"].get("schedulingGates", ())


def _on_gpu(gpus: SimulatedNode, minor: int) -> Object:
    """A selector for the share of one GPU."""
    uuid = gpus.state.gpus[minor].uuid
    return {"cel": {"expression": f"device.attributes['gpu.carina.dev'].uuid == '{uuid}'"}}


def _share(gpus: SimulatedNode, minor: int, memory: str) -> Object:
    capacity = {"requests": {"memory": memory, "cores": "25"}}
    selectors = [_on_gpu(gpus, minor)]
    return request(deviceClassName=_SHARE, capacity=capacity, selectors=selectors)


@pytest.mark.usefixtures("controller")
def test_pod_is_gated_until_it_has_a_gpu_and_then_runs_with_it(
    new_queue: NewQueue, plugin: Plugin
) -> None:
    queue = new_queue()
    queue.claim("gpu", template=True)

    assert _is_gated(queue.pod_of_template("pod", "gpu"))

    queue.wait_running("pod")
    claim = queue.claim_of("pod")
    (seen,) = queue.gpus("pod")
    assert queue.allocated(claim) == {f"gpu-{seen.minor}"}
    assert plugin.prepared_claims() == {claim["metadata"]["uid"]}
    assert "Successfully assigned" in queue.wait_event("Pod", "pod", "Scheduled")


@pytest.mark.usefixtures("controller")
def test_gpu_is_free_for_the_next_pod_of_the_queue(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.claim("all", request(count=_ALL), template=True)
    queue.pod_of_template("first", "all")
    queue.wait_running("first")
    queue.pod_of_template("next", "all")
    queue.wait_event("Pod", "next", "NoRoom")

    queue.delete("first")

    queue.wait_running("next")
    assert len(queue.gpus("next")) == _ALL


@pytest.mark.usefixtures("controller")
def test_queues_share_a_gpu_each_within_its_limit_of_memory(
    new_queue: NewQueue, gpus: SimulatedNode
) -> None:
    limit = {"capacity": "gpu.carina.dev/memory", "limit": "40Gi"}
    one, other = (new_queue(name, resources=[limit]) for name in ("one", "other"))
    one.claim("share", _share(gpus, 3, "30Gi"), template=True)

    one.pod_of_template("one", "share")
    other.pod_of_template("other", "share")
    one.wait_running("one", "other")
    one.pod_of_template("more", "share")

    assert "limit" in one.wait_event("Pod", "more", "OverLimit")
    uuid = gpus.state.gpus[3].uuid
    assert one.gpus("one") == other.gpus("other") == [Gpu(3, uuid)]
    assert _is_gated(one.get("pod", "more"))
    one.delete("one")
    one.wait_running("more")
    assert one.gpus("more") == [Gpu(3, uuid)]


@pytest.mark.usefixtures("controller")
def test_partition_is_made_for_a_pod_of_a_queue(new_queue: NewQueue, gpus: SimulatedNode) -> None:
    queue = new_queue(resources=[{"deviceClass": _MIG, "quota": 1, "limit": 1}])
    wanted = request(deviceClassName=_MIG, capacity={"requests": {"memory": "15Gi"}})
    queue.claim("partition", wanted, template=True)

    queue.pod_of_template("pod", "partition")

    queue.wait_running("pod")
    (device,) = queue.allocated(queue.claim_of("pod"))
    assert "-mig-1g18gb-" in device
    (seen,) = queue.gpus("pod")
    assert device.startswith(f"gpu-{seen.minor}-mig-")
    assert seen.uuid.startswith("MIG-")
    assert len(gpus.state.gpus[seen.minor].instances) == 1
    queue.delete("pod")
    assert gpus.state.gpus[seen.minor].instances == ()


@pytest.mark.usefixtures("controller")
def test_gpus_of_an_evicted_pod_are_given_on_once_the_kubelet_has_ended_it(
    new_queue: NewQueue, plugin: Plugin
) -> None:
    queue = new_queue()
    _priority_class(queue.cluster, "urgent")
    queue.claim("all", request(count=_ALL), template=True)
    stubborn = container("main", "gpu", command=_IGNORES_SIGTERM)
    queue.job_of_template("old", "all", stubborn, terminationGracePeriodSeconds=_GRACE_S)
    (old,) = wait_for("the Job's pod", lambda: queue.listed("pods"))
    old_name = old["metadata"]["name"]
    queue.wait_running(old_name)
    old_claim = queue.claim_of(old_name)["metadata"]["name"]

    queue.pod_of_template("new", "all", priorityClassName="urgent")

    ends = wait_for(
        "the Job's pod to be evicted",
        lambda: queue.get("pod", old_name)["metadata"].get("deletionTimestamp"),
    )
    queue.wait_running("new")
    new_claim = queue.claim_of("new")
    assert new_claim["status"]["allocation"]["allocationTimestamp"] >= ends
    calls = [(call.operation, call.claim) for call in plugin.calls()]
    unprepared = calls.index(("unprepare", f"{queue.namespace}/{old_claim}"))
    prepared = calls.index(("prepare", f"{queue.namespace}/{new_claim['metadata']['name']}"))
    assert unprepared < prepared


def test_pods_run_on_while_the_controller_is_down_and_new_ones_wait_for_it(
    new_queue: NewQueue, site: Site, workloads: Workloads
) -> None:
    queue = new_queue()
    queue.claim("gpu", template=True)
    with site.controller():
        queue.pod_of_template("runs", "gpu")
        queue.wait_running("runs")
    before = queue.get("pod", "runs")["status"]["containerStatuses"]

    queue.pod_of_template("waits", "gpu")
    workloads.pod_of_template("of-no-queue", "gpu")
    workloads.wait_running("of-no-queue")

    assert _is_gated(queue.get("pod", "waits"))
    with site.controller():
        queue.wait_running("waits")
    assert queue.get("pod", "runs")["status"]["containerStatuses"] == before
    seen = [queue.gpus(pod) for pod in ("runs", "of-no-queue", "waits")]
    assert len({gpu for (gpu,) in seen}) == len(seen)


def _priority_class(cluster: Cluster, name: str) -> None:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    cluster.apply({**kind, "metadata": {"name": name}, "value": 1000})
