"""What is told of the health of a claim's devices, on a real kubelet and API server."""

from collections.abc import Callable

from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.workloads import Object, Workloads, request


def _share_of(gpus: SimulatedNode, minor: int) -> Object:
    """A request for a small share of this GPU."""
    expression = f"device.attributes['{DRIVER}'].uuid == '{gpus.state.gpus[minor].uuid}'"
    return request(
        deviceClassName=f"share.{DRIVER}",
        selectors=[{"cel": {"expression": expression}}],
        capacity={"requests": {"memory": "1Gi", "cores": "10"}},
    )


def _pod_health(workloads: Workloads, pod: str) -> dict[str, str]:
    """What the kubelet shows in the status of a pod, by what it calls the claim."""
    (status,) = workloads.get("pod", pod)["status"]["containerStatuses"]
    return {
        named["name"]: resource["health"]
        for named in status.get("allocatedResourcesStatus", ())
        for resource in named["resources"]
    }


def _shows(workloads: Workloads, health: str, *pods: str) -> Callable[[], bool]:
    return lambda: all(list(_pod_health(workloads, pod).values()) == [health] for pod in pods)


def test_pod_status_shows_the_health_of_a_gpu_that_two_pods_share(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    for pod in ("one", "two"):
        workloads.claim(pod, _share_of(gpus, 0))
        workloads.pod(pod, pod)
    workloads.wait_running("one", "two")
    wait_for("both to be healthy", _shows(workloads, "Healthy", "one", "two"))

    gpus.lose_gpu(0)

    wait_for("both to be unhealthy", _shows(workloads, "Unhealthy", "one", "two"))
    gpus.reset_gpu(0)
    wait_for("both to be healthy again", _shows(workloads, "Healthy", "one", "two"))
    plugin.stop()
    wait_for("nobody to know it", _shows(workloads, "Unknown", "one", "two"))
    plugin.start()
    wait_for("both to be healthy once more", _shows(workloads, "Healthy", "one", "two"))
