"""The Helm chart on a real cluster: installed, upgraded under load, rolled back and removed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.model.queue import QUEUE_LABEL
from simulation.kubernetes import node as nodes
from simulation.kubernetes.cluster import Cluster, KubectlError, running_cluster
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.chart import EARLIER_CHART, Chart, HelmError, pack
from tests.e2e.plugin import DRIVER
from tests.e2e.workloads import Workloads, request
from tests.memory import disk_folder

_NAMESPACE = "carina-system"
_QUEUE = {"apiVersion": "scheduling.carina.dev/v1alpha1", "kind": "Queue"}


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
def chart(node: Node, helm: Path, request: pytest.FixtureRequest) -> Iterator[Chart]:
    """The packed chart."""
    with disk_folder(request.config) as folder:
        gpus = SimulatedNode.create(folder / "gpus", "hgx-h200-sxm", name="node")
        yield pack(helm, node, gpus, folder)


@pytest.fixture
def installed(chart: Chart, cluster: Cluster) -> Chart:
    """The chart, installed with the values of the node."""
    status = chart.status()
    if status == "uninstalling":  # which was refused
        chart.take_back()
    elif status != "deployed":
        chart.install()
        cluster.await_queue_policies()
    return chart


@pytest.fixture
def workloads(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Workloads]:
    """A namespace of the test, whose pods are deleted after it."""
    name = request.node.name.replace("_", "-")
    own = Workloads(cluster, cluster.create_namespace(name[:63].rstrip("-")))
    yield own
    own.delete_all()


def queue_of(workloads: Workloads, name: str) -> Workloads:
    """A queue, and the test's namespace with pods of it."""
    names = {"names": [workloads.namespace]}
    workloads.cluster.apply({**_QUEUE, "metadata": {"name": name}, "spec": {"namespaces": names}})
    return replace(workloads, labels={QUEUE_LABEL: name})


def left_in(cluster: Cluster) -> set[str]:
    """The objects with the chart's labels, in the whole cluster."""
    kinds = (
        "clusterroles,clusterrolebindings,deviceclasses,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings,mutatingadmissionpolicies,"
        "mutatingadmissionpolicybindings,customresourcedefinitions,roles,rolebindings,jobs,"
        "serviceaccounts,configmaps,daemonsets,deployments,pods,networkpolicies,resourcequotas"
    )
    selector = "--selector=app.kubernetes.io/name=carina"
    return set(cluster.kubectl("get", kinds, "-A", selector, "-o", "name").split())


def test_first_share_and_first_gang_run(installed: Chart, workloads: Workloads) -> None:
    share = request(deviceClassName=f"share.{DRIVER}", capacity={"requests": {"memory": "20Gi"}})
    workloads.claim("share", share)
    workloads.pod("share", "share")
    workloads.wait_running("share")

    gang = queue_of(workloads, "first")
    gang.claim("gpu", template=True)
    workloads.cluster.apply(
        {
            **_QUEUE,
            "kind": "PodGroup",
            "metadata": {"name": "gang", "namespace": workloads.namespace},
            "spec": {"minCount": 2},
        }
    )
    of_gang = replace(gang, labels={**gang.labels, "scheduling.carina.dev/pod-group": "gang"})
    for name in ("one", "two"):
        of_gang.pod_of_template(name, "gpu")
    of_gang.wait_running("one", "two")
    assert of_gang.gpus("one") != of_gang.gpus("two")


def test_helm_test_makes_a_claim_and_removes_it(installed: Chart, cluster: Cluster) -> None:
    installed.release("test", "--timeout=60s")

    claims = cluster.kubectl("get", "resourceclaims,pods", "-n", _NAMESPACE, "-o", "name")
    assert "carina-test" not in claims


def test_queues_of_the_values_are_there_after_each_upgrade(
    installed: Chart, cluster: Cluster
) -> None:
    def quota(queue: str) -> str:
        return cluster.kubectl("get", "queue", queue, "-o=jsonpath={.spec.resources[0].quota}")

    gpus = '--set-json=queues=[{"name": "own", "spec": {"resources": [{"gpus": {}, "quota": %d}]}}]'

    installed.install(gpus % 8, "--set=readyMade.queues=true,readyMade.priorityClasses=true")
    assert quota("own") == "8"
    assert cluster.kubectl("get", "queue", "inference", "batch", "-o", "name")
    assert cluster.kubectl("get", "priorityclass", "carina-training", "-o", "name")

    installed.install(gpus % 4)
    assert quota("own") == "4"
    assert cluster.kubectl("get", "queue", "inference", "-o", "name")  # it may have pods
    left = cluster.kubectl("get", "jobs,serviceaccounts,configmaps", "-n", _NAMESPACE, "-o=name")
    assert "queues" not in left


def test_misspelt_setting_is_refused_with_its_path(installed: Chart) -> None:
    with pytest.raises(HelmError, match=r"/controller/settings': additional.*'serch_steps'"):
        installed.install("--set=controller.settings.serch_steps=5")


def test_second_installation_is_refused_with_the_name_of_the_first(installed: Chart) -> None:
    arguments = ("install", "gpus", installed.packed, "--namespace", "gpus", "--create-namespace")
    with pytest.raises(
        HelmError, match=r"already installed .* release carina in namespace carina-"
    ):
        installed.run(*arguments)


def test_changed_settings_restart_the_pods_that_have_them(
    installed: Chart, cluster: Cluster
) -> None:
    def pods(part: str) -> set[str]:
        selector = f"--selector=app.kubernetes.io/component={part}"
        return set(cluster.kubectl("get", "pods", "-n", _NAMESPACE, selector, "-o=name").split())

    plugins, controllers = pods("kubelet-plugin"), pods("controller")
    installed.install("--set=kubeletPlugin.settings.device_order=binpack")

    wait_for("the old plugin to go", lambda: len(pods("kubelet-plugin")) == 1)
    assert not plugins & pods("kubelet-plugin")
    assert pods("controller") == controllers


def test_node_with_a_label_of_an_entry_has_the_plugin_of_that_entry_alone(
    installed: Chart, cluster: Cluster, workloads: Workloads
) -> None:
    def plugins() -> list[str]:
        selector = "--selector=app.kubernetes.io/component=kubelet-plugin"
        pools = r"-o=jsonpath={.items[*].metadata.labels.carina\.dev/node-settings}"
        return cluster.kubectl("get", "pods", "-n", _NAMESPACE, selector, pools).split()

    entry = '[{"name": "a", "nodeSelector": {"pool": "a"}, "settings": {"device_order": "spread"}}]'
    installed.install(f"--set-json=kubeletPlugin.nodeSettings={entry}")
    wait_for("the plugin of other nodes", lambda: plugins() == ["default"])

    cluster.kubectl("label", "node", "node", "pool=a")
    wait_for("the plugin of the entry alone", lambda: plugins() == ["a"], timeout=60.0)
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod", timeout=60.0)

    cluster.kubectl("label", "node", "node", "pool-")
    wait_for("the plugin of other nodes", lambda: plugins() == ["default"], timeout=60.0)
    workloads.delete("pod")


def test_uninstalling_is_refused_while_pods_use_devices_and_can_be_taken_back(
    installed: Chart, workloads: Workloads
) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod")

    with pytest.raises(HelmError) as refused:
        installed.release("uninstall", "--timeout=60s")

    claim = f"{workloads.namespace}/{workloads.claim_of('pod')['metadata']['name']}"
    assert f"ResourceClaim {claim}: in use by pods/pod" in str(refused.value)
    assert len(workloads.gpus("pod")) == 1

    installed.take_back()
    assert installed.status() == "deployed"
    installed.install("--set=controller.settings.log_level=debug")
    assert len(workloads.gpus("pod")) == 1


def test_uninstalling_is_refused_while_pods_wait_in_a_queue(
    installed: Chart, workloads: Workloads
) -> None:
    queue = queue_of(workloads, "waiting")
    queue.claim("all", request(count=9), template=True)
    queue.pod_of_template("pod", "all")

    with pytest.raises(HelmError, match=f"Pod {workloads.namespace}/pod: waits for the contr"):
        installed.release("uninstall", "--timeout=60s")


def test_uninstalling_with_release_frees_what_waits_and_leaves_definitions(
    installed: Chart, workloads: Workloads, cluster: Cluster
) -> None:
    queue = queue_of(workloads, "freed")
    queue.claim("all", request(count=9), template=True)
    queue.pod_of_template("pod", "all")
    installed.install("--set=uninstall.release=true")

    installed.release("uninstall", "--wait", "--timeout=120s")

    assert not queue.get("pod", "pod")["spec"].get("schedulingGates")
    definitions = {
        f"customresourcedefinition.apiextensions.k8s.io/{kind}.scheduling.carina.dev"
        for kind in ("queues", "podgroups")
    }
    wait_for("the last pod to end", lambda: left_in(cluster) == definitions)
    assert cluster.kubectl("get", "queue", "freed", "-o", "name")
    slices = f"--field-selector=spec.driver={DRIVER}"
    wait_for(
        "the kubelet to remove the slices of the driver",
        lambda: not cluster.kubectl("get", "resourceslices", slices, "-o", "name"),
        timeout=90.0,
    )


def test_upgrade_and_rollback_lose_no_claim_while_pods_run(
    chart: Chart, workloads: Workloads, cluster: Cluster
) -> None:
    chart.install(chart=EARLIER_CHART)
    cluster.await_queue_policies()
    queue = queue_of(workloads, "upgraded")
    queue.claim("gpu", template=True)
    queue.pod_of_template("before", "gpu")
    queue.wait_running("before")
    seen = queue.gpus("before")
    began = queue.get("pod", "before")["status"]["containerStatuses"]

    chart.install()
    queue.pod_of_template("after", "gpu")
    queue.wait_running("after")
    chart.release("rollback", "--wait", "--timeout=120s")
    queue.pod_of_template("later", "gpu")
    queue.wait_running("later")

    assert queue.gpus("before") == seen
    assert queue.get("pod", "before")["status"]["containerStatuses"] == began
    devices = [queue.gpus(name) for name in ("before", "after", "later")]
    assert len({str(each) for each in devices}) == len(devices)


def test_what_is_idle_is_uninstalled_and_installed_again(
    installed: Chart, workloads: Workloads, cluster: Cluster
) -> None:
    installed.release("uninstall", "--wait", "--timeout=120s")
    with pytest.raises(KubectlError, match="not found"):
        cluster.kubectl("get", "daemonset/carina-kubelet-plugin", "-n", _NAMESPACE)
    held = cluster.kubectl("get", "queues", "-o=jsonpath={.items[*].metadata.finalizers}")
    assert held == ""

    installed.install()
    cluster.await_queue_policies()

    workloads.pod_with_own_claim("again")
    workloads.wait_running("again")
