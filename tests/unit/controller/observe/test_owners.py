"""Which pods the objects of operators start together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.observe.owner import (
    AllMembers,
    GroupShape,
    Malformed,
    OwnerKind,
    OwnerType,
    Part,
    Parts,
)
from controller.observe.owners.types import OWNER_RESOURCES, OWNER_TYPES
from tests.unit.controller.observe.operators import PLAIN, QUEUED


def _shape(kind: OwnerKind, spec: Any, annotations: dict[str, str] | None = None) -> GroupShape:
    metadata = {"namespace": "team", "name": "x", "annotations": annotations or {}}
    return OWNER_TYPES[kind].read({"metadata": metadata, "spec": spec}).shape


def _parts(*parts: Part) -> Parts:
    return Parts(parts)


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"replicas": 3, "podManagementPolicy": "OrderedReady"}, 1),
        ({"replicas": 3, "podManagementPolicy": "Parallel"}, 3),
        ({"replicas": 3}, 1),
        ({"podManagementPolicy": "Parallel"}, 1),
    ],
)
def test_replicas_of_a_stateful_set_start_together_if_they_are_created_together(
    spec: dict[str, Any], least: int
) -> None:
    assert _shape(OwnerKind.STATEFUL_SET, spec) == _parts(Part("", least))


def _replicated_job(name: str, replicas: int, job: dict[str, Any], **more: Any) -> dict[str, Any]:
    template = {"spec": {"template": QUEUED, **job}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def test_all_pods_of_a_job_set_start_together() -> None:
    jobs = [
        _replicated_job("driver", 1, {"template": PLAIN}),
        _replicated_job("workers", 2, {"parallelism": 4, "completions": 4}),
        _replicated_job("last", 1, {"parallelism": 4, "completions": 3}),
    ]
    assert _shape(OwnerKind.JOB_SET, {"replicatedJobs": jobs}) == _parts(
        Part("driver", 1, names_queue=False), Part("workers", 8), Part("last", 3)
    )


def test_a_job_that_depends_on_another_is_late() -> None:
    jobs = [
        _replicated_job("init", 1, {}),
        _replicated_job("train", 1, {}, dependsOn=[{"name": "init", "status": "Complete"}]),
    ]
    assert _shape(OwnerKind.JOB_SET, {"replicatedJobs": jobs}) == _parts(
        Part("init", 1), Part("train", 1, is_late=True)
    )


def test_jobs_that_are_started_in_order_are_late_from_the_second_on() -> None:
    jobs = [_replicated_job("a", 1, {}), _replicated_job("b", 1, {})]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    assert _shape(OwnerKind.JOB_SET, spec) == _parts(Part("a", 1), Part("b", 1, is_late=True))


_EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


@pytest.mark.parametrize(
    ("annotations", "least"),
    [({}, 8), (_EXCLUSIVE, 2), (_EXCLUSIVE | {"alpha.jobset.sigs.k8s.io/node-selector": "1"}, 8)],
)
def test_jobs_with_a_topology_of_their_own_have_one_pod_each_at_first(
    annotations: dict[str, str], least: int
) -> None:
    spec = {"replicatedJobs": [_replicated_job("workers", 2, {"parallelism": 4})]}
    assert _shape(OwnerKind.JOB_SET, spec, annotations) == _parts(Part("workers", least))


def _leader_worker_set(**spec: Any) -> dict[str, Any]:
    template = {"size": 4, "workerTemplate": QUEUED}
    return {"replicas": 2, "leaderWorkerTemplate": template, **spec}


def test_a_replica_of_a_leader_worker_set_starts_as_a_whole() -> None:
    shape = _shape(OwnerKind.LEADER_WORKER_SET, _leader_worker_set())
    assert shape == _parts(Part("leader", 1), Part("worker", 3))


def test_the_leader_may_have_a_template_of_its_own() -> None:
    template = {"size": 4, "workerTemplate": QUEUED, "leaderTemplate": PLAIN}
    shape = _shape(OwnerKind.LEADER_WORKER_SET, {"leaderWorkerTemplate": template})
    assert shape == _parts(Part("leader", 1, names_queue=False), Part("worker", 3))


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [
        ({"startupPolicy": "LeaderReady"}, {}),
        ({}, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}),
    ],
)
def test_workers_that_are_created_after_their_leader_runs_are_late(
    spec: dict[str, Any], annotations: dict[str, str]
) -> None:
    shape = _shape(OwnerKind.LEADER_WORKER_SET, _leader_worker_set(**spec), annotations)
    assert shape == _parts(Part("leader", 1), Part("worker", 3, is_late=True))


_TRAINING_JOBS = [
    (OwnerKind.PYTORCH_JOB, "pytorchReplicaSpecs"),
    (OwnerKind.TF_JOB, "tfReplicaSpecs"),
    (OwnerKind.XGBOOST_JOB, "xgbReplicaSpecs"),
    (OwnerKind.PADDLE_JOB, "paddleReplicaSpecs"),
    (OwnerKind.JAX_JOB, "jaxReplicaSpecs"),
    (OwnerKind.MPI_JOB, "mpiReplicaSpecs"),
]
_REPLICAS = {
    "Master": {"replicas": 1, "template": PLAIN},
    "Worker": {"replicas": 3, "template": QUEUED},
}


@pytest.mark.parametrize(("kind", "replica_specs"), _TRAINING_JOBS)
def test_all_replicas_of_a_training_job_start_together(kind: OwnerKind, replica_specs: str) -> None:
    shape = _shape(kind, {replica_specs: _REPLICAS})
    assert shape == _parts(Part("master", 1, names_queue=False), Part("worker", 3))


@pytest.mark.parametrize(("kind", "replica_specs"), _TRAINING_JOBS)
def test_a_training_job_may_say_how_many_of_all_its_pods_start_together(
    kind: OwnerKind, replica_specs: str
) -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2, "queue": "ignored"}}
    assert _shape(kind, {replica_specs: _REPLICAS, "runPolicy": policy}) == _parts(Part("", 2))


def test_an_elastic_pytorch_job_starts_with_its_smallest_number_of_workers() -> None:
    elastic = {"minReplicas": 2, "maxReplicas": 3}
    spec = {
        "pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": QUEUED}},
        "elasticPolicy": elastic,
    }
    assert _shape(OwnerKind.PYTORCH_JOB, spec) == _parts(Part("worker", 2))


@pytest.mark.parametrize(("policy", "late"), [("AtStartup", False), ("WaitForWorkersReady", True)])
def test_a_launcher_that_waits_for_workers_is_late(policy: str, late: bool) -> None:
    specs = {"Launcher": {"template": QUEUED}, "Worker": {"replicas": 2, "template": QUEUED}}
    spec = {"mpiReplicaSpecs": specs, "launcherCreationPolicy": policy}
    assert _shape(OwnerKind.MPI_JOB, spec) == _parts(
        Part("launcher", 1, is_late=late), Part("worker", 2)
    )


def _ray_cluster(*, autoscaling: bool = False, **group: Any) -> dict[str, Any]:
    workers = {"groupName": "gpu", "template": QUEUED, **group}
    return {
        "headGroupSpec": {"template": QUEUED},
        "workerGroupSpecs": [workers],
        "enableInTreeAutoscaling": autoscaling,
    }


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        (_ray_cluster(replicas=3, minReplicas=1, maxReplicas=5), 3),
        (_ray_cluster(replicas=3, numOfHosts=4), 12),
        (_ray_cluster(replicas=1, minReplicas=2), 2),
        (_ray_cluster(replicas=9, maxReplicas=5), 5),
        (_ray_cluster(minReplicas=2), 2),
        (_ray_cluster(replicas=3, minReplicas=1, autoscaling=True), 1),
        (_ray_cluster(replicas=3, autoscaling=True), 0),
        (_ray_cluster(replicas=3, suspend=True), 0),
    ],
)
def test_a_ray_cluster_starts_with_its_head_and_the_replicas_that_it_must_have(
    spec: dict[str, Any], least: int
) -> None:
    assert _shape(OwnerKind.RAY_CLUSTER, spec) == _parts(Part("headgroup", 1), Part("gpu", least))


@pytest.mark.parametrize(("policy", "least"), [({"gang": {"minCount": 4}}, 4), ({"basic": {}}, 1)])
def test_a_pod_group_of_scheduling_k8s_io_needs_all_pods_that_name_it(
    policy: dict[str, Any], least: int
) -> None:
    assert _shape(OwnerKind.POD_GROUP, {"schedulingPolicy": policy}) == AllMembers(least)


@pytest.mark.parametrize(
    ("kind", "spec", "reason"),
    [
        (
            OwnerKind.STATEFUL_SET,
            {"replicas": "three"},
            "StatefulSet x: spec.replicas: is 'three', not an integer",
        ),
        (
            OwnerKind.JOB_SET,
            {"replicatedJobs": [{"replicas": 1}]},
            "JobSet x: spec.replicatedJobs[0]: lacks name",
        ),
        (
            OwnerKind.LEADER_WORKER_SET,
            {},
            "LeaderWorkerSet x: spec: lacks leaderWorkerTemplate",
        ),
        (
            OwnerKind.MPI_JOB,
            {"mpiReplicaSpecs": {"Worker": 3}},
            "MPIJob x: spec.mpiReplicaSpecs[Worker]: is 3, not an object",
        ),
        (
            OwnerKind.RAY_CLUSTER,
            {"workerGroupSpecs": {}},
            "RayCluster x: spec.workerGroupSpecs: is {}, not a list",
        ),
        (
            OwnerKind.POD_GROUP,
            {"schedulingPolicy": {"gang": {"minCount": []}}},
            "PodGroup x: spec.schedulingPolicy.gang.minCount: is [], not an integer",
        ),
    ],
)
def test_an_owner_that_cannot_be_read_says_which_field_is_wrong(
    kind: OwnerKind, spec: dict[str, Any], reason: str
) -> None:
    assert _shape(kind, spec) == Malformed(reason)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_FIELDS = st.sampled_from(
    [
        "replicas",
        "replicatedJobs",
        "startupPolicy",
        "leaderWorkerTemplate",
        "runPolicy",
        "elasticPolicy",
        "pytorchReplicaSpecs",
        "headGroupSpec",
        "workerGroupSpecs",
        "schedulingPolicy",
    ]
)


@given(st.sampled_from(OWNER_RESOURCES), st.dictionaries(_FIELDS, _JSON) | _JSON)
def test_whatever_is_in_an_owner_is_no_exception(owner: OwnerType, spec: Any) -> None:
    shape = _shape(owner.kind, spec)
    assert not isinstance(shape, Malformed) or "spec" in shape.reason


def test_owners_are_watched_in_the_newest_version_first() -> None:
    paths = {each.kind: each.versions[0].collection_path(None) for each in OWNER_RESOURCES}
    assert paths == {
        OwnerKind.STATEFUL_SET: "/apis/apps/v1/statefulsets",
        OwnerKind.JOB_SET: "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        OwnerKind.LEADER_WORKER_SET: "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
        OwnerKind.PYTORCH_JOB: "/apis/kubeflow.org/v1/pytorchjobs",
        OwnerKind.TF_JOB: "/apis/kubeflow.org/v1/tfjobs",
        OwnerKind.XGBOOST_JOB: "/apis/kubeflow.org/v1/xgboostjobs",
        OwnerKind.PADDLE_JOB: "/apis/kubeflow.org/v1/paddlejobs",
        OwnerKind.JAX_JOB: "/apis/kubeflow.org/v1/jaxjobs",
        OwnerKind.MPI_JOB: "/apis/kubeflow.org/v2beta1/mpijobs",
        OwnerKind.RAY_CLUSTER: "/apis/ray.io/v1/rayclusters",
        OwnerKind.POD_GROUP: "/apis/scheduling.k8s.io/v1beta1/podgroups",
    }
