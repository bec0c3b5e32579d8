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


def _devices(workloads: Workloads, claim: str) -> list[Object]:
    """What the status of a claim says of its devices."""
    return list(workloads.get("resourceclaim", claim)["status"].get("devices", ()))


def _conditions(workloads: Workloads, claim: str) -> dict[str, str]:
    """The conditions of the only device of a claim."""
    return {
        condition["type"]: condition["status"]
        for device in _devices(workloads, claim)
        for condition in device["conditions"]
    }


def _says(workloads: Workloads, claim: str, healthy: str) -> Callable[[], bool]:
    return lambda: _conditions(workloads, claim) == {"Ready": "True", "Healthy": healthy}


def test_claim_status_says_what_its_device_is_and_how_it_is(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    workloads.claim("shared", _share_of(gpus, 0))
    for pod in ("one", "two"):
        workloads.pod(pod, "shared")
    workloads.wait_running("one", "two")
    wait_for("the status of the claim", _says(workloads, "shared", "True"))
    (device,) = _devices(workloads, "shared")
    (result,) = workloads.get("resourceclaim", "shared")["status"]["allocation"]["devices"][
        "results"
    ]
    assert (device["device"], device["shareID"]) == (result["device"], result["shareID"])
    assert device["data"]["type"] == "share"
    assert device["data"]["uuid"] == gpus.state.gpus[0].uuid

    gpus.lose_gpu(0)

    wait_for("the status to say so", _says(workloads, "shared", "False"))
    for kind, name in (("ResourceClaim", "shared"), ("Pod", "one"), ("Pod", "two")):
        assert gpus.state.gpus[0].uuid in workloads.wait_event(kind, name, "GPULost")
    gpus.reset_gpu(0)
    wait_for("the status to say so", _says(workloads, "shared", "True"))
    assert "healthy again" in workloads.wait_event("Pod", "two", "GPURecovered")
    plugin.stop()
    gpus.lose_gpu(0)
    plugin.start()
    wait_for(
        "what changed meanwhile", lambda: _conditions(workloads, "shared")["Healthy"] != "True"
    )


def test_claim_status_names_the_partition_that_was_made(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    profile = f"device.attributes['{DRIVER}'].profile == '1g.18gb'"
    workloads.claim(
        "part",
        request(deviceClassName=f"mig.{DRIVER}", selectors=[{"cel": {"expression": profile}}]),
    )
    workloads.pod("pod", "part")
    workloads.wait_running("pod")
    wait_for("the status of the claim", _says(workloads, "part", "True"))
    ((device,), (seen,)) = _devices(workloads, "part"), workloads.gpus("pod")

    assert device["data"]["uuid"] == seen.uuid
    assert device["data"]["parentUUID"] == gpus.state.gpus[seen.minor].uuid
    version = workloads.get("resourceclaim", "part")["metadata"]["resourceVersion"]
    plugin.stop()
    plugin.start()
    workloads.claim("other", _share_of(gpus, 7))
    workloads.pod("other", "other")
    workloads.wait_running("other")
    wait_for("the status of the other claim", _says(workloads, "other", "True"))
    assert workloads.get("resourceclaim", "part")["metadata"]["resourceVersion"] == version
