"""A node that gets its first GPU while the plugin runs."""

import shutil
from collections.abc import Callable

from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import Workloads


def test_pod_runs_on_the_first_gpu_of_a_node(
    cluster: Cluster, gpus: SimulatedNode, new_plugin: Callable[[str], Plugin]
) -> None:
    gpus.uninstall_driver()
    for minor in range(8):
        gpus.unplug(minor)
    # GPUs are withheld while another driver offers some on the node, and the kubelet removes the
    # slices of an earlier test's driver half a minute after its end.
    wait_for(
        "slices of earlier tests to be gone",
        lambda: not cluster.kubectl("get", "resourceslices", "-o", "name"),
        timeout=90,
    )
    plugin = new_plugin("waiting")
    shutil.rmtree(plugin.state_folder, ignore_errors=True)
    plugin.begin()
    wait_for("the plugin to wait", lambda: "this node has no GPU" in plugin.log())
    plugin.wait_until_ready()
    assert not plugin.registration_socket.exists()
    workloads = Workloads(cluster, cluster.create_namespace("first-gpu"))
    workloads.pod_with_own_claim("pod")

    gpus.plug(5)
    gpus.driver(available=True)

    workloads.wait_running("pod")
    (seen,) = workloads.gpus("pod")
    assert seen.uuid == gpus.state.gpus[5].uuid
    workloads.delete("pod")
