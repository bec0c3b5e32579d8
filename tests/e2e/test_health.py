"""What is told of the health of a claim's devices, on a real kubelet and API server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.workloads import Object, Workloads, request

_CARINA = "import sys; from carina_dra.cli.command import main; sys.exit(main())"


def _share_of(gpus: SimulatedNode, minor: int) -> Object:
    """A request for a small share of this GPU, which keeps it whatever happens to the GPU."""
    expression = f"device.attributes['{DRIVER}'].uuid == '{gpus.state.gpus[minor].uuid}'"
    return request(
        deviceClassName=f"share.{DRIVER}",
        selectors=[{"cel": {"expression": expression}}],
        capacity={"requests": {"memory": "1Gi", "cores": "10"}},
        tolerations=[{"operator": "Exists", "effect": "NoExecute"}],
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


def _carina_health(cluster: Cluster, *words: str) -> str:
    """What the command prints for the cluster's administrator."""
    return subprocess.run(
        [sys.executable, "-c", _CARINA, "health", *words],
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def _ill(cluster: Cluster) -> list[Object]:
    gpus = json.loads(_carina_health(cluster, "-o", "json"))["gpus"]
    return [gpu for gpu in gpus if gpu["problems"]]


def test_carina_health_shows_who_has_a_gpu_that_failed_and_clears_its_faults(
    workloads: Workloads, gpus: SimulatedNode, cluster: Cluster, node: Node
) -> None:
    workloads.claim("claim", _share_of(gpus, 2))
    workloads.pod("pod", "claim")
    workloads.wait_running("pod")

    gpus.lose_gpu(2)

    (ill,) = wait_for("the GPU to be shown", lambda: _ill(cluster))
    assert (ill["node"], ill["uuid"]) == (node.name, gpus.state.gpus[2].uuid)
    assert ill["problems"][0]["state"] == "lost"
    assert ill["problems"][0]["since"]
    assert ill["claims"][0]["claim"] == f"{workloads.namespace}/claim"
    assert ill["claims"][0]["pods"] == ["pod"]
    assert f"kubectl drain {node.name}" in _carina_health(cluster)
    _carina_health(cluster, "--clear", node.name, "gpu-2")
    key = f"{DRIVER}/faults-cleared".replace(".", "\\.")
    written = cluster.kubectl(
        "get", "node", node.name, f"-o=jsonpath={{.metadata.annotations.{key}}}"
    )
    cluster.kubectl("annotate", "node", node.name, f"{DRIVER}/faults-cleared-")
    assert json.loads(written).keys() == {gpus.state.gpus[2].uuid}
    gpus.reset_gpu(2)
    wait_for("no GPU to be ill", lambda: not _ill(cluster))
