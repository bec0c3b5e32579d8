"""What follows when kube-scheduler refuses a pod that the controller has started."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.verdict import (
    DecideAgain,
    GiveUp,
    Keep,
    Strand,
    Verdict,
    devices_are_needed,
    is_about_all_nodes,
    next_verdict,
    verdicts,
)
from controller.engine.model.group import SchedulerRefusal
from controller.engine.model.pod import Gated, Pending
from controller.engine.model.reason import (
    Behind,
    ClosedQueue,
    NoDomain,
    NoRoom,
    OverLimit,
    OverQuota,
    Reason,
)
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import GPU, NOW, Scene, gpu_slice, gpus_of


def refused(*, devices: bool, **fields: Any) -> Mirror:
    """A cluster with a pod that was started on n1, and is refused since now."""
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_queue("q", declared_queue())
    allocation = gpus_of("n1", 0) if devices else None
    mirror.put_claim(decode(ResourceClaim, claim_body("c", allocation=allocation)))
    fields = {"verdict": "no"} | fields
    body = pod_body("p", gates=(), given="n1", claims=["c"], **fields)
    mirror.put_pod(read_pod(body))
    mirror.refresh(NOW)
    return mirror


@pytest.mark.parametrize(
    ("owner", "devices", "seconds", "expected"),
    [
        pytest.param(JOB, True, 4, None, id="pinned, may be transient"),
        pytest.param(JOB, True, 5, GiveUp, id="pinned"),
        pytest.param(JOB, False, 4, None, id="pinned, kube-scheduler may allocate again"),
        pytest.param(JOB, False, 5, GiveUp, id="pinned, taken back"),
        pytest.param(None, True, 60, None, id="not pinned, keeps its devices"),
        pytest.param(None, False, 0, DecideAgain, id="not pinned, taken back"),
    ],
)
def test_what_follows_from_a_refusal(
    owner: dict[str, Any] | None, *, devices: bool, seconds: float, expected: type[Verdict] | None
) -> None:
    mirror = refused(devices=devices, owner=owner)
    found = list(verdicts(mirror, NOW + seconds, 5, is_needed=lambda: False))
    assert [type(each) for each in found] == ([] if expected is None else [expected])
    assert all(not isinstance(each, Keep) and each.node == "n1" for each in found)
    assert next_verdict(mirror, 5) == (None if owner is None else NOW + 5)


@pytest.mark.parametrize(("owner", "state"), [(JOB, Gated()), (None, Pending())])
def test_only_a_pod_that_is_not_pinned_is_decided_again(
    owner: dict[str, Any] | None, state: object
) -> None:
    assert refused(devices=False, owner=owner).state.occupancy.pods["t/p"].state == state


def test_a_refused_pod_that_has_ended_is_left_alone() -> None:
    mirror = refused(devices=True, owner=JOB, phase="Failed")
    assert list(verdicts(mirror, NOW + 60, 5, is_needed=lambda: False)) == []
    assert next_verdict(mirror, 5) is None


def test_the_loop_wakes_for_the_first_of_several_refusals() -> None:
    mirror = refused(devices=True, owner=JOB)
    mirror.refresh(NOW + 2)
    later = pod_body("later", gates=(), given="n1", verdict="no", owner=JOB)
    mirror.put_pod(read_pod(later))
    mirror.refresh(NOW + 2)
    assert next_verdict(mirror, 5) == NOW + 5


def test_a_pod_that_is_bound_after_all_is_not_evicted() -> None:
    mirror = refused(devices=True, owner=JOB)
    bound = pod_body("p", gates=(), given="n1", node="n1", claims=["c"], owner=JOB, version=2)
    mirror.put_pod(read_pod(bound))
    assert list(verdicts(mirror, NOW + 60, 5, is_needed=lambda: False)) == []


def test_a_refusal_that_is_repeated_lasts_since_the_first() -> None:
    mirror = refused(devices=True, owner=JOB)
    mirror.refresh(NOW + 3)
    again = pod_body("p", gates=(), given="n1", verdict="no", claims=["c"], owner=JOB, version=2)
    mirror.put_pod(read_pod(again))
    assert next_verdict(mirror, 5) == NOW + 5


ALL_NODES = '0/4 nodes are available: persistentvolumeclaim "data" not found.'


@pytest.mark.parametrize(
    ("words", "is_about_all"),
    [
        (ALL_NODES, True),
        ("0/4 nodes are available: 1 Insufficient cpu, 3 node(s) had taints.", False),
        ("0/4 nodes are available: ", True),
        ("no", False),
        ("", False),
    ],
)
def test_a_reason_with_a_number_of_nodes_depends_on_the_node(
    words: str, *, is_about_all: bool
) -> None:
    assert is_about_all_nodes(words) is is_about_all


@pytest.mark.parametrize(
    ("words", "devices", "is_needed", "expected"),
    [
        pytest.param(ALL_NODES, True, False, Keep, id="no other node would do"),
        pytest.param(ALL_NODES, True, True, GiveUp, id="others need the devices"),
        pytest.param(ALL_NODES, False, False, GiveUp, id="it has none any more"),
        pytest.param("0/4 nodes are available: 4 full", True, False, GiveUp, id="the node"),
    ],
)
def test_a_pinned_pod_stays_where_no_other_node_would_do_and_nobody_needs_its_devices(
    words: str, *, devices: bool, is_needed: bool, expected: type[Verdict]
) -> None:
    mirror = refused(devices=devices, owner=JOB, verdict=words)
    (found,) = verdicts(mirror, NOW + 5, 5, is_needed=lambda: is_needed)
    assert type(found) is expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (NoRoom("t/new-0", 1, ()), True),
        (NoDomain("rack", 1), True),
        (OverLimit("q", GPU, 1, 1, 1), True),
        (OverQuota("q", GPU, 1, 1, 1), True),
        (Behind("t/other"), False),
        (ClosedQueue("q"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_devices_are_needed_by_who_waits_for_room(reason: Reason, *, expected: bool) -> None:
    scene = Scene().node("n").queue("q").waits("new")
    plan = replace(scene.plan(), waiting={"new": (Behind("t/other"), reason)})
    assert devices_are_needed(scene.state().occupancy, plan) is expected


def test_they_are_not_needed_by_groups_that_are_gone_or_refused_themselves() -> None:
    room = (NoRoom("t/new-0", 1, ()),)
    scene = Scene().node("n").queue("q").waits("new")
    plan = replace(scene.plan(), waiting={"new": room, "gone": room})
    scene.groups["new"] = replace(
        scene.groups["new"], refusal=SchedulerRefusal("", holds=False, evicts=True)
    )
    assert not devices_are_needed(scene.state().occupancy, plan)
    assert not devices_are_needed(scene.state().occupancy, None)


# Pods whose devices kube-scheduler chooses -------------------------------------------------------


def gang(least: int = 2, *, owner: dict[str, Any] | None = JOB, **second: Any) -> Mirror:
    """Two pods that were sent to kube-scheduler; it refuses the first."""
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    made = DeviceClass(ObjectMeta(name="gpu"))
    spec = replace(made.spec, extended_resource_name="nvidia.com/gpu")
    mirror.put_devices(replace(made, spec=spec))
    mirror.put_queue("q", declared_queue())
    mirror.put_node(Scene().node("n1").nodes["n1"])
    mirror.put_devices(gpu_slice("n1", 2))
    containers = [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
    said = {"scheduling.carina.dev/min-count": str(least)}
    said["scheduling.carina.dev/started-with"] = str(least)
    for name, more in (("p", {"verdict": "no"}), ("mate", second)):
        fields: dict[str, Any] = {"gates": (), "given": "n1", "owner": owner, **more}
        body = pod_body(name, containers=containers, annotations=said, **fields)
        if owner is None:
            pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            terms = {REQUIRED: {"nodeSelectorTerms": [pin]}}
            body["spec"]["affinity"] = {"nodeAffinity": terms}
        mirror.put_pod(read_pod(body))
    mirror.refresh(NOW)
    return mirror


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def judged(mirror: Mirror, seconds: float = 5) -> list[Verdict]:
    return list(verdicts(mirror, NOW + seconds, 5, is_needed=lambda: False))


@pytest.mark.parametrize(
    "second", [{}, {"node": "n1"}], ids=["sent to kube-scheduler", "bound to its node"]
)
def test_a_gang_goes_with_a_pod_that_gets_no_device(second: dict[str, Any]) -> None:
    [verdict] = judged(gang(**second))
    assert isinstance(verdict, GiveUp)
    assert [mate.name for mate in verdict.mates] == ["mate"]


def test_a_pod_that_its_group_does_not_need_goes_alone() -> None:
    [verdict] = judged(gang(least=1))
    assert isinstance(verdict, GiveUp)
    assert not verdict.mates


def test_the_pods_of_a_gang_that_have_not_started_stay() -> None:
    [verdict] = judged(gang(gates=("scheduling.carina.dev/queue",), given=None))
    assert isinstance(verdict, GiveUp)
    assert not verdict.mates


def test_a_gang_stays_while_the_refusal_may_be_transient() -> None:
    assert not judged(gang(), seconds=4)


def test_a_pod_that_nobody_replaces_is_stranded_once() -> None:
    mirror = gang(least=1, owner=None)
    [verdict] = judged(mirror)
    assert isinstance(verdict, Strand)
    assert verdict.node == "n1"
    mirror.kept.add("t/p")
    assert not judged(mirror)


@pytest.mark.parametrize(("reason", "counts"), [("SchedulerError", True), ("Other", False)])
def test_a_claim_that_kube_scheduler_cannot_make_counts_as_refusal(
    reason: str, *, counts: bool
) -> None:
    requests = {"requests": {"nvidia.com/gpu": "1"}}
    body = pod_body("p", verdict="quota", containers=[{"name": "main", "resources": requests}])
    body["status"]["conditions"][0]["reason"] = reason
    assert (read_pod(body).verdict == "quota") == counts
    body["spec"]["containers"] = [{"name": "main"}]
    assert read_pod(body).verdict is None
