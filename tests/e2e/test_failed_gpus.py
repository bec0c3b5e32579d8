"""Work on a GPU that fails leaves it and gets another one, on a real kubelet."""

from collections.abc import Iterator, Sequence

import pytest

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import MIN_COUNT_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION
from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER
from tests.e2e.workloads import Object, Workloads, container
from tests.integration.controller.live.site import Site

_NEEDS_RESET = 1
_NOTHING = 0
_QUEUE = "failed-gpus"
_EVICTED_S = 60.0
_IGNORES_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
"""Of a Job: it neither counts an evicted pod as failed, nor waits before it replaces it."""
_FAILS_WHEN_EVICTED = "trap 'exit 1' TERM; sleep 3600 & wait"
"""Else, the pod may have succeeded, and with it the Job, before the Job has replaced it."""


@pytest.fixture
def queue(cluster: Cluster, workloads: Workloads) -> Iterator[None]:
    """A queue of the test's namespace, and a controller."""
    cluster.apply(
        {
            "apiVersion": "scheduling.carina.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": _QUEUE},
            "spec": {"namespaces": {"names": [workloads.namespace]}},
        }
    )
    with Client(from_kubeconfig(cluster.kubeconfig)) as client, Site(cluster, client).controller():
        yield
        workloads.delete_all()
        cluster.kubectl("delete", "queue", _QUEUE)


def _running(workloads: Workloads) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in workloads.listed("pods")
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _only_pod(workloads: Workloads, *, but: str = "") -> str:
    """The pod of a Job that runs, which is not this one."""
    (pod,) = wait_for(
        "a pod of the Job to run",
        lambda: [name for name in _running(workloads) if name != but],
        timeout=_EVICTED_S,
    )
    return pod


def _both(workloads: Workloads, *, but: Sequence[str]) -> list[str]:
    """The two pods of a gang that run, which are none of these."""
    return wait_for(
        "both pods of the gang to run",
        lambda: (found := sorted(set(_running(workloads)) - set(but)))[1:] and found,
        timeout=_EVICTED_S,
    )


def _moves_to_another_gpu(workloads: Workloads, gpus: SimulatedNode) -> str:
    """Has the GPU of a Job's pod fail; the pod that replaces it has another one."""
    first = _only_pod(workloads)
    (failed,) = workloads.gpus(first)

    gpus.recovery_action(failed.minor, _NEEDS_RESET)

    second = _only_pod(workloads, but=first)
    (given,) = workloads.gpus(second)
    assert given.minor != failed.minor
    gpus.recovery_action(failed.minor, _NOTHING)
    return first


def test_pod_whose_claim_has_a_gpu_that_needs_a_reset_is_replaced_on_another(
    workloads: Workloads, gpus: SimulatedNode
) -> None:
    workloads.claim("gpu", template=True)
    workloads.job_of_template("train", "gpu", container("main", "gpu", command=_FAILS_WHEN_EVICTED))

    _moves_to_another_gpu(workloads, gpus)


@pytest.mark.usefixtures("queue")
def test_pod_of_a_queue_that_asked_by_limits_is_replaced_on_another(
    workloads: Workloads, gpus: SimulatedNode
) -> None:
    main = container("main", command=_FAILS_WHEN_EVICTED)
    main["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    template: Object = {
        "metadata": {"labels": {QUEUE_LABEL: _QUEUE}},
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }
    workloads.cluster.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": workloads.namespace, "name": "train"},
            "spec": {"template": template},
        }
    )

    evicted = _moves_to_another_gpu(workloads, gpus)

    said = workloads.wait_event("Pod", evicted, "DeviceTainted")
    assert f"{DRIVER}/needs-reset" in said


@pytest.mark.usefixtures("queue")
def test_gang_is_replaced_as_a_whole_and_avoids_the_gpu_that_failed(
    workloads: Workloads, gpus: SimulatedNode
) -> None:
    workloads.claim("gpu", template=True)
    asked = {MIN_COUNT_ANNOTATION: "2", ON_DEVICE_FAILURE_ANNOTATION: "replace"}
    template: Object = {
        "metadata": {"labels": {QUEUE_LABEL: _QUEUE}, "annotations": asked},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "containers": [container("main", "gpu", command=_FAILS_WHEN_EVICTED)],
        },
    }
    workloads.cluster.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": workloads.namespace, "name": "train"},
            "spec": {
                "parallelism": 2,
                "completions": 2,
                "template": template,
                "podFailurePolicy": {"rules": [_IGNORES_DISRUPTIONS]},
            },
        }
    )
    first = _both(workloads, but=())
    (failed,) = workloads.gpus(first[0])

    gpus.recovery_action(failed.minor, _NEEDS_RESET)

    second = _both(workloads, but=first)
    given = {gpu.minor for pod in second for gpu in workloads.gpus(pod)}
    assert len(given) == 2
    assert failed.minor not in given
    gpus.recovery_action(failed.minor, _NOTHING)
