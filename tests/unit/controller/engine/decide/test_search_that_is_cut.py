"""A search for victims that one cycle cuts short goes on in the next, and comes to its end."""

from dataclasses import replace

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Action
from controller.engine.model.snapshot import EngineSettings, Snapshot
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

_NODES = tuple(f"n{number}" for number in range(6))
SNAPSHOT = Snapshot(
    now=1000,
    nodes=tuple(map(node, _NODES)),
    slices=tuple(gpus(name, 2) for name in _NODES),
    classes=(CLASS,),
    # One job of six may be evicted, and the gang needs four nodes for itself.
    queues=(queue("theirs", quota=5), queue("ours", quota=None)),
    claims=(
        *(claim(f"t/{name}", has=(f"{name}/g0",)) for name in _NODES),
        *(claim(f"o/{index}", 2) for index in range(4)),
    ),
    groups=(
        *(group(f"t/{name}", "theirs") for name in _NODES),
        group("o/gang", "ours", least=4),
    ),
    pods=(
        *(running(f"t/{name}-0", f"t/{name}", f"t/{name}", on=name) for name in _NODES),
        *(waiting(f"o/gang-{index}", "o/gang", f"o/{index}") for index in range(4)),
    ),
)


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_search_that_is_cut_short_ends_with_the_answer_of_one_that_is_not(steps: int) -> None:
    settings = EngineSettings(search_steps=steps, consolidation_limit=1)
    state = State(replace(SNAPSHOT, settings=settings))
    engine = Engine(state)
    cycles = 0
    while (plan := engine.decide()).memory.cursors:
        state.memory = plan.memory
        cycles += 1
        assert cycles < 500, "the search never ends"
    whole = Engine(State(replace(SNAPSHOT, settings=replace(settings, search_steps=None)))).decide()
    assert (plan.evictions, plan.nominations) == (whole.evictions, whole.nominations)


def test_search_for_another_action_waits_until_one_is_at_its_end() -> None:
    settings = EngineSettings(search_steps=2, consolidation_limit=1)
    state = State(replace(SNAPSHOT, settings=settings))
    engine = Engine(state)
    actions: list[Action] = []
    while (plan := engine.decide()).memory.cursors and len(actions) < 500:
        state.memory = plan.memory
        actions.append(plan.memory.cursors["o/gang"].action)
    order = [Action.CONSOLIDATE, Action.RECLAIM, Action.PREEMPT]
    assert actions == sorted(actions, key=order.index)
