"""Which group a pod is in, and its place there."""

import pytest

from controller.names import GROUP_LABEL, MIN_COUNT_ANNOTATION, POD_SET_LABEL
from controller.observe.member import Member, group_id_of, place_of
from controller.observe.owner import Place
from tests.unit.controller.observe.operators import (
    bare,
    of_job,
    of_job_set,
    of_leader_worker_set,
    of_mpi_job,
    of_pytorch_job,
    of_ray_cluster,
    of_stateful_set,
    owned,
)

_MIN_COUNT = {MIN_COUNT_ANNOTATION: "4"}


@pytest.mark.parametrize(
    ("member", "key"),
    [
        (bare("p"), "team/pod/p"),
        (of_job(0), "team/job/train"),
        (of_stateful_set(0), "team/statefulset/db"),
        (of_job_set("workers", 1, 3), "team/jobset/train"),
        (of_leader_worker_set(2, 0), "team/leaderworkerset/serve-2"),
        (of_leader_worker_set(2, 3), "team/leaderworkerset/serve-2"),
        (of_pytorch_job("worker", 0), "team/pytorchjob/train"),
        (of_mpi_job("launcher"), "team/mpijob/train"),
        (of_mpi_job("worker"), "team/mpijob/train"),
        (of_ray_cluster("headgroup", "abcde"), "team/raycluster/ray"),
        (owned("web-1-x", "apps/v1", "ReplicaSet", "web-1"), "team/pod/web-1-x"),
        (owned("x", "example.org/v1", "Thing", "thing"), "team/pod/x"),
    ],
)
def test_the_owner_of_a_pod_says_with_which_others_it_starts(member: Member, key: str) -> None:
    assert group_id_of(member).key == key


@pytest.mark.parametrize(
    ("member", "key"),
    [
        (
            owned("w-x", "apps/v1", "ReplicaSet", "w", annotations=_MIN_COUNT),
            "team/replicaset.apps/w",
        ),
        (
            owned("j-0", "batch.volcano.sh/v1alpha1", "Job", "j", annotations=_MIN_COUNT),
            "team/job.batch.volcano.sh/j",
        ),
        (
            owned("r-x", "v1", "ReplicationController", "r", annotations=_MIN_COUNT),
            "team/replicationcontroller/r",
        ),
        (bare("p", annotations=_MIN_COUNT), "team/pod/p"),
    ],
)
def test_pods_of_any_owner_are_a_group_if_they_say_how_many_start_together(
    member: Member, key: str
) -> None:
    assert group_id_of(member).key == key


@pytest.mark.parametrize("member", [bare(scheduling_group="g"), of_job(0, scheduling_group="g")])
def test_a_pod_that_names_a_pod_group_of_scheduling_k8s_io_is_in_it(member: Member) -> None:
    assert group_id_of(member).key == "team/podgroup.scheduling.k8s.io/g"


def test_the_label_of_a_pod_group_comes_before_all_else() -> None:
    member = owned("p", "batch/v1", "Job", "train", {GROUP_LABEL: "mine"}, scheduling_group="g")
    assert group_id_of(member).key == "team/mine"


@pytest.mark.parametrize(
    ("member", "place"),
    [
        (bare(), Place()),
        (of_job(), Place()),
        (of_job(7), Place(rank=7)),
        (of_stateful_set(3), Place(rank=3)),
        (of_job_set("workers", 0, 3), Place("workers", 3)),
        (of_job_set("workers", 1, 3), Place("workers", 100_003)),
        (of_leader_worker_set(2, 0), Place("leader", 0)),
        (of_leader_worker_set(2, 3), Place("worker", 3)),
        (of_pytorch_job("master", 0), Place("master", 0)),
        (of_pytorch_job("worker", 2), Place("worker", 2)),
        (of_mpi_job("launcher"), Place("launcher", 0)),
        (of_mpi_job("worker", 1), Place("worker", 1)),
        (of_ray_cluster("headgroup", "x"), Place("headgroup")),
        (of_ray_cluster("gpu", "x"), Place("gpu")),
    ],
)
def test_labels_of_the_owner_say_in_which_pod_set_a_pod_is_and_where(
    member: Member, place: Place
) -> None:
    assert place_of(member) == place


def test_a_pod_says_its_pod_set_in_a_pod_group_and_its_owner_the_rank() -> None:
    labels = {GROUP_LABEL: "mine", POD_SET_LABEL: "workers"}
    labels |= {"batch.kubernetes.io/job-completion-index": "5"}
    assert place_of(owned("p", "batch/v1", "Job", "j", labels)) == Place("workers", 5)


def test_a_pod_group_of_scheduling_k8s_io_has_one_pod_set() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "train"}
    labels |= {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    member = owned("p", "batch/v1", "Job", "j", labels, scheduling_group="g")
    assert place_of(member) == Place()


@pytest.mark.parametrize("index", ["", "x", "-1", "²", "9" * 60])
def test_an_index_that_is_none_counts_as_the_first(index: str) -> None:
    labels = {"batch.kubernetes.io/job-completion-index": index}
    assert place_of(owned("p", "batch/v1", "Job", "j", labels)) == Place()
