"""What has been refused is asked again when it may be possible, and not before."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.model.pod import Gated
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)

_SNAPSHOT = Snapshot(
    now=1000,
    nodes=(node(),),
    slices=(gpus(),),
    classes=(CLASS,),
    queues=(queue("a"), queue("b"), queue("c")),
    claims=(
        claim("a/run", 8, has=tuple(f"n1/g{index}" for index in range(8))),
        claim("a/more"),
        claim("b/ask", 4),
        claim("c/ask", 6),
    ),
    groups=(
        group("a/run", "a", least=1, priority=1),
        group("a/more", "a", priority=1),
        group("b/ask", "b"),
        group("c/ask", "c", preempts=False),
    ),
    pods=(
        running("a/run-0", "a/run", "a/run"),
        waiting("a/more-0", "a/more", "a/more"),
        waiting("b/ask-0", "b/ask", "b/ask"),
        waiting("c/ask-0", "c/ask", "c/ask"),
    ),
)
"""Queue a has all GPUs. b and c ask for so much that the fair share of b is too small for it."""

_CHANGES: dict[str, tuple[Callable[[State], None], set[str]]] = {
    "the pod of another queue that asked is deleted": (
        lambda state: state.remove_pod("c/ask-0"),
        {"b/ask"},
    ),
    "the pod of another queue that asked is held back": (
        lambda state: state.put_pod(replace(state.occupancy.pods["c/ask-0"], state=Gated())),
        {"b/ask"},
    ),
    "the group that runs becomes less important": (
        lambda state: state.put_group(group("a/run", "a")),
        {"a/more"},
    ),
    "the group that asks becomes more important": (
        lambda state: state.put_group(group("a/more", "a", priority=2)),
        {"a/more"},
    ),
    "a group starts to count as started": (
        lambda state: state.put_group(group("a/run", "a", priority=1, started=999)),
        set(),
    ),
}


@pytest.mark.parametrize(("change", "served"), _CHANGES.values(), ids=_CHANGES)
def test_a_refusal_is_remembered_until_it_may_change(
    change: Callable[[State], None], served: set[str]
) -> None:
    state = State(_SNAPSHOT)
    engine = Engine(state)
    plan = engine.decide()
    assert not plan.evictions
    state.memory = plan.memory

    change(state)

    assert {eviction.group for eviction in engine.decide().evictions} == served


def test_a_search_that_was_cut_short_begins_anew_for_other_pods() -> None:
    nodes = [f"n{index}" for index in range(8)]
    state = State(
        replace(
            _SNAPSHOT,
            nodes=tuple(node(name) for name in nodes),
            slices=tuple(gpus(name, 1) for name in nodes),
            claims=(claim("a/big"), *(claim(f"a/{n}", has=(f"{n}/g0",)) for n in nodes)),
            groups=(group("a/ask", "a", priority=1), *(group(f"a/{n}", "a") for n in nodes)),
            pods=(
                waiting("a/ask-0", "a/ask", "a/big"),
                *(running(f"a/{n}-0", f"a/{n}", f"a/{n}", on=n, budgets=("b",)) for n in nodes),
            ),
            budgets={"b": 0},
            settings=replace(_SNAPSHOT.settings, search_steps=4),
        )
    )
    plan = Engine(state).decide()
    assert plan.memory.cursors
    state.memory = plan.memory

    state.remove_pod("a/ask-0")
    state.put_pod(waiting("a/ask-1", "a/ask"))

    assert not state.memory.cursors
