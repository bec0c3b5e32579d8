"""Objects that the API server takes, though nobody in their right mind writes them."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceSlice,
    decode,
)
from controller.engine.decide.cycle import Engine, plan
from controller.engine.model.group import Group, PodSet, SubGroups
from controller.engine.model.pod import Evicting, Pod, PodNeeds
from controller.engine.model.queue import CutOffCause, Entitlement, Queue
from controller.engine.model.reason import CutOffQueue
from controller.engine.model.resource import Pods, Resource
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.gpu_cluster import (
    CLASS,
    GPU,
    NEEDS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)


def snapshot(**fields: Any) -> Snapshot:
    """A node with eight GPUs and a queue."""
    defaults = {
        "nodes": (node(),),
        "slices": (gpus(),),
        "classes": (CLASS,),
        "queues": (queue("q"),),
    }
    return Snapshot(now=1000, **{**defaults, **fields})


def test_a_pod_that_names_a_claim_twice_gets_it_once() -> None:
    asked = snapshot(
        claims=(claim("a/c"),), groups=(group("a/g"),), pods=(waiting("a/p", "a/g", "a/c", "a/c"),)
    )

    (start,) = plan(asked).starts

    assert [name for name, _ in start.allocations] == ["a/c"]


def test_a_running_pod_that_names_a_claim_twice_can_go() -> None:
    state = State(
        snapshot(
            claims=(claim("a/c", has=("n1/g0",)),),
            groups=(group("a/g"),),
            pods=(running("a/p", "a/g", "a/c", "a/c"),),
        )
    )

    state.remove_pod("a/p")

    assert state.occupancy.accounts.allocated["q"] == (0,)
    assert not Engine(state).decide().waiting


def test_a_pod_that_names_a_budget_twice_spends_one_disruption() -> None:
    state = State(snapshot(budgets={"b": 1}))

    assert state.occupancy.disrupt(running("a/p", "a/g", budgets=("b", "b")))

    assert state.occupancy.budgets == {"b": 0}


def test_what_runs_in_a_queue_that_has_got_children_gives_to_them() -> None:
    all_gpus = tuple(f"n1/g{index}" for index in range(8))
    changed = snapshot(
        queues=(queue("q"), queue("child", parent="q", quota=8)),
        claims=(claim("a/old", 8, has=all_gpus), claim("a/new")),
        groups=(group("a/old"), group("a/new", "child")),
        pods=(running("a/old-0", "a/old", "a/old"), waiting("a/new-0", "a/new", "a/new")),
    )

    assert [(each.pod, each.group) for each in plan(changed).evictions] == [("a/old-0", "a/new")]


def test_a_claim_with_the_name_of_its_pod_is_not_asked_for_any_more_when_both_are_gone() -> None:
    entitlements: dict[Resource, Entitlement] = {GPU: Entitlement(0), Pods(): Entitlement(0)}
    state = State(snapshot(queues=(Queue("q", entitlements=entitlements),)))
    state.put_claim(claim("a/train"))
    state.put_group(group("a/train"))
    state.put_pod(waiting("a/train", "a/train", "a/train"))
    assert state.occupancy.accounts.requested["q"] == (1, 1)

    state.remove_pod("a/train")
    state.remove_claim("a/train")

    assert state.occupancy.accounts.requested["q"] == (0, 0)


def test_nobody_is_promised_what_a_stuck_pod_holds() -> None:
    stuck = Pod("a/v-1", NEEDS, Evicting("n1", stuck=True), "a/v", claims=("a/v-1",))
    half_gone = snapshot(
        slices=(gpus(count=2),),
        claims=(claim("a/v-0", has=("n1/g0",)), claim("a/v-1", has=("n1/g1",)), claim("a/h", 2)),
        groups=(group("a/v", least=2), group("a/h", priority=1)),
        pods=(running("a/v-0", "a/v", "a/v-0"), stuck, waiting("a/h-0", "a/h", "a/h")),
    )

    decided = plan(half_gone)

    assert not decided.nominations
    assert not decided.evictions
    assert decided.stale == ("a/v",)


def test_what_a_stuck_pod_holds_counts_against_the_limit_of_its_queue() -> None:
    stuck = Pod("a/v-0", NEEDS, Evicting("n1", stuck=True), "a/v", claims=("a/v-0",))
    half_gone = snapshot(
        slices=(gpus(count=2),),
        queues=(Queue("q", entitlements={GPU: Entitlement(1, limit=1)}),),
        claims=(claim("a/v-0", has=("n1/g0",)), claim("a/h")),
        groups=(group("a/v"), group("a/h")),
        pods=(stuck, waiting("a/h-0", "a/h", "a/h")),
    )

    assert not plan(half_gone).starts


def test_no_more_pods_start_with_a_claim_than_may_use_it() -> None:
    pods = [waiting(f"a/p-{index:03}", "a/g", "a/c", needs=PodNeeds()) for index in range(257)]
    shared = snapshot(claims=(claim("a/c"),), groups=(group("a/g"),), pods=tuple(pods))

    decided = plan(shared)

    assert len(decided.starts) == 256
    assert [str(each) for each in decided.waiting["a/g"]] == [
        "pod a/p-256: claim a/c has 256 users, the most there can be"
    ]


def test_a_slice_with_a_selector_that_is_not_valid_ends_no_cycle() -> None:
    wrong = decode(
        ResourceSlice,
        {
            "metadata": {"name": "wrong"},
            "spec": {
                "driver": "wrong",
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["x"]}]}
                    ]
                },
                "pool": {"name": "wrong", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "g0"}],
            },
        },
    )
    asked = snapshot(
        slices=(gpus(count=1), wrong),
        claims=(claim("a/low", has=("n1/g0",)), claim("a/high")),
        groups=(group("a/low"), group("a/high", priority=1), group("a/plain")),
        pods=(
            running("a/low-0", "a/low", "a/low"),
            waiting("a/high-0", "a/high", "a/high"),
            waiting("a/plain-0", "a/plain"),
        ),
    )

    decided = plan(asked)

    assert [start.pod for start in decided.starts] == ["a/plain-0"]
    assert "has no place" in str(decided.waiting["a/high"][0])


@pytest.mark.parametrize(
    ("queues", "parent", "cause"),
    [
        ((queue("q", parent="gone"),), "gone", CutOffCause.MISSING),
        ((queue("q", parent="q"),), "q", CutOffCause.CYCLE),
        (
            (queue("q", parent="up"), queue("up", parent="top"), queue("top", parent="up")),
            "up",
            CutOffCause.CYCLE,
        ),
    ],
    ids=["unknown parent", "its own parent", "below a cycle"],
)
def test_a_queue_whose_way_up_does_not_end_says_which_parent_is_wrong(
    queues: tuple[Queue, ...], parent: str, cause: CutOffCause
) -> None:
    asked = snapshot(queues=queues, groups=(group("a/g"),), pods=(waiting("a/p", "a/g"),))

    assert plan(asked).waiting == {"a/g": (CutOffQueue("q", parent, cause),)}


def test_pod_sets_of_one_name_start_nothing_and_end_no_cycle() -> None:
    both = SubGroups("", (PodSet("x", 1), PodSet("x", 1)), 2)
    asked = snapshot(
        groups=(Group("a/g", "q", both), group("a/other")),
        pods=(
            waiting("a/p", "a/g", pod_set="x"),
            waiting("a/p2", "a/g", pod_set="x"),
            waiting("a/other-0", "a/other"),
        ),
    )

    decided = plan(asked)

    assert [start.pod for start in decided.starts] == ["a/other-0"]
    assert str(decided.waiting["a/g"][0]) == "pod set x (named twice) has 0 of 1 pods"


def test_a_claim_whose_devices_are_on_no_valid_nodes_ends_no_cycle() -> None:
    lost = claim("a/c", has=("n1/g0",))
    wrong = NodeSelectorRequirement("k", NodeSelectorOperator("Gt"), ("x",))
    selector = NodeSelector((NodeSelectorTerm(match_expressions=(wrong,)),))
    assert lost.status.allocation is not None
    allocation = replace(lost.status.allocation, node_selector=selector)
    lost = replace(lost, status=replace(lost.status, allocation=allocation))
    asked = snapshot(claims=(lost,), groups=(group("a/g"),), pods=(waiting("a/p", "a/g", "a/c"),))

    assert "its claim's devices on 1" in str(plan(asked).waiting["a/g"][0])
