"""Which group a pod is in, and its place there."""

from itertools import product

import pytest

from carina_dra.resource import OwnerReference
from controller.names import GROUP_LABEL, MIN_COUNT_ANNOTATION, POD_SET_LABEL
from controller.observe.member import GroupMember, ReplicaGroup, group_id_of, place_of
from controller.observe.owner import GroupPosition, OwnerKey, OwnerKind
from controller.observe.standalone import key_of_standalone
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
def test_the_owner_of_a_pod_says_with_which_others_it_starts(member: GroupMember, key: str) -> None:
    assert group_id_of(member).key == key


@pytest.mark.parametrize(
    ("member", "key"),
    [
        (
            owned("w-x", "apps/v1", "ReplicaSet", "w", annotations=_MIN_COUNT),
            "team/owner:replicaset.apps/w",
        ),
        (
            owned("j-0", "batch.volcano.sh/v1alpha1", "Job", "j", annotations=_MIN_COUNT),
            "team/owner:job.batch.volcano.sh/j",
        ),
        (
            owned("r-x", "v1", "ReplicationController", "r", annotations=_MIN_COUNT),
            "team/owner:replicationcontroller/r",
        ),
        (bare("p", annotations=_MIN_COUNT), "team/pod/p"),
    ],
)
def test_pods_of_any_owner_are_a_group_if_they_say_how_many_start_together(
    member: GroupMember, key: str
) -> None:
    assert group_id_of(member).key == key


_API_VERSIONS = ("v1", "batch/v1", "apps/v1", "kubeflow.org/v1", "scheduling.k8s.io/v1beta1")
_KINDS = ("Job", "StatefulSet", "MPIJob", "Pod", "ResourceClaim", "PodGroup", "a/Job")
_NAMES = ("a", "a-1", "1", "a/1", "a%2F1", "a\n1", "n" * 1000, "n" * 1001)
"""Of owners, which may have any name in a reference; objects have none with a slash."""
_LWS = "leaderworkerset.sigs.k8s.io"
_LABELS: tuple[dict[str, str], ...] = (
    {},
    {GROUP_LABEL: "a"},
    {"jobset.sigs.k8s.io/jobset-name": "a"},
    {f"{_LWS}/name": "a", f"{_LWS}/group-index": "1"},
    {f"{_LWS}/name": "a", f"{_LWS}/group-index": "1-2"},
    {f"{_LWS}/name": "a-1", f"{_LWS}/group-index": "2"},
)


def test_different_groups_have_different_keys() -> None:
    owners = [
        None,
        *(OwnerReference(*each, "uid") for each in product(_API_VERSIONS, _KINDS, _NAMES)),
    ]
    ids = {
        group_id_of(GroupMember("ns", name, 0, labels, annotations, owner, scheduling_group))
        for name, labels, annotations, owner, scheduling_group in product(
            ("a", "a-1"), _LABELS, ({}, _MIN_COUNT), owners, (None, "a")
        )
    }
    keys = {each.key for each in ids} | {key_of_standalone(f"ns/{name}") for name in ("a", "a-1")}
    assert len(keys) == len(ids) + 2


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2Ja", "\u202ea", "\ud800", "n" * 1_000_000, "é" * 900]
)
def test_a_key_can_be_shown_whatever_the_references_to_owners_say(name: str) -> None:
    key = group_id_of(owned("p", "x.example/v1", name, name, annotations=_MIN_COUNT)).key
    assert key.isascii()
    assert key.isprintable()
    assert len(key) < 1000


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "Job"),
        ("v1", "Pod"),
        ("v1", "ResourceClaim"),
        ("v1", "LeaderWorkerSet"),
        ("scheduling.k8s.io/v1beta1", "PodGroup"),
    ],
)
def test_no_owner_of_any_kind_has_the_key_of_another_group(api_version: str, kind: str) -> None:
    member = owned("p", api_version, kind, "train", annotations=_MIN_COUNT)
    assert group_id_of(member).key.startswith("team/owner:")


def test_replicas_have_keys_of_their_own_whatever_their_labels_say() -> None:
    one, other = (
        ReplicaGroup(OwnerKey(OwnerKind.LEADER_WORKER_SET, "team", name), index)
        for name, index in (("a", "1-2"), ("a-1", "2"))
    )
    assert one.key != other.key


@pytest.mark.parametrize("member", [bare(scheduling_group="g"), of_job(0, scheduling_group="g")])
def test_a_pod_that_names_a_pod_group_of_scheduling_k8s_io_is_in_it(member: GroupMember) -> None:
    assert group_id_of(member).key == "team/podgroup.scheduling.k8s.io/g"


def test_the_label_of_a_pod_group_comes_before_all_else() -> None:
    member = owned("p", "batch/v1", "Job", "train", {GROUP_LABEL: "mine"}, scheduling_group="g")
    assert group_id_of(member).key == "team/mine"


@pytest.mark.parametrize(
    ("member", "place"),
    [
        (bare(), GroupPosition()),
        (of_job(), GroupPosition()),
        (of_job(7), GroupPosition(rank=7)),
        (of_stateful_set(3), GroupPosition(rank=3)),
        (of_job_set("workers", 0, 3), GroupPosition("workers", 3)),
        (of_job_set("workers", 1, 3), GroupPosition("workers", 100_003)),
        (of_leader_worker_set(2, 0), GroupPosition("leader", 0)),
        (of_leader_worker_set(2, 3), GroupPosition("worker", 3)),
        (of_pytorch_job("master", 0), GroupPosition("master", 0)),
        (of_pytorch_job("worker", 2), GroupPosition("worker", 2)),
        (of_mpi_job("launcher"), GroupPosition("launcher", 0)),
        (of_mpi_job("worker", 1), GroupPosition("worker", 1)),
        (of_ray_cluster("headgroup", "x"), GroupPosition("headgroup")),
        (of_ray_cluster("gpu", "x"), GroupPosition("gpu")),
    ],
)
def test_labels_of_the_owner_say_in_which_pod_set_a_pod_is_and_where(
    member: GroupMember, place: GroupPosition
) -> None:
    assert place_of(member) == place


def test_a_pod_says_its_pod_set_in_a_pod_group_and_its_owner_the_rank() -> None:
    labels = {GROUP_LABEL: "mine", POD_SET_LABEL: "workers"}
    labels |= {"batch.kubernetes.io/job-completion-index": "5"}
    assert place_of(owned("p", "batch/v1", "Job", "j", labels)) == GroupPosition("workers", 5)


def test_a_pod_group_of_scheduling_k8s_io_has_one_pod_set() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "train"}
    labels |= {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    member = owned("p", "batch/v1", "Job", "j", labels, scheduling_group="g")
    assert place_of(member) == GroupPosition()


@pytest.mark.parametrize("index", ["", "x", "-1", "²", "9" * 60])
def test_an_index_that_is_none_counts_as_the_first(index: str) -> None:
    labels = {"batch.kubernetes.io/job-completion-index": index}
    assert place_of(owned("p", "batch/v1", "Job", "j", labels)) == GroupPosition()
