"""What a plan does not depend on: how the state came about, and the order of what it is told."""

from dataclasses import replace
from random import Random
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.decide.cycle import Engine, plan
from controller.engine.model.plan import CarriedOver
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.following import follow, observe
from tests.unit.controller.engine.properties.running_cluster import random_cluster

T = TypeVar("T")
_ROUNDS = 6


@examples(25)
@given(st.randoms(use_true_random=False))
def test_a_state_that_follows_events_is_the_state_of_the_snapshot(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    before = cluster.snapshot()
    state = State(before)
    engine = Engine(state)
    for turn in range(_ROUNDS):
        if turn:
            follow(state, before, cluster.snapshot(), rng)
        before = replace(cluster.snapshot(), memory=state.memory)
        fresh = State(before)
        for one in (state, fresh):
            one.refresh()
        assert observe(state) == observe(fresh)
        decided = engine.decide()
        assert decided == plan(before)
        cluster.apply(decided)
        state.memory = decided.memory
        cluster.pass_round()


@examples(25)
@given(st.randoms(use_true_random=False))
def test_a_decision_leaves_the_state_as_it_was(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    before = cluster.snapshot()
    state = State(before)
    engine = Engine(state)
    for _ in range(_ROUNDS):
        state.refresh()
        observed = observe(state)
        decided = engine.decide()
        assert observe(state) == observed
        assert engine.decide() == decided
        cluster.apply(decided)
        cluster.pass_round()
        follow(state, before, cluster.snapshot(), rng)
        before = cluster.snapshot()
        state.memory = decided.memory


@examples(25)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_objects_does_not_matter(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    for _ in range(_ROUNDS):
        snapshot = cluster.snapshot()
        decided = plan(snapshot)
        assert plan(_shuffled(snapshot, rng)) == decided
        cluster.apply(decided)
        cluster.pass_round()


@examples(25)
@given(st.randoms(use_true_random=False))
def test_nothing_is_possible_that_is_remembered_as_refused(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    before = cluster.snapshot()
    state = State(before)
    engine = Engine(state)  # which remembers the groups that lack pods
    for _ in range(_ROUNDS):
        decided = engine.decide()
        kept = state.memory
        if decided.is_empty:
            forgetful = CarriedOver(kept.nominations, reservations=kept.reservations)
            assert plan(replace(before, memory=forgetful)).is_empty
        cluster.apply(decided)
        state.memory = decided.memory
        cluster.pass_round()
        follow(state, before, cluster.snapshot(), rng)
        before = cluster.snapshot()


def _shuffled(snapshot: Snapshot, rng: Random) -> Snapshot:
    def shuffle(values: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(rng.sample(values, len(values)))

    return replace(
        snapshot,
        nodes=shuffle(snapshot.nodes),
        slices=shuffle(snapshot.slices),
        classes=shuffle(snapshot.classes),
        claims=shuffle(snapshot.claims),
        queues=shuffle(snapshot.queues),
        groups=shuffle(snapshot.groups),
        pods=shuffle(snapshot.pods),
    )
