"""Pods as controllers and operators make them: their labels, annotations and owners.

By the source of JobSet 0.10, LeaderWorkerSet 0.7, the Kubeflow training operator 1.9, the MPI
operator 0.6 and KubeRay 1.4. Labels that nothing here reads are left out.
"""

from typing import Any

from carina_dra.resource import OwnerReference
from controller.engine.model.queue import QUEUE_LABEL
from controller.observe.member import GroupMember

QUEUED = {"metadata": {"labels": {QUEUE_LABEL: "research"}}}
"""A pod template with a queue."""
PLAIN: dict[str, Any] = {"metadata": {}}
"""A pod template without one."""


def owned(
    name: str,
    api_version: str,
    kind: str,
    owner: str,
    labels: dict[str, str] | None = None,
    **fields: Any,
) -> GroupMember:
    """A pod of an owner."""
    return GroupMember(
        "team",
        name,
        labels={QUEUE_LABEL: "research", **(labels or {})},
        owner=OwnerReference(api_version, kind, owner, f"{owner}-uid", controller=True),
        **fields,
    )


def bare(name: str = "p", labels: dict[str, str] | None = None, **fields: Any) -> GroupMember:
    """A pod without an owner."""
    return GroupMember("team", name, labels={QUEUE_LABEL: "research", **(labels or {})}, **fields)


def of_job(index: int | None = None, job: str = "train", **fields: Any) -> GroupMember:
    """A pod of a Job; of an Indexed one, with its index."""
    labels = {"batch.kubernetes.io/job-name": job}
    if index is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
    return owned(f"{job}-{index}-abcde", "batch/v1", "Job", job, labels, **fields)


def of_stateful_set(index: int, **fields: Any) -> GroupMember:
    """A pod of the StatefulSet `db`."""
    labels = {"apps.kubernetes.io/pod-index": str(index)}
    return owned(f"db-{index}", "apps/v1", "StatefulSet", "db", labels, **fields)


def of_job_set(job: str, replica: int, index: int, **fields: Any) -> GroupMember:
    """A pod of a replicated job of the JobSet `train`."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/job-index": str(replica),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    name = f"train-{job}-{replica}"
    return owned(f"{name}-{index}-abcde", "batch/v1", "Job", name, labels, **fields)


def of_leader_worker_set(replica: int, index: int, size: int = 4, **fields: Any) -> GroupMember:
    """A pod of the LeaderWorkerSet `serve`: leaders have one StatefulSet, workers one each."""
    leader = f"serve-{replica}"
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": str(replica),
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
    }
    return owned(
        f"{leader}-{index}" if index else leader,
        "apps/v1",
        "StatefulSet",
        leader if index else "serve",
        labels,
        annotations={"leaderworkerset.sigs.k8s.io/size": str(size)},
        **fields,
    )


def of_pytorch_job(kind: str, index: int, **fields: Any) -> GroupMember:
    """A pod of the PyTorchJob `train`."""
    labels = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": str(index),
    }
    name = f"train-{kind}-{index}"
    return owned(name, "kubeflow.org/v1", "PyTorchJob", "train", labels, **fields)


def of_mpi_job(role: str, index: int = 0) -> GroupMember:
    """A pod of the MPIJob `train` of the MPI operator, whose launcher is a Job."""
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/job-role": role,
    }
    if role == "launcher":
        return owned("train-launcher-abcde", "batch/v1", "Job", "train-launcher", labels)
    labels["training.kubeflow.org/replica-index"] = str(index)
    return owned(f"train-worker-{index}", "kubeflow.org/v2beta1", "MPIJob", "train", labels)


def of_ray_cluster(group: str, name: str) -> GroupMember:
    """A pod of the RayCluster `ray`."""
    labels = {
        "ray.io/cluster": "ray",
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head" if group == "headgroup" else "worker",
    }
    return owned(f"ray-{group}-{name}", "ray.io/v1", "RayCluster", "ray", labels)
