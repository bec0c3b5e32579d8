"""The status of a PodGroup, from the pods of the group and the last plan."""

from collections.abc import Sequence

import pytest

from controller.api.pod_group import GroupPhase, PodCounts, PodGroupStatus
from controller.engine.model.group import Group, PodSet, SubGroups
from controller.engine.model.plan import Nomination
from controller.engine.model.pod import (
    Ended,
    Evicting,
    Gated,
    Pending,
    Placed,
    Pod,
    PodNeeds,
    PodState,
)
from controller.engine.model.reason import NoRoom
from controller.report.group_status import (
    Nominated,
    NothingWanted,
    Outlook,
    Waits,
    empty_status,
    group_status,
    outlooks,
    refused_status,
    starting,
)
from tests.unit.controller.engine.scene import Scene

_PENDING = Pending()
_PLACED = Placed("n")
_SUCCEEDED, _FAILED = Ended(succeeded=True), Ended(succeeded=False)
_WAITS = Waits((NoRoom("t/p", 4, (("devices", 4),)),))
_SETTLED = NothingWanted()
_GANG = Group("t/g", "q", PodSet("", 2))


def pods(*states: PodState, pod_set: str = "") -> list[Pod]:
    return [
        Pod(f"t/{pod_set}{index}", PodNeeds(), state, "t/g", pod_set)
        for index, state in enumerate(states)
    ]


def conditions(status: PodGroupStatus) -> dict[str, tuple[bool, str]]:
    return {one.type: (one.holds, one.reason) for one in status.conditions}


@pytest.mark.parametrize(
    ("states", "outlook", "phase", "expected"),
    [
        ([_PENDING] * 2, _WAITS, GroupPhase.PENDING, {"Admitted": (False, "NoRoom")}),
        ([_PENDING] * 2, Nominated(("n",)), GroupPhase.PENDING, {"Admitted": (False, "Nominated")}),
        ([_PENDING] * 2, _SETTLED, GroupPhase.PENDING, {"Admitted": (False, "NotDecided")}),
        ([Gated(), Gated()], _SETTLED, GroupPhase.PENDING, {"Admitted": (False, "PodsNotReady")}),
        ([_PLACED], _SETTLED, GroupPhase.PENDING, {"Admitted": (False, "TooFewPods")}),
        (
            [_PLACED, Evicting("n")],
            _SETTLED,
            GroupPhase.PENDING,
            {"Admitted": (False, "TooFewPods")},
        ),
        ([], _SETTLED, GroupPhase.PENDING, {"Admitted": (False, "NoPods")}),
        (
            [_PLACED] * 2,
            _SETTLED,
            GroupPhase.RUNNING,
            {"Admitted": (True, "Placed"), "AllPodsPlaced": (True, "Placed")},
        ),
        (
            [_PLACED, _PLACED, _PENDING],
            _WAITS,
            GroupPhase.RUNNING,
            {"Admitted": (True, "Placed"), "AllPodsPlaced": (False, "NoRoom")},
        ),
        (
            [_PLACED, _SUCCEEDED],
            _SETTLED,
            GroupPhase.RUNNING,
            {"Admitted": (True, "Placed"), "AllPodsPlaced": (True, "Placed")},
        ),
        (
            [_SUCCEEDED, _FAILED, _SUCCEEDED],
            _SETTLED,
            GroupPhase.SUCCEEDED,
            {"Admitted": (False, "Succeeded")},
        ),
        ([_SUCCEEDED, _FAILED], _SETTLED, GroupPhase.FAILED, {"Admitted": (False, "Failed")}),
    ],
)
def test_phase_and_conditions(
    states: Sequence[PodState],
    outlook: Outlook,
    phase: GroupPhase,
    expected: dict[str, tuple[bool, str]],
) -> None:
    status = group_status(_GANG, pods(*states), outlook)
    assert (status.phase, conditions(status)) == (phase, expected)


def test_every_pod_set_needs_its_minimum() -> None:
    root = SubGroups("", (PodSet("leader", 1), PodSet("worker", 2)), 2)
    group = Group("t/g", "q", root)
    workers = pods(_PLACED, _PLACED, _PLACED, pod_set="worker")
    leader = pods(_PLACED, pod_set="leader")
    assert group_status(group, workers, _SETTLED).phase is GroupPhase.PENDING
    assert group_status(group, [*leader, *workers], _SETTLED).phase is GroupPhase.RUNNING


def test_pods_are_counted_by_state() -> None:
    members = pods(_PENDING, Gated(), _PLACED, Evicting("n"), _SUCCEEDED, _FAILED, _FAILED)
    assert group_status(_GANG, members, _SETTLED).pods == PodCounts(1, 1, 1, 1, 1, 2)


def test_a_refused_group_says_why() -> None:
    status = refused_status("pods name queues a and b; name one", pods(_PENDING), generation=3)
    assert status.phase is GroupPhase.REFUSED
    assert status.body() == {
        "phase": "Refused",
        "queue": "",
        "pods": {
            "pending": 1,
            "gated": 0,
            "placed": 0,
            "evicting": 0,
            "succeeded": 0,
            "failed": 0,
        },
        "conditions": [
            {
                "type": "Admitted",
                "status": "False",
                "reason": "Refused",
                "message": "pods name queues a and b; name one",
                "observedGeneration": 3,
            }
        ],
    }


def test_a_group_without_pods_says_how_pods_name_it() -> None:
    (condition,) = empty_status("t/train").conditions
    assert condition.message == "create pods with the label scheduling.carina.dev/pod-group: train"


def test_the_message_names_some_of_many_nodes() -> None:
    outlook = Nominated(tuple(f"n{index}" for index in range(10)))
    (condition,) = group_status(_GANG, pods(_PENDING, _PENDING), outlook).conditions
    assert condition.message == (
        "starts when evicted pods have left nodes n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"
    )


def test_a_long_message_is_cut() -> None:
    (condition,) = refused_status("x" * 5_000, ()).conditions
    assert condition.body()["message"] == "x" * 4_095 + "…"


def test_a_plan_gives_the_outlook_of_the_groups_that_wait() -> None:
    scene = Scene().node("n", 4).queue("q", quota=4)
    scene.runs("old", "n", gpus=3).waits("fits").waits("large", gpus=2)
    state, plan = scene.state(), scene.plan()
    found = outlooks(plan, lambda pod: state.occupancy.pods[pod].group)
    assert starting(plan, lambda pod: state.occupancy.pods[pod].group) == {"fits"}
    assert found == {"large": Waits(plan.waiting["large"])}


def test_a_group_whose_pods_are_nominated_does_not_wait_for_a_reason() -> None:
    scene = Scene().node("n", 1).queue("q", quota=1)
    scene.waits("next").pod(None, "n", state=Evicting("n"), name="leaves")
    plan = scene.plan()
    assert plan.nominations == (Nomination("t/next-0", "n", plan.nominations[0].allocations),)
    assert outlooks(plan, {"t/next-0": "next"}.get) == {"next": Nominated(("n",))}
