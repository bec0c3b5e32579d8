"""What is lacking on nodes is counted again for the nodes that change, and for no others."""

from random import Random

from controller.engine.decide.nodes.lacking import Lacking
from controller.engine.model.pod import PodNeeds
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.calls import calls_of
from tests.length import seeds
from tests.unit.controller.engine.decide.gpu_cluster import node, queue

_NEEDS = PodNeeds(cpu=1_000, memory=1 << 30)


def _state(nodes: int) -> State:
    return State(
        Snapshot(
            now=0, nodes=tuple(node(f"n{at}", cpu=0) for at in range(nodes)), queues=(queue("q"),)
        )
    )


def _calls_after_a_change(nodes: int) -> int:
    state = _state(nodes)
    lacking, names = Lacking(state.occupancy), frozenset(state.occupancy.nodes)
    assert lacking.on(names, _NEEDS) == {"cpu": nodes}
    state.put_node(node("n0", memory=0))
    found = []
    calls = calls_of(lambda: found.append(lacking.on(names, _NEEDS)))
    assert found == [{"cpu": nodes - 1, "memory": 1}]
    return calls


def test_a_count_costs_as_much_as_has_changed() -> None:
    assert _calls_after_a_change(1_000) == _calls_after_a_change(10)


def test_counts_follow_all_changes() -> None:
    """As if counted from nothing, for needs and nodes that are asked for in turn."""
    for seed in seeds(40):
        rng, state = Random(seed), _state(6)
        lacking = Lacking(state.occupancy)
        for _ in range(40):
            name = f"n{rng.randrange(6)}"
            change = rng.choice(("put", "put", "remove", "keep", "ask", "ask", "ask"))
            if change == "put":
                state.put_node(node(name, cpu=rng.choice((0, 2_000)), pods=rng.choice((0, 2))))
            elif change == "remove":
                state.remove_node(name)
            elif change == "keep" and name in state.occupancy.nodes:
                mark = state.occupancy.mark()
                state.occupancy.keep_room(name, _NEEDS)
                if rng.random() < 0.5:
                    state.occupancy.rollback(mark)
            known = sorted(state.occupancy.nodes)
            names = frozenset(rng.sample(known, rng.randint(0, len(known))))
            needs = PodNeeds(cpu=rng.choice((0, 1_000, 3_000)))
            fresh = Lacking(state.occupancy).on(names, needs)
            assert lacking.on(names, needs) == fresh
