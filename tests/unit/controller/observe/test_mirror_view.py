"""What a mirror tells the engine of what it has seen, and of what is being written."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.api.pod_group import DeclaredGroup
from controller.engine.model.group import PodSet
from controller.engine.model.label_selector import LabelSelector, with_labels
from controller.engine.model.plan import BudgetClock, CarriedOver
from controller.engine.model.pod import Evicting, Gated, Pending, Placed, Pod
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import PREEMPTIBLE_ANNOTATION
from controller.observe.budget import DisruptionBudget
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import GPU, NOW, Scene, gpu_slice, gpus_of

GIVEN = gpus_of("n1", 0)
ENDLESS = 3_000_000_000
"""Seconds of a grace period."""


def mirror() -> Mirror:
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    mirror.put_node(Scene().node("n1").nodes["n1"])
    mirror.put_devices(gpu_slice("n1", 4))
    mirror.put_queue("q", declared_queue())
    return mirror


def known(mirror: Mirror, pod: str) -> Pod:
    """A pod as the engine knows it."""
    return mirror.state.occupancy.pods[pod]


def pod(name: str = "p", **fields: object) -> ObservedPod:
    return read_pod(pod_body(name, **fields))  # type: ignore[arg-type]


def claim(name: str = "c", **fields: object) -> ResourceClaim:
    return decode(ResourceClaim, claim_body(name, **fields))  # type: ignore[arg-type]


def test_a_pod_that_the_gate_holds_waits_for_a_place() -> None:
    seen = mirror()
    seen.put_pod(pod())
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Pending()


def test_a_pod_that_names_the_owner_of_others_does_not_replace_their_pods() -> None:
    view = mirror()
    mine, theirs, other = (pod_body(name, owner=JOB) for name in ("mine", "theirs", "other"))
    theirs["metadata"]["namespace"] = "u"
    other["metadata"]["labels"][QUEUE_LABEL] = "r"
    for body in (mine, theirs, other, pod_body("also", owner=JOB)):
        view.put_pod(read_pod(body))
    view.refresh(NOW)
    assert known(view, "t/mine").line == known(view, "t/also").line
    assert known(view, "t/mine").line != known(view, "u/theirs").line
    assert known(view, "t/mine").line != known(view, "t/other").line


def test_a_pod_with_a_gate_of_somebody_else_does_not() -> None:
    seen = mirror()
    seen.put_pod(pod(gates=("scheduling.carina.dev/queue", "other")))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Gated()


def test_a_pod_that_loses_the_label_is_not_decided_on() -> None:
    seen = mirror()
    seen.put_pod(pod())
    seen.put_pod(pod(queue=None, version=2))
    seen.refresh(NOW)
    assert not seen.state.occupancy.pods
    assert not seen.state.occupancy.groups


def test_a_claim_that_is_being_written_counts_even_if_its_pod_goes() -> None:
    seen = mirror()
    seen.put_claim(claim())
    seen.put_pod(pod(claims=["c"]))
    start = {"t/p": Assumed("n1", {"t/c": GIVEN})}
    seen.assume("t/p", start["t/p"])
    seen.remove_pod(pod())
    seen.put_pod(pod(uid="new", version=2, claims=["c"]))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Pending()
    assert seen.state.occupancy.claims["t/c"].status.allocation == GIVEN
    seen.forget(start)
    seen.refresh(NOW)
    assert seen.state.occupancy.claims["t/c"].status.allocation is None


def test_an_answer_about_a_claim_that_was_created_again_is_too_late() -> None:
    seen = mirror()
    seen.put_claim(claim(uid="old"))
    seen.put_claim(claim(uid="new", version=5))
    seen.put_claim(claim(uid="old", version=3, allocation=GIVEN))
    seen.refresh(NOW)
    assert seen.claims["t/c"].metadata.uid == "new"


def test_a_tentative_allocation_is_offered_as_a_promise() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod(claims=["c"]))
    seen.refresh(NOW)
    assert seen.state.occupancy.claims["t/c"].status.allocation is None
    assert [one.pod for one in seen.state.memory.nominations] == ["t/p"]


def test_a_claim_of_a_pod_that_runs_is_in_effect_for_the_others() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod(claims=["c"]))
    seen.put_pod(pod("runs", claims=["c"], gates=(), node="n1"))
    seen.refresh(NOW)
    assert seen.state.occupancy.claims["t/c"].status.allocation == GIVEN


def test_devices_that_are_taken_back_are_in_use_until_they_are() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod(claims=["c"]))
    seen.release("t/c")
    seen.refresh(NOW)
    assert seen.state.occupancy.claims["t/c"].status.allocation == GIVEN
    assert known(seen, "t/p").state == Gated()
    seen.put_claim(claim(version=2))
    seen.end_release(claim(version=2), NOW)
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Pending()


def test_an_answer_about_a_claim_that_was_created_again_does_not_end_its_release() -> None:
    seen = mirror()
    before = claim(uid="old", allocation=GIVEN, reserved_for=["p"])
    seen.put_claim(before)
    seen.put_pod(pod(claims=["c"]))
    seen.release("t/c")
    seen.put_claim(claim(uid="new", version=2, allocation=GIVEN, reserved_for=["p"]))
    seen.release("t/c")
    seen.end_release(before, NOW)
    seen.refresh(NOW)
    assert seen.state.occupancy.claims["t/c"].status.allocation == GIVEN
    assert not seen.tentative()


def test_a_group_that_met_a_race_keeps_what_is_written() -> None:
    for keeps, allocation in ((True, GIVEN), (False, None)):
        seen = mirror()
        seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
        seen.put_pod(pod(claims=["c"]))
        seen.hold_back("t/pod/p", NOW + 1, keeps=keeps)
        seen.refresh(NOW)
        assert known(seen, "t/p").state == Gated()
        assert seen.state.occupancy.claims["t/c"].status.allocation == allocation
        assert seen.wake == NOW + 1
        seen.refresh(NOW + 1)
        assert known(seen, "t/p").state == Pending()
        assert set(seen.tentative()) == {"t/c"}


def test_a_node_is_avoided_by_the_pods_that_replace_those_that_were_refused() -> None:
    seen = mirror()
    seen.put_pod(pod("train-a", owner=JOB))
    seen.avoid("t/job/train", "n1", NOW + 10)
    seen.remove_pod(pod("train-a", owner=JOB))
    seen.refresh(NOW)
    seen.put_pod(pod("train-b", owner=JOB))
    seen.refresh(NOW + 5)
    assert known(seen, "t/train-b").needs.affinity is not None
    seen.refresh(NOW + 10)
    assert known(seen, "t/train-b").needs.affinity is None
    assert not seen._deferrals


def test_a_node_is_avoided_for_its_time_though_something_else_of_the_group_ends_before() -> None:
    seen = mirror()
    seen.put_pod(pod())
    seen.avoid("t/pod/p", "n1", NOW + 10)
    seen.hold_back("t/pod/p", NOW + 1, keeps=True)
    seen.refresh(NOW + 1)
    assert known(seen, "t/p").state == Pending()
    assert known(seen, "t/p").needs.affinity is not None
    assert seen.wake == NOW + 10
    seen.refresh(NOW + 10)
    assert known(seen, "t/p").needs.affinity is None


def test_what_is_remembered_of_groups_ends_with_its_time() -> None:
    seen = mirror()
    for number in range(100):
        seen.hold_back(f"t/pod/{number}", NOW + 1, keeps=True)
        seen.avoid(f"t/pod/{number}", "n1", NOW + 1)
    seen.refresh(NOW + 1)
    assert (len(seen._deferrals), seen.wake) == (0, None)


def test_only_pods_of_queues_are_judged_by_what_kube_scheduler_says() -> None:
    seen = mirror()
    refused = {"gates": (), "given": "n1", "verdict": "no", "owner": JOB}
    seen.put_pod(pod("mine", **refused))
    seen.put_pod(pod("other", queue=None, **refused))
    assert set(seen.refused) == {"t/mine"}


def test_a_pod_that_does_not_end_is_stuck_after_a_time() -> None:
    seen = mirror()
    seen.put_pod(pod(gates=(), node="n1", deleted="2026-01-01T00:00:00Z"))
    ended = pod(gates=(), node="n1", deleted="2026-01-01T00:00:00Z").deleted
    assert ended is not None
    seen.refresh(ended)
    assert known(seen, "t/p").state == Evicting("n1", charged=True)
    assert seen.wake is not None
    seen.refresh(seen.wake)
    assert known(seen, "t/p").state == Evicting("n1", stuck=True)


def test_a_pod_that_is_deleted_with_an_endless_grace_period_stays_charged() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    deleted = datetime.fromtimestamp(NOW, UTC)
    end = deleted + timedelta(seconds=ENDLESS)
    gone = pod(claims=["c"], gates=(), node="n1", deleted=end.isoformat(), grace=ENDLESS)
    seen.put_pod(gone)
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Evicting("n1", stuck=True, lingers=True)
    assert seen.state.occupancy.accounts.allocated["q"] == (1,)
    assert seen.wake is None


def test_a_pod_that_is_made_to_end_sooner_is_leaving_for_the_grace_of_its_queue() -> None:
    seen = mirror()
    seen.put_queue("q", declared_queue(eviction_grace=10))
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=ENDLESS)
    seen.put_pod(pod(gates=(), node="n1", deleted=end.isoformat(), grace=ENDLESS))
    seen.refresh(NOW + 1000)
    assert known(seen, "t/p").state == Evicting("n1", stuck=True, lingers=True)
    seen.assume_evicted("t/p")
    seen.refresh(NOW + 1000)
    assert known(seen, "t/p").state == Evicting("n1")
    assert seen.wake == NOW + 1000 + 10 + 60
    seen.refresh(seen.wake)
    assert known(seen, "t/p").state == Evicting("n1", stuck=True, lingers=True)


def test_an_evicted_pod_is_leaving_for_the_grace_of_its_queue_at_most() -> None:
    seen = mirror()
    seen.put_pod(pod(gates=(), node="n1"))
    seen.refresh(NOW)
    seen.assume_evicted("t/p")
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=3600)
    gone = pod(version=2, gates=(), node="n1", deleted=end.isoformat(), grace=3600)
    seen.put_pod(gone)
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Evicting("n1")
    assert seen.wake == NOW + 600 + 60


def test_a_queue_that_changes_its_grace_changes_how_long_its_pods_are_believed_to_leave() -> None:
    seen = mirror()
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=120)
    seen.put_pod(pod(gates=(), node="n1", deleted=end.isoformat(), grace=120))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Evicting("n1", charged=True)
    seen.put_queue("q", declared_queue(eviction_grace=10))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Evicting("n1", stuck=True, lingers=True)


def test_an_eviction_of_a_pod_of_the_same_name_is_none_of_the_new_one() -> None:
    seen = mirror()
    before = pod(gates=(), node="n1")
    seen.put_pod(before)
    seen.assume_evicted("t/p")
    seen.put_pod(pod(uid="new", version=2, gates=(), node="n1"))
    seen.forget_eviction(before, NOW + 5)
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Placed("n1")
    assert known(seen, "t/p").budgets == ()


def refused_eviction() -> Mirror:
    """A mirror with a pod that the API server refuses to evict for 5 seconds."""
    seen = mirror()
    running = pod(gates=(), node="n1")
    seen.put_pod(running)
    seen.assume_evicted("t/p")
    seen.forget_eviction(running, NOW + 5)
    seen.refresh(NOW)
    return seen


def test_a_pod_can_be_chosen_for_eviction_again_some_time_after_a_refusal() -> None:
    seen = refused_eviction()
    (budget,) = known(seen, "t/p").budgets
    assert seen.state.occupancy.budgets[budget] == 0
    assert seen.wake == NOW + 5
    seen.refresh(NOW + 5)
    assert known(seen, "t/p").budgets == ()


def test_a_pod_may_be_evicted_though_one_of_its_name_was_not_just_before() -> None:
    seen = refused_eviction()
    seen.remove_pod(pod())
    seen.put_pod(pod(uid="new", version=2, gates=(), node="n1"))
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ()
    assert seen.may_be_evicted("t/p")


def test_a_pod_whose_eviction_was_refused_is_counted_by_its_budgets_too() -> None:
    seen = refused_eviction()
    seen.put_budget("t", "t/b", DisruptionBudget("t", "b", LabelSelector(), 1))
    seen.refresh(NOW)
    assert "t/b" in known(seen, "t/p").budgets


@pytest.mark.parametrize(("grace", "lingers"), [(10, False), (11, True)])
def test_a_queue_may_allow_less_than_what_is_left_at_least_of_the_grace(
    grace: int, *, lingers: bool
) -> None:
    seen = mirror()
    seen.put_queue("q", declared_queue(eviction_grace=10))
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=grace)
    seen.put_pod(pod(gates=(), node="n1", deleted=end.isoformat(), grace=grace))
    seen.refresh(NOW)
    expected = Evicting("n1", stuck=lingers, lingers=lingers, charged=not lingers)
    assert known(seen, "t/p").state == expected


@pytest.mark.parametrize(
    ("since", "groups", "grace", "lingers"),
    [
        (500, ("u/new",), 101, True),
        (500, ("u/new",), 100, False),
        (599, ("u/new",), 31, True),
        (599, ("u/new",), 30, False),
        (500, (), 600, False),
    ],
)
def test_a_pod_that_is_deleted_behind_a_budget_has_what_is_left_of_the_grace(
    since: float, groups: tuple[str, ...], grace: int, *, lingers: bool
) -> None:
    seen = mirror()
    clock = BudgetClock(NOW - since, groups)
    seen.state.memory = CarriedOver(budget_refusals={"u": {"q": clock}})
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=grace)
    seen.put_pod(pod(gates=(), node="n1", deleted=end.isoformat(), grace=grace))
    seen.refresh(NOW)
    expected = Evicting("n1", stuck=lingers, lingers=lingers, charged=not lingers)
    assert known(seen, "t/p").state == expected


def test_no_budget_keeps_a_pod_that_is_being_deleted() -> None:
    seen = mirror()
    seen.put_budget("t", "t/b", DisruptionBudget("t", "b", LabelSelector(), 0))
    end = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=ENDLESS)
    seen.put_pod(pod(gates=(), node="n1", deleted=end.isoformat(), grace=ENDLESS))
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ()


def test_a_budget_that_selects_others_counts_them() -> None:
    seen = mirror()
    seen.put_pod(pod(gates=(), node="n1", labels={"app": "a"}))
    seen.put_budget("t", "t/b", DisruptionBudget("t", "b", with_labels({"app": "b"}), 1))
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ()
    seen.put_budget("t", "t/b", DisruptionBudget("t", "b", with_labels({"app": "a"}), 1))
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ("t/b",)


def test_the_end_of_a_pod_is_none_of_one_of_the_same_name() -> None:
    seen = mirror()
    seen.put_pod(pod(uid="new", version=2, gates=(), node="n1"))
    seen.remove_pod(pod(uid="old"))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Placed("n1")


def test_a_pod_that_was_created_again_uses_its_new_claims_only() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod(claims=["c"], gates=(), node="n1"))
    seen.refresh(NOW)
    seen.put_pod(pod(uid="new", version=2, claims=["d"]))
    seen.refresh(NOW)
    assert not list(seen.users_of("t/c"))
    assert Evicting("n1") in [each.state for each in seen.state.occupancy.pods.values()]


def test_versions_are_compared_as_numbers() -> None:
    seen = mirror()
    seen.put_claim(claim(version=9))
    seen.put_claim(claim(version=10, allocation=GIVEN))
    assert seen.claims["t/c"].status.allocation == GIVEN


def test_a_pod_that_never_had_the_gate_is_not_decided_on() -> None:
    seen = mirror()
    seen.put_claim(claim())
    seen.put_pod(pod(claims=["c"], gates=()))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Gated()


def test_a_pod_that_lost_one_of_its_claims_is_decided_again() -> None:
    seen = mirror()
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.put_claim(claim("d"))
    seen.put_pod(pod(claims=["c", "d"], gates=(), given="n1"))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Pending()


def test_a_pod_without_a_queue_holds_its_node_until_it_ends() -> None:
    seen = mirror()
    other: dict[str, Any] = {"queue": None, "gates": (), "node": "n1"}
    seen.put_pod(pod(**other))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Placed("n1")
    seen.put_pod(pod(**other, deleted=datetime.fromtimestamp(NOW, UTC).isoformat(), version=2))
    seen.refresh(NOW)
    assert known(seen, "t/p").state == Evicting("n1")
    seen.put_pod(pod(**other, phase="Succeeded", version=3))
    seen.refresh(NOW)
    assert not seen.state.occupancy.pods


def test_a_release_that_is_tried_again_ends_with_its_last_try() -> None:
    seen = mirror()
    given = claim(allocation=GIVEN, reserved_for=["p"])
    seen.put_claim(given)
    seen.put_pod(pod(claims=["c"]))
    for seconds in (1, 5):
        seen.release("t/c")
        seen.end_release(given, NOW + seconds)
    seen.refresh(NOW + 1)
    assert not seen.tentative()
    assert seen.wake == NOW + 5
    seen.refresh(NOW + 5)
    assert set(seen.tentative()) == {"t/c"}


def test_a_group_is_held_back_for_its_time_though_it_avoids_a_node_for_less() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod(claims=["c"]))
    seen.avoid("t/pod/p", "n1", NOW + 1)
    seen.hold_back("t/pod/p", NOW + 10, keeps=False)
    seen.refresh(NOW + 1)
    assert known(seen, "t/p").state == Gated()
    assert set(seen.tentative()) == {"t/c"}, "it does not keep its devices meanwhile"


def test_a_budget_counts_the_pods_of_its_namespace() -> None:
    seen = mirror()
    seen.put_pod(pod(gates=(), node="n1"))
    seen.refresh(NOW)
    seen.put_budget("t", "t/b", DisruptionBudget("t", "b", LabelSelector(), 1))
    seen.put_budget("u", "u/b", DisruptionBudget("u", "b", LabelSelector(), 1))
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ("t/b",)
    seen.put_budget("t", "t/b", None)
    seen.refresh(NOW)
    assert known(seen, "t/p").budgets == ()


def test_the_status_of_a_queue_changes_nothing() -> None:
    seen = mirror()
    seen.put_pod(pod())
    seen.refresh(NOW)
    seen.put_queue("q", declared_queue())
    assert not seen.refresh(NOW)


def test_devices_of_a_pod_that_is_gone_are_about_to_become_free() -> None:
    seen = mirror()
    running = pod("p", claims=["c"], gates=(), node="n1")
    seen.put_pod(running)
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.remove_pod(running)
    seen.refresh(NOW)
    [leaver] = seen.state.occupancy.pods.values()
    assert (leaver.state, leaver.claims) == (Evicting("n1"), ("t/c",))
    seen.put_claim(claim("c", version=9))
    seen.refresh(NOW)
    assert not seen.state.occupancy.pods


def test_devices_of_a_pod_that_has_ended_are_about_to_become_free() -> None:
    seen = mirror()
    seen.put_pod(pod("p", claims=["c"], gates=(), node="n1"))
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.refresh(NOW)
    assert set(seen.state.occupancy.pods) == {"t/p"}
    seen.put_pod(pod("p", claims=["c"], gates=(), node="n1", phase="Succeeded", version=2))
    seen.refresh(NOW)
    assert Evicting("n1") in [each.state for each in seen.state.occupancy.pods.values()]


def test_devices_of_a_pod_that_has_failed_are_about_to_become_free() -> None:
    seen = mirror()
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(pod("p", claims=["c"], gates=(), node="n1", phase="Failed"))
    seen.refresh(NOW)
    assert Evicting("n1") in [each.state for each in seen.state.occupancy.pods.values()]


def test_devices_that_nobody_takes_back_from_a_claim_are_in_use_after_a_time() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["gone"]))
    seen.refresh(NOW)
    assert seen.wake == NOW + 60
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["gone"], version=2))
    seen.refresh(NOW + 59)
    assert [each.state for each in seen.state.occupancy.pods.values()] == [Evicting("n1")]
    seen.refresh(NOW + 60)
    assert not seen.state.occupancy.pods
    assert seen.state.occupancy.cluster.allocation("t/c") == GIVEN
    assert seen.wake is None


def test_devices_that_are_reserved_for_nobody_are_in_use() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN))
    seen.refresh(NOW)
    assert not seen.state.occupancy.pods
    assert seen.state.occupancy.cluster.allocation("t/c") == GIVEN


def test_devices_are_waited_for_again_when_other_pods_have_used_them() -> None:
    seen = mirror()
    seen.put_claim(claim(allocation=GIVEN, reserved_for=["p"]))
    seen.refresh(NOW)
    seen.put_pod(pod("p", claims=["c"], gates=(), node="n1"))
    seen.refresh(NOW + 60)
    seen.remove_pod(pod("p"))
    seen.refresh(NOW + 61)
    assert [each.state for each in seen.state.occupancy.pods.values()] == [Evicting("n1")]
    assert seen.wake == NOW + 61 + 60


def test_a_pod_that_is_gone_stays_so_however_many_go_at_once() -> None:
    seen = mirror()
    seen.put_pod(pod("first"))
    seen.remove_pod(pod("first"))
    for number in range(20_000):
        seen.remove_pod(replace(pod("other"), uid=str(number)))
    seen.refresh(NOW + 30)
    seen.put_pod(pod("first", version=2))
    assert not seen.pods


def test_who_is_gone_is_not_remembered_for_longer_than_an_answer_may_take() -> None:
    seen = mirror()
    seen.put_pod(pod())
    seen.remove_pod(pod())
    seen.put_claim(claim())
    seen.remove_claim(claim())
    seen.refresh(NOW + 60)
    assert not seen._watched._gone


def test_a_claim_that_stands_for_itself_leaves_nothing_behind() -> None:
    seen = mirror()
    alone = claim(labels={QUEUE_LABEL: "q"})
    seen.put_claim(alone)
    seen.refresh(NOW)
    (key,) = seen.state.occupancy.pods
    start = {key: Assumed("n1", {"t/c": GIVEN})}
    seen.assume(key, start[key])
    seen.forget(start)
    seen.remove_claim(alone)
    seen.refresh(NOW)
    assert not seen._refusals._last_node


def test_pods_that_run_count_for_their_queue_though_their_group_is_refused() -> None:
    seen = mirror()
    seen.put_pod(pod("runs", gates=(), node="n1", owner=JOB))
    seen.refresh(NOW)
    seen.put_pod(pod("other", owner=JOB, priority=7))
    seen.refresh(NOW)
    [group] = seen.roster.refused
    assert seen.state.occupancy.groups[group].queue == "q"
    assert known(seen, "t/runs").group == group
    assert known(seen, "t/other").state == Gated()


def firm(mirror: Mirror) -> int:
    """How many GPUs count against the quota for what is not preemptible."""
    mirror.refresh(NOW)
    at = mirror.state.occupancy.tree.resources.index(GPU)
    return mirror.state.occupancy.accounts.firm["q"][at]


def started(name: str, says: str, **fields: object) -> ObservedPod:
    annotations = {PREEMPTIBLE_ANNOTATION: says}
    return pod(name, gates=(), node="n1", claims=["c"], annotations=annotations, **fields)


def declared(*, preemptible: bool) -> DeclaredGroup:
    return DeclaredGroup("t", "g", "u", 1, NOW, PodSet("", 1), preemptible=preemptible)


def test_what_started_as_firm_counts_as_firm_whatever_its_group_is_now() -> None:
    seen = mirror()
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(started("p", "false", group="g"))
    seen.declare("t/g", declared(preemptible=True))
    assert (firm(seen), seen.state.occupancy.groups["t/g"].preemptible) == (1, True)
    seen.declare("t/g", declared(preemptible=False))
    assert (firm(seen), seen.state.occupancy.groups["t/g"].preemptible) == (1, False)


def test_what_started_as_firm_counts_as_firm_though_its_group_is_refused() -> None:
    seen = mirror()
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(started("p", "false", group="g"))
    assert (firm(seen), seen.state.occupancy.groups["t/g"].preemptible) == (1, False)
    assert set(seen.roster.refused) == {"t/g"}


def test_a_group_that_is_refused_is_not_firm_if_it_has_not_started_so() -> None:
    seen = mirror()
    seen.put_claim(claim("c", allocation=GIVEN, reserved_for=["p"]))
    seen.put_pod(started("p", "true", group="g"))
    assert (firm(seen), seen.state.occupancy.groups["t/g"].preemptible) == (0, True)


def test_what_is_being_started_as_firm_counts_as_firm_whatever_its_group_is_now() -> None:
    seen = mirror()
    seen.put_claim(claim("c"))
    seen.put_pod(pod("p", claims=["c"], group="g"))
    seen.declare("t/g", declared(preemptible=True))
    seen.assume("t/p", Assumed("n1", {"t/c": GIVEN}, preemptible=False))
    assert firm(seen) == 1
