"""What a group of pods needs, from its pods and from what owns them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.preference import Policy
from controller.engine.model.group import Group, OnDeviceFailure, PodSet, SubGroup, SubGroups
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import (
    GROUP_LABEL,
    MIN_COUNT_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
    POD_SET_LABEL,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
)
from controller.observe.grouping import RefusedGroup, group_of
from controller.observe.member import (
    GroupMember,
    OwnedGroup,
    ReplicaGroup,
    group_id_of,
    place_of,
)
from controller.observe.owner import Owner, OwnerKind
from controller.observe.owners.types import OWNER_TYPES
from tests.unit.controller.observe.operators import (
    PLAIN,
    QUEUED,
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


def _owner(kind: OwnerKind, name: str, spec: dict[str, Any]) -> Owner:
    body = {"metadata": {"namespace": "team", "name": name}, "spec": spec}
    return OWNER_TYPES[kind].read(body)


def _made(members: Sequence[GroupMember], owner: Owner | None = None) -> Group:
    found = group_of(group_id_of(members[0]), members, owner=owner)
    assert isinstance(found, Group), found
    return found


def _reason(members: Sequence[GroupMember], owner: Owner | None = None) -> str:
    found = group_of(group_id_of(members[0]), members, owner=owner)
    assert isinstance(found, RefusedGroup), found
    return found.reason


def _all(*pod_sets: SubGroup) -> SubGroups:
    return SubGroups("", pod_sets, len(pod_sets))


def _of_one_group(members: list[GroupMember]) -> list[GroupMember]:
    return [each for each in members if group_id_of(each) == group_id_of(members[0])]


def _annotated(member: GroupMember, **annotations: str) -> GroupMember:
    return replace(member, annotations={**member.annotations, **annotations})


# Trees -------------------------------------------------------------------------------------------


def test_a_pod_by_itself_is_a_group_of_one() -> None:
    assert _made([bare("p")]) == Group("team/pod/p", "research", PodSet("", 1), moves=False)


def test_a_group_moves_only_if_somebody_makes_each_of_its_pods_anew() -> None:
    assert not _made([bare("p")]).moves
    assert _made([of_job(0), of_job(1)]).moves


def test_pods_of_a_job_start_one_by_one() -> None:
    assert _made([of_job(0), of_job(1)]).root == PodSet("", 1)


def test_pods_of_a_job_may_say_how_many_start_together() -> None:
    pods = [_annotated(of_job(n), **{MIN_COUNT_ANNOTATION: "4"}) for n in range(2)]
    assert _made(pods).root == PodSet("", 4)


def test_the_youngest_pod_says_how_many_start_together() -> None:
    old = replace(_annotated(of_job(0), **{MIN_COUNT_ANNOTATION: "4"}), created=1)
    new = replace(_annotated(of_job(1), **{MIN_COUNT_ANNOTATION: "2"}), created=2)
    assert _made([new, old]).root == PodSet("", 2)


def test_of_pods_of_one_second_it_does_not_matter_which_was_seen_first() -> None:
    pods = [_annotated(of_job(n), **{MIN_COUNT_ANNOTATION: str(4 - n)}) for n in range(2)]
    assert _made(pods) == _made(pods[::-1])


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "", "9" * 30])
def test_a_wrong_number_is_refused(text: str) -> None:
    pod = _annotated(of_job(0), **{MIN_COUNT_ANNOTATION: text})
    reason = _reason([pod])
    assert reason.startswith(f"pod train-0-abcde: the annotation {MIN_COUNT_ANNOTATION} is ")
    assert reason.endswith("; write a whole number such as 4")


def test_pods_of_another_owner_start_together_as_they_say() -> None:
    annotations = {MIN_COUNT_ANNOTATION: "3"}
    pod = owned("web-x", "apps/v1", "ReplicaSet", "web", annotations=annotations)
    assert _made([pod]).root == PodSet("", 3)


_PARALLEL = _owner(OwnerKind.STATEFUL_SET, "db", {"replicas": 3, "podManagementPolicy": "Parallel"})


def test_a_parallel_stateful_set_starts_as_a_whole() -> None:
    assert _made([of_stateful_set(0)], _PARALLEL).root == PodSet("", 3)


def test_a_minimum_on_its_pods_comes_before_that_of_the_owner() -> None:
    pod = _annotated(of_stateful_set(0), **{MIN_COUNT_ANNOTATION: "2"})
    assert _made([pod], _PARALLEL).root == PodSet("", 2)


def _job_set(*jobs: dict[str, Any]) -> Owner:
    return _owner(OwnerKind.JOB_SET, "train", {"replicatedJobs": list(jobs)})


def _job(name: str, pods: int, template: Any = QUEUED, **more: Any) -> dict[str, Any]:
    return {"name": name, "template": {"spec": {"parallelism": pods, "template": template}}, **more}


def test_all_jobs_of_a_job_set_start_together() -> None:
    owner = _job_set(_job("driver", 1), _job("workers", 4))
    assert _made([of_job_set("workers", 0, 0)], owner).root == _all(
        PodSet("driver", 1), PodSet("workers", 4)
    )


def test_a_group_does_not_wait_for_pods_without_a_queue() -> None:
    owner = _job_set(_job("driver", 1, PLAIN), _job("workers", 4))
    assert _made([of_job_set("workers", 0, 0)], owner).root == PodSet("workers", 4)


def test_pods_that_got_the_queue_in_another_way_belong_to_the_group() -> None:
    owner = _job_set(_job("driver", 1, PLAIN), _job("workers", 4, PLAIN))
    pods = [of_job_set("workers", 0, 0), of_job_set("driver", 0, 0)]
    assert _made(pods, owner).root == _all(PodSet("driver", 1), PodSet("workers", 4))


def test_a_group_does_not_wait_for_pods_that_wait_for_it() -> None:
    owner = _job_set(_job("init", 1), _job("workers", 4, dependsOn=[{"name": "init"}]))
    assert _made([of_job_set("init", 0, 0)], owner).root == PodSet("init", 1)


def test_late_pods_start_together_once_there_are_any() -> None:
    owner = _job_set(_job("init", 1), _job("workers", 4, dependsOn=[{"name": "init"}]))
    pods = [of_job_set("init", 0, 0), of_job_set("workers", 0, 0)]
    assert _made(pods, owner).root == _all(PodSet("init", 1), PodSet("workers", 4))


def test_a_minimum_on_pods_is_that_of_their_pod_set() -> None:
    owner = _job_set(_job("driver", 1), _job("workers", 4))
    worker = _annotated(of_job_set("workers", 0, 0), **{MIN_COUNT_ANNOTATION: "2"})
    assert _made([worker], owner).root == _all(PodSet("driver", 1), PodSet("workers", 2))


def test_pods_of_no_part_of_their_owner_are_optional() -> None:
    owner = _job_set(_job("workers", 4))
    pods = [of_job_set("workers", 0, 0), of_job_set("gone", 0, 0)]
    assert _made(pods, owner).root == _all(PodSet("workers", 4), PodSet("gone", 0))


def _leader_worker_set(**spec: Any) -> Owner:
    template = {"size": 4, "workerTemplate": QUEUED}
    return _owner(OwnerKind.LEADER_WORKER_SET, "serve", {"leaderWorkerTemplate": template, **spec})


def test_each_replica_of_a_leader_worker_set_starts_as_a_whole() -> None:
    group = _made([of_leader_worker_set(1, 0)], _leader_worker_set())
    assert group.key == "team/leaderworkerset/serve-1"
    assert group.root == _all(PodSet("leader", 1), PodSet("worker", 3))


def test_a_leader_starts_alone_where_its_workers_wait_for_it() -> None:
    owner = _leader_worker_set(startupPolicy="LeaderReady")
    assert _made([of_leader_worker_set(0, 0)], owner).root == PodSet("leader", 1)


def test_a_replica_from_before_an_update_keeps_its_size() -> None:
    pods = [of_leader_worker_set(0, n, size=2) for n in range(2)]
    assert _made(pods, _leader_worker_set()).root == _all(PodSet("leader", 1), PodSet("worker", 1))


def test_a_leader_may_be_without_workers() -> None:
    pod = of_leader_worker_set(0, 0, size=1)
    assert _made([pod], _leader_worker_set()).root == PodSet("leader", 1)


def test_replicas_of_a_training_job_start_together() -> None:
    specs = {
        "Master": {"replicas": 1, "template": QUEUED},
        "Worker": {"replicas": 3, "template": QUEUED},
    }
    owner = _owner(OwnerKind.PYTORCH_JOB, "train", {"pytorchReplicaSpecs": specs})
    assert _made([of_pytorch_job("master", 0)], owner).root == _all(
        PodSet("master", 1), PodSet("worker", 3)
    )


def test_a_minimum_of_all_types_makes_one_pod_set() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2}}
    owner = _owner(OwnerKind.PYTORCH_JOB, "train", {"runPolicy": policy})
    pods = [of_pytorch_job("master", 0), of_pytorch_job("worker", 0)]
    assert _made(pods, owner).root == PodSet("", 2)


def test_the_launcher_of_an_mpi_job_starts_with_its_workers() -> None:
    specs = {"Launcher": {"template": QUEUED}, "Worker": {"replicas": 2, "template": QUEUED}}
    owner = _owner(OwnerKind.MPI_JOB, "train", {"mpiReplicaSpecs": specs})
    pods = [of_mpi_job("launcher"), of_mpi_job("worker", 0)]
    assert _made(pods, owner).root == _all(PodSet("launcher", 1), PodSet("worker", 2))


def test_worker_groups_that_may_be_empty_are_optional() -> None:
    groups = [{"groupName": "gpu", "replicas": 2, "template": QUEUED}]
    spec = {
        "headGroupSpec": {"template": QUEUED},
        "workerGroupSpecs": groups,
        "enableInTreeAutoscaling": True,
    }
    owner = _owner(OwnerKind.RAY_CLUSTER, "ray", spec)
    head, worker = of_ray_cluster("headgroup", "a"), of_ray_cluster("gpu", "b")
    assert _made([head], owner).root == PodSet("headgroup", 1)
    assert _made([head, worker], owner).root == _all(PodSet("headgroup", 1), PodSet("gpu", 0))


def _upstream(**policy: Any) -> Owner:
    return _owner(OwnerKind.POD_GROUP, "g", {"schedulingPolicy": policy})


@pytest.mark.parametrize(
    ("policy", "pods", "least"),
    [
        ({"gang": {"minCount": 3}}, 2, 3),
        ({"gang": {"minCount": 3}}, 5, 5),
        ({"basic": {}}, 2, 2),
    ],
)
def test_all_pods_of_a_pod_group_of_scheduling_k8s_io_start_together(
    policy: dict[str, Any], pods: int, least: int
) -> None:
    members = [bare(f"p-{n}", scheduling_group="g") for n in range(pods)]
    assert _made(members, _upstream(**policy)).root == PodSet("", least)


def test_pods_of_a_job_may_be_replaced_as_late_as_after_ten_minutes() -> None:
    assert _made([of_job()]).replacement_delay > 600
    assert _made([bare()]).replacement_delay == 0


def test_a_pod_group_of_scheduling_k8s_io_that_others_join_is_not_evicted() -> None:
    assert _made([bare(scheduling_group="g")], _upstream(basic={})).staleness_grace == math.inf


_PODS = st.one_of(
    st.builds(of_job_set, st.sampled_from(["init", "workers", "gone"]), st.just(0), st.just(0)),
    st.builds(of_leader_worker_set, st.just(0), st.integers(0, 5), st.integers(0, 5)),
    st.builds(of_pytorch_job, st.sampled_from(["master", "worker", ""]), st.just(0)),
    st.builds(of_ray_cluster, st.sampled_from(["headgroup", "gpu", "gone"]), st.just("x")),
)
_OWNERS = {
    each.key.kind: each
    for each in (
        _job_set(_job("init", 1, PLAIN), _job("workers", 4, dependsOn=[{"name": "init"}])),
        _leader_worker_set(startupPolicy="LeaderReady"),
        _owner(
            OwnerKind.PYTORCH_JOB,
            "train",
            {"pytorchReplicaSpecs": {"Master": {"template": PLAIN}, "Worker": {"replicas": 3}}},
        ),
        _owner(OwnerKind.RAY_CLUSTER, "ray", {"workerGroupSpecs": [{"groupName": "gpu"}]}),
    )
}


@given(st.lists(_PODS, min_size=1).map(_of_one_group))
def test_every_pod_is_in_a_pod_set_of_its_group(members: list[GroupMember]) -> None:
    group = group_id_of(members[0])
    assert isinstance(group, OwnedGroup | ReplicaGroup)
    names = {each.name for each in _made(members, _OWNERS[group.owner.kind]).pod_sets}
    assert len(names) == 1 or {place_of(each).pod_set for each in members} <= names


# Pods that have ended ----------------------------------------------------------------------------


def test_pods_that_have_succeeded_are_needed_no_more() -> None:
    pods = [_annotated(of_job(n), **{MIN_COUNT_ANNOTATION: "4"}) for n in range(4)]
    pods[0] = replace(pods[0], succeeded=True)
    assert _made(pods).root == PodSet("", 3)


def test_pods_that_have_failed_are() -> None:
    pods = [_annotated(of_job(n), **{MIN_COUNT_ANNOTATION: "4"}) for n in range(4)]
    pods[0] = replace(pods[0], succeeded=False)
    assert _made(pods).root == PodSet("", 4)


def test_what_has_succeeded_counts_in_its_own_pod_set() -> None:
    owner = _job_set(_job("init", 2), _job("workers", 4))
    pods = [
        replace(of_job_set("init", 0, 0), succeeded=True),
        replace(of_job_set("init", 0, 1), succeeded=True),
        of_job_set("workers", 0, 0),
    ]
    assert _made(pods, owner).root == _all(PodSet("init", 0), PodSet("workers", 4))


def test_pods_of_scheduling_k8s_io_that_have_ended_are_not_waited_for() -> None:
    members = [
        bare("a", scheduling_group="g", succeeded=True),
        bare("b", scheduling_group="g", succeeded=False),
        bare("c", scheduling_group="g"),
    ]
    assert _made(members, _upstream(basic={})).root == PodSet("", 1)


# What pods say of their group --------------------------------------------------------------------


def test_a_group_is_as_old_as_its_oldest_pod() -> None:
    assert _made([of_job(0, created=20), of_job(1, created=10)]).created == 10


def test_a_group_has_the_priority_of_its_pods() -> None:
    group = _made([of_job(0, priority=100, preempts=False)])
    assert (group.priority, group.preempts) == (100, False)


def test_a_group_is_not_evicted_if_a_pod_of_it_must_not_be() -> None:
    pods = [of_job(0), _annotated(of_job(1), **{PREEMPTIBLE_ANNOTATION: "false"})]
    assert not _made(pods).preemptible


_SAYS = {
    says: {} if says is None else {PREEMPTIBLE_ANNOTATION: says} for says in (None, "true", "false")
}


@pytest.mark.parametrize(
    ("started", "waiting", "preemptible"),
    [
        (["true"], ["false"], True),
        ([None], ["false"], True),
        (["false"], ["true"], False),
        (["false"], [None], False),
        (["false", "true"], ["false"], True),
        (["false", "false"], [], False),
        ([], ["false", "true"], False),
        ([], ["true", None], True),
    ],
)
def test_once_pods_have_started_they_say_whether_their_group_may_be_evicted(
    started: list[str | None], waiting: list[str | None], preemptible: bool
) -> None:
    pods = [of_job(n, started=True, annotations=_SAYS[says]) for n, says in enumerate(started)]
    pods += [of_job(n, annotations=_SAYS[says]) for n, says in enumerate(waiting, 10)]
    assert _made(pods).preemptible == preemptible


def test_what_ended_pods_started_as_does_not_matter() -> None:
    pods = [of_job(0, started=True, succeeded=True), of_job(1, annotations=_SAYS["false"])]
    assert not _made(pods).preemptible


def test_a_wrong_annotation_is_refused_though_other_pods_have_started() -> None:
    pods = [of_job(0, started=True), of_job(1, annotations={PREEMPTIBLE_ANNOTATION: "no"})]
    assert "write true or false" in _reason(pods)


def test_a_group_runs_as_long_as_its_longest_pod() -> None:
    pods = [_annotated(of_job(0), **{RUN_TIME_ANNOTATION: t}) for t in ("90m", "1h")]
    assert _made([*pods, of_job(2)]).run_time == 5400


def test_a_group_is_replaced_if_a_pod_of_it_asks_for_that() -> None:
    pods = [_annotated(of_job(0), **{ON_DEVICE_FAILURE_ANNOTATION: "replace"}), of_job(1)]
    assert _made(pods).on_device_failure is OnDeviceFailure.REPLACE
    assert _made(pods[1:]).on_device_failure is OnDeviceFailure.WAIT


@pytest.mark.parametrize(
    ("annotation", "text", "remedy"),
    [
        (PREEMPTIBLE_ANNOTATION, "no", "true or false"),
        (RUN_TIME_ANNOTATION, "soon", "a duration such as 90m"),
        (ON_DEVICE_FAILURE_ANNOTATION, "restart", "wait or replace"),
    ],
)
def test_a_wrong_annotation_is_refused_with_the_remedy(
    annotation: str, text: str, remedy: str
) -> None:
    assert _reason([_annotated(bare("p"), **{annotation: text})]) == (
        f"pod p: the annotation {annotation} is {text!r}; write {remedy}"
    )


def test_pods_of_different_queues_are_refused() -> None:
    pods = [of_job(0), of_job(1)]
    pods[1] = replace(pods[1], labels={**pods[1].labels, QUEUE_LABEL: "sales"})
    assert _reason(pods) == (
        "its pods have different queues: research (pod train-0-abcde), sales (pod train-1-abcde); "
        f"give all of them one value of the label {QUEUE_LABEL}"
    )


def test_pods_of_different_priorities_are_refused() -> None:
    assert _reason([of_job(0), of_job(1, priority=100)]) == (
        "its pods have different priorities: 0 (pod train-0-abcde), 100 (pod train-1-abcde); "
        "give all of them one priorityClassName"
    )


def test_what_pods_said_that_have_ended_does_not_matter() -> None:
    pods = [of_job(0, priority=100, succeeded=False), of_job(1)]
    assert _made(pods).priority == 0


# Owners that are missing or wrong ----------------------------------------------------------------


def test_an_owner_that_was_not_read_is_a_reason() -> None:
    assert _reason([of_stateful_set(0)]) == (
        "statefulset team/db does not exist, or the controller may not read it"
    )


def test_an_owner_that_cannot_be_read_is_a_reason() -> None:
    owner = _owner(OwnerKind.STATEFUL_SET, "db", {"replicas": "three"})
    assert _reason([of_stateful_set(0)], owner) == (
        "StatefulSet db: spec.replicas: is 'three', not an integer"
    )


def test_a_group_without_pods_is_a_reason() -> None:
    found = group_of(group_id_of(of_job(0)), [])
    assert found == RefusedGroup("it has no pods")


# PodGroups of Carina -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Declaration:
    root: SubGroup
    preemptible: bool = True
    staleness_grace: float | None = None
    preemption_delay: float = 0
    run_time: float | None = None
    placement: Policy | None = None
    on_device_failure: OnDeviceFailure = OnDeviceFailure.WAIT


def _declared(
    members: Sequence[GroupMember], declaration: _Declaration | None
) -> Group | RefusedGroup:
    return group_of(group_id_of(members[0]), members, declaration)


def _named(name: str, pod_set: str | None = None, **fields: Any) -> GroupMember:
    labels = {GROUP_LABEL: "mine"} | ({} if pod_set is None else {POD_SET_LABEL: pod_set})
    return bare(name, labels, **fields)


def test_a_pod_group_says_itself_what_it_needs() -> None:
    declaration = _Declaration(
        PodSet("", 8),
        False,
        staleness_grace=5,
        preemption_delay=6,
        run_time=7,
        on_device_failure=OnDeviceFailure.REPLACE,
    )
    assert _declared([_named("a", created=1)], declaration) == Group(
        "team/mine",
        "research",
        PodSet("", 8),
        preemptible=False,
        moves=False,
        created=1,
        staleness_grace=5,
        preemption_delay=6,
        run_time=7,
        on_device_failure=OnDeviceFailure.REPLACE,
    )


def test_annotations_of_the_pods_of_a_pod_group_say_nothing() -> None:
    pod = _annotated(_named("a"), **{PREEMPTIBLE_ANNOTATION: "no", MIN_COUNT_ANNOTATION: "x"})
    found = _declared([pod], _Declaration(PodSet("", 8)))
    assert isinstance(found, Group)


@pytest.mark.parametrize(
    ("declared", "started", "preemptible"),
    [
        (True, [], True),
        (False, [], False),
        (False, ["true"], True),
        (False, ["false"], False),
        (False, ["false", "true"], True),
        (False, [None], True),  # nobody has checked its quota
        (True, ["false"], True),  # it counts as firm all the same: its pods say so
    ],
)
def test_a_pod_group_cannot_take_back_that_its_pods_may_be_evicted(
    declared: bool, started: list[str | None], preemptible: bool
) -> None:
    pods = [_named(f"s-{n}", started=True, annotations=_SAYS[s]) for n, s in enumerate(started)]
    found = _declared([*pods, _named("new")], _Declaration(PodSet("", 8), declared))
    assert isinstance(found, Group)
    assert found.preemptible == preemptible


def test_a_pod_group_that_does_not_exist_is_a_reason() -> None:
    assert _declared([_named("a")], None) == RefusedGroup(
        "PodGroup team/mine does not exist; "
        f"create it, or remove the label {GROUP_LABEL} from the pods"
    )


_TWO = SubGroups("", (PodSet("driver", 1), PodSet("workers", 4)), 2)


@pytest.mark.parametrize(("pod_set", "found"), [(None, "is missing"), ("worker", "is 'worker'")])
def test_a_pod_has_to_name_a_pod_set_if_there_are_several(pod_set: str | None, found: str) -> None:
    assert _declared([_named("a", pod_set)], _Declaration(_TWO)) == RefusedGroup(
        f"pod a: the label {POD_SET_LABEL} {found}; write one of driver, workers"
    )


def test_pods_of_a_pod_group_that_have_succeeded_are_needed_no_more() -> None:
    pods = [_named("a", "driver", succeeded=True), _named("b", "workers")]
    found = _declared(pods, _Declaration(SubGroups("all", (_TWO,), 1)))
    assert isinstance(found, Group)
    lowered = SubGroups("", (PodSet("driver", 0), PodSet("workers", 4)), 2)
    assert found.root == SubGroups("all", (lowered,), 1)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    root: SubGroup = PodSet("p", 1)
    for level in range(20):
        root = SubGroups(str(level), (root,), 1)
    found = _declared([_named("a")], _Declaration(root))
    assert isinstance(found, RefusedGroup)
    assert "more than 16 levels" in found.reason
