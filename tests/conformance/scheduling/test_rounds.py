"""Rounds are run, settled and compared as the vectors mean it, with plans made by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult
from controller.engine.model.plan import (
    Action,
    CarriedOver,
    Eviction,
    Nomination,
    Plan,
    Start,
    Step,
)
from controller.engine.model.pod import Pending, Placed
from controller.engine.model.snapshot import Snapshot
from tests.conformance.scheduling.devices import DRIVER
from tests.conformance.scheduling.rounds import Decide, run
from tests.conformance.scheduling.sample import (
    content,
    job,
    leaf,
    node,
    outcome,
    queue,
    task,
    vector,
)
from tests.conformance.scheduling.vector import Vector


def _allocation(on: str, device: str, mib: int | None = None) -> Allocation:
    consumed = {} if mib is None else {"memory": Quantity.of(mib << 20)}
    share = None if mib is None else "share"
    result = DeviceResult("gpus", DRIVER, on, device, share_id=share, consumed_capacity=consumed)
    return Allocation(DeviceAllocation((result,)))


def _start(name: str, device: str = "gpu-0", on: str = "node0", mib: int | None = None) -> Start:
    return Start(f"default/{name}", on, ((f"default/{name}-gpus", _allocation(on, device, mib)),))


def _nominate(name: str, device: str = "gpu-0", on: str = "node0") -> Nomination:
    return Nomination(f"default/{name}", on, ((f"default/{name}-gpus", _allocation(on, device)),))


def _evict(name: str, on: str = "node0") -> Eviction:
    return Eviction(f"default/{name}", on, Action.RECLAIM, "default/b", 600)


def _plan(*steps: Step) -> Plan:
    return Plan(
        starts=tuple(step for step in steps if isinstance(step, Start)),
        nominations=tuple(step for step in steps if isinstance(step, Nomination)),
        evictions=tuple(step for step in steps if isinstance(step, Eviction)),
        waiting={},
        fair_shares={},
        memory=CarriedOver(),
        stale=(),
        steps=0,
        wake=None,
    )


_NOTHING = _plan()


def _in_turn(*plans: Plan) -> Decide:
    """Decides one plan a round, and then nothing."""
    left = list(plans)
    return lambda snapshot: left.pop(0) if left else _NOTHING


def _pending_and_running(expect: dict[str, Any], **more: Any) -> Vector:
    return vector(
        job("a", task("a-0", "running", "node0")),
        job("b", task("b-0"), rank=1),
        nodes=[node(gpus=1)],
        expect={"jobs": expect},
        **more,
    )


_SETTLED = {"compare": "after-settle", "roundsUntil": 2, "roundsAfter": 1}


def test_start_and_eviction_are_compared_at_once() -> None:
    case = vector(
        job("a", task("a-0", "running", "node0")),
        job("b", task("b-0"), rank=1),
        expect={"jobs": {"a": outcome("evicting", "node0"), "b": outcome("allocated", "node0")}},
    )
    assert run(case, _in_turn(_plan(_evict("a-0"), _start("b-0", "gpu-1")))).passed


def test_victim_that_moves_is_nominated_on_its_new_node() -> None:
    case = vector(
        job("a", task("a-0", "running", "node0")),
        nodes=[node("node0"), node("node1")],
        expect={"jobs": {"a": outcome("nominated", "node1")}},
    )
    assert run(case, _in_turn(_plan(_evict("a-0"), _nominate("a-0", on="node1")))).passed


def test_difference_names_the_task() -> None:
    result = run(_pending_and_running({"b": outcome("nominated", "node0")}), _in_turn(_NOTHING))
    assert [str(each) for each in result.differences] == [
        "b-0: expected nominated on node0, came pending"
    ]


def test_node_that_is_policy_is_not_compared() -> None:
    case = vector(
        job("b", task("b-0")),
        nodes=[node("node0"), node("node1")],
        expect={"jobs": {"b": outcome("allocated", "node1", strict=False)}},
    )
    assert run(case, _in_turn(_plan(_start("b-0")))).passed


def test_node_of_a_waiting_task_is_not_compared() -> None:
    case = _pending_and_running({"b": outcome("pending", "node0")})
    assert run(case, _in_turn(_NOTHING)).passed


def test_unconstrained_task_may_become_anything() -> None:
    expect = {"jobs": {"b": outcome("running")}, "unconstrainedTasks": ["b-0"]}
    assert run(vector(job("b", task("b-0")), expect=expect), _in_turn(_NOTHING)).passed


def test_rounds_settle_between_decisions() -> None:
    seen = []

    def decide(snapshot: Snapshot) -> Plan:
        seen.append({pod.key: pod.state for pod in snapshot.pods})
        plans = [_plan(_evict("a-0"), _nominate("b-0")), _plan(_start("b-0"))]
        return plans[len(seen) - 1] if len(seen) <= len(plans) else _NOTHING

    case = _pending_and_running({"a": outcome("pending"), "b": outcome("running")}, run=_SETTLED)
    assert run(case, decide).passed
    assert seen == [
        {"default/a-0": Placed("node0"), "default/b-0": Pending()},
        {"default/a-0": Pending(), "default/b-0": Pending()},
        {"default/a-0": Pending(), "default/b-0": Placed("node0")},
    ]


def test_decision_after_the_expected_state_has_come_is_a_difference() -> None:
    case = _pending_and_running({"a": outcome("running"), "b": outcome("pending")}, run=_SETTLED)
    result = run(case, _in_turn(_NOTHING, _NOTHING, _plan(_evict("a-0"), _nominate("b-0"))))
    assert [str(each) for each in result.differences] == [
        "b-0: expected nothing more to be decided, came is nominated in round 3",
        "a-0: expected nothing more to be decided, came is evicted in round 3",
    ]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((_start("b-0", "gpu-0"),), "gpu-0 of node0 is allocated 2 times"),
        ((_evict("a-0"), _start("b-0", "gpu-0")), "gpu-0 of node0 is allocated 2 times"),
        ((_start("b-0", "gpu-0-share", mib=10),), "gpu-0-share of node0 is shared, and allocated"),
        ((_start("b-0", "gpu-1"), _start("b-0", "gpu-1")), "decided on twice"),
        ((_start("b-0", "gpu-7"),), "gpu-7 of node0 does not exist"),
        ((_start("b-0", "gpu-1", "node9"),), "gpu-1 of node9 does not exist"),
        ((Start("default/b-0", "node0", ()),), "has no devices"),
        ((_start("a-0", "gpu-1"),), "default/a-0 is placed, and is running on node0"),
        ((_evict("b-0"),), "default/b-0 is evicted, and is pending"),
        ((_evict("a-0", "node1"),), "default/a-0 is evicted from node1"),
        ((_nominate("b-0", "gpu-0"),), "with what is nominated: gpu-0 of node0"),
        ((_evict("ghost-0"),), "default/ghost-0 does not exist"),
    ],
)
def test_plan_that_gives_what_is_not_there_is_unsound(
    steps: tuple[Step, ...], message: str
) -> None:
    case = vector(job("a", task("a-0", "running", "node0")), job("b", task("b-0"), rank=1))
    result = run(case, _in_turn(_plan(*steps)))
    assert any(message in each for each in result.unsound), result.unsound


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"cpuMilli": 1500}, "1500 milli-CPU"),
        ({"memoryBytes": 1_500_000_000}, "1500000000 bytes"),
        ({"maxPods": 1}, "1 pods"),
    ],
)
def test_plan_that_overfills_a_node_is_unsound(of: dict[str, Any], message: str) -> None:
    case = vector(
        job("a", task("a-0", "running", "node0")),
        job("b", task("b-0"), rank=1),
        nodes=[node(**of)],
    )
    result = run(case, _in_turn(_plan(_start("b-0", "gpu-1"))))
    assert [each for each in result.unsound if message in each]


def test_shares_of_a_gpu_are_added_up() -> None:
    half = {"gpu": 0, "gpuFraction": 0.6, "sharedDevices": 1}
    case = vector(job("b", task("b-0", request=half)), job("c", task("c-0", request=half), rank=1))
    both = [_start(f"{name}-0", "gpu-0-share", mib=600) for name in "bc"]
    assert not run(case, _in_turn(_plan(both[0]))).unsound
    assert run(case, _in_turn(_plan(*both))).unsound


def test_gpus_that_are_idle_and_being_freed_are_compared() -> None:
    half = {"gpu": 0, "gpuFraction": 0.5, "sharedDevices": 1}
    tasks = [
        task("a-0", "evicting", "node0", request=half, gpuGroups=["0"]),
        task("a-1", "evicting", "node0", request=half, gpuGroups=["0"]),
        task("a-2", "evicting", "node0", request=half, gpuGroups=["1"]),
        task("a-3", "running", "node0", request=half, gpuGroups=["1"]),
    ]
    expect = {"nodes": {"node0": {"idleGpus": 1, "evictingGpus": 1}}}
    case = vector(job("a", *tasks), nodes=[node(gpus=3)], expect=expect)
    assert run(case, _in_turn(_NOTHING)).passed
    expect = {"nodes": {"node0": {"idleGpus": 0, "evictingGpus": 2}}}
    case = vector(job("a", *tasks), nodes=[node(gpus=3)], expect=expect)
    assert len(run(case, _in_turn(_NOTHING)).differences) == 2


_TIED: list[tuple[str, Callable[[bool], dict[str, Any]]]] = [
    (
        "ageTieBreak",
        lambda tied: content(
            job("a", task("a-0")),
            job("b", task("b-0"), rank=1),
            expect={"jobs": {"a": outcome("allocated", "node0"), "b": outcome("pending")}},
            strict={"ageTieBreak": tied},
        ),
    ),
    (
        "taskTieBreak",
        lambda tied: content(
            job("a", task("a-0"), task("b-0")),
            expect={"tasks": {"a-0": outcome("allocated"), "b-0": outcome("pending")}},
            strict={"taskTieBreak": tied},
        ),
    ),
    (
        "queueTieBreak",
        lambda tied: content(
            job("a", task("a-0"), queue="one"),
            job("b", task("b-0"), rank=1, queue="other"),
            queues=[queue("one"), queue("other", rank=1)],
            expect={"jobs": {"a": outcome("allocated"), "b": outcome("pending")}},
            strict={"queueTieBreak": tied},
        ),
    ),
]


@pytest.mark.parametrize(("tie", "case"), _TIED, ids=[name for name, _ in _TIED])
def test_either_of_equals_may_be_picked_where_the_vector_says_so(
    tie: str, case: Callable[[bool], dict[str, Any]]
) -> None:
    def passes(*starts: Start, tied: bool) -> bool:
        return run(Vector.model_validate(case(tied)), _in_turn(_plan(*starts))).passed

    first, second = _start("a-0"), _start("b-0", "gpu-1")
    assert passes(first, tied=True)
    assert passes(second, tied=True)
    assert not passes(second, tied=False)
    assert not passes(first, second, tied=True)
    assert not passes(tied=True)


def test_job_that_asks_for_something_else_is_not_an_equal() -> None:
    case = vector(
        job("a", task("a-0")),
        job("b", task("b-0", request={"cpuMilli": 1}), rank=1),
        expect={"jobs": {"a": outcome("allocated"), "b": outcome("pending")}},
        strict={"ageTieBreak": True},
    )
    assert not run(case, _in_turn(_plan(_start("b-0")))).passed


def _racks(constraint: dict[str, Any]) -> Vector:
    tree = {
        "name": "",
        "unit": "children",
        "min": 2,
        "topology": None,
        "children": [leaf("x"), leaf("y")],
    }
    return vector(
        job("a", task("a-0", subgroup="x"), task("a-1", subgroup="y"), tree=tree),
        nodes=[node(f"node{rack}", labels={"rack": f"r{rack}"}) for rack in (0, 1)],
        expect={"constraints": [{"job": "a", **constraint}]},
    )


@pytest.mark.parametrize(
    ("constraint", "nodes", "holds"),
    [
        ({"type": "domain", "subgroup": "x", "label": "rack", "value": "r0", "tasks": 1}, "01", 1),
        ({"type": "domain", "subgroup": "x", "label": "rack", "value": "r1", "tasks": 1}, "01", 0),
        ({"type": "domain", "subgroup": "x", "label": "rack", "value": "r0", "tasks": 2}, "01", 0),
        ({"type": "distinctDomains", "subgroups": ["x", "y"], "label": "rack"}, "01", 1),
        ({"type": "distinctDomains", "subgroups": ["x", "y"], "label": "rack"}, "00", 0),
        ({"type": "nodeSet", "nodes": ["node0", "node1"]}, "10", 1),
        ({"type": "nodeSet", "nodes": ["node0", "node1"]}, "11", 0),
    ],
)
def test_constraints_on_where_tasks_are(
    constraint: dict[str, Any], nodes: str, holds: bool
) -> None:
    starts = [
        _start(f"a-{index}", f"gpu-{index}", f"node{rack}") for index, rack in enumerate(nodes)
    ]
    assert run(_racks(constraint), _in_turn(_plan(*starts))).passed == bool(holds)
