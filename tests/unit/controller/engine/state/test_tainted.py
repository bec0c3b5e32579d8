"""Which claims have tainted devices, after any changes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ObjectMeta,
    ResourceClaimStatus,
    TaintEffect,
)
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import NOW, gpu_claim, gpu_slice, gpus_of

NODES = "a", "b"
TAINTS = [
    DeviceTaint("gpu.carina.dev/x", effect)
    for effect in (TaintEffect.NONE, TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
]


def _slice(state: State, node: str, taint: DeviceTaint | None, generation: int) -> None:
    published = gpu_slice(node, 2)
    first, *others = published.spec.devices
    tainted = replace(first, taints=() if taint is None else (taint,))
    pool = replace(published.spec.pool, generation=generation)
    state.put_devices(
        replace(published, spec=replace(published.spec, devices=(tainted, *others), pool=pool))
    )


def _rule(state: State, node: str | None, taint: DeviceTaint) -> None:
    spec = DeviceTaintRuleSpec(DeviceTaintSelector(pool=node), taint=taint)
    state.put_devices(DeviceTaintRule(ObjectMeta(name="rule"), spec=spec))


def _claim(state: State, name: str, node: str, gpu: int) -> None:
    status = ResourceClaimStatus(gpus_of(node, gpu))
    state.put_claim(replace(gpu_claim(name), status=status))


_NODE = st.sampled_from(NODES)
_STEPS = st.one_of(
    st.tuples(st.just(_slice), _NODE, st.none() | st.sampled_from(TAINTS), st.integers(1, 3)),
    st.tuples(st.just(_rule), st.none() | _NODE, st.sampled_from(TAINTS)),
    st.tuples(st.just(_claim), st.sampled_from("cd"), _NODE, st.integers(0, 1)),
    st.tuples(st.just(lambda state, name: state.remove_claim(f"t/{name}")), st.sampled_from("cd")),
    st.tuples(st.just(lambda state: state.remove_devices(gpu_slice("a", 2)))),
    st.tuples(st.just(lambda state: state.tainted.evicted_claims())),
)


@given(st.lists(_STEPS, max_size=12))
def test_holders_and_taints_are_those_of_the_present_however_it_came_about(
    steps: list[tuple[object, ...]],
) -> None:
    state = State(Snapshot(now=NOW))
    for step, *arguments in steps:
        assert callable(step)
        step(state, *arguments)
    anew = State(state.snapshot()).tainted
    results = [gpus_of(node, gpu).devices.results[0] for node in NODES for gpu in (0, 1)]
    assert state.tainted.tainted_claims() == anew.tainted_claims()
    assert state.tainted.evicted_claims() == anew.evicted_claims()
    for result in results:
        assert state.tainted.of_driver(result) == anew.of_driver(result)
        assert state.tainted.evicting(result) == anew.evicting(result)


def test_a_rule_evicts_from_a_pool_that_comes_after_it() -> None:
    state = State(Snapshot(now=NOW))
    _claim(state, "c", "a", 0)
    _rule(state, None, TAINTS[2])
    assert state.tainted.evicted_claims() == []

    _slice(state, "a", None, 1)
    assert state.tainted.evicted_claims() == ["t/c"]


def test_a_rule_that_changes_to_no_eviction_evicts_no_more() -> None:
    state = State(Snapshot(now=NOW))
    _slice(state, "a", None, 1)
    _claim(state, "c", "a", 0)
    _rule(state, None, TAINTS[2])
    assert state.tainted.evicted_claims() == ["t/c"]

    _rule(state, None, TAINTS[1])
    assert state.tainted.evicted_claims() == []


def test_a_taint_that_is_gone_leaves_no_claim() -> None:
    state = State(Snapshot(now=NOW))
    _claim(state, "c", "a", 0)
    _slice(state, "a", TAINTS[1], 1)
    assert state.tainted.tainted_claims() == ["t/c"]

    _slice(state, "a", None, 1)
    assert state.tainted.tainted_claims() == []


def test_of_a_pool_that_is_being_replaced_the_newest_generation_counts() -> None:
    state = State(Snapshot(now=NOW))
    _slice(state, "a", TAINTS[1], 1)
    published = gpu_slice("a", 2)
    pool = replace(published.spec.pool, generation=2)
    state.put_devices(
        replace(
            published,
            metadata=replace(published.metadata, name="newer"),
            spec=replace(published.spec, pool=pool),
        )
    )

    assert state.tainted.of_driver(gpus_of("a", 0).devices.results[0]) == ()


def test_a_taint_without_an_effect_concerns_no_claim() -> None:
    state = State(Snapshot(now=NOW))
    _claim(state, "c", "a", 0)
    _slice(state, "a", TAINTS[0], 1)
    assert state.tainted.tainted_claims() == []


def test_claims_are_in_order_and_those_of_pools_without_taints_are_left_out() -> None:
    state = State(Snapshot(now=NOW))
    _slice(state, "a", TAINTS[1], 1)
    _claim(state, "d", "a", 0)
    _claim(state, "f", "b", 1)
    assert state.tainted.tainted_claims() == ["t/d"]

    _claim(state, "e", "b", 0)
    _claim(state, "c", "a", 1)
    assert state.tainted.tainted_claims() == ["t/c", "t/d"]


def test_a_claim_that_is_gone_or_has_moved_has_no_tainted_device() -> None:
    state = State(Snapshot(now=NOW))
    _slice(state, "a", TAINTS[1], 1)
    for name in "cd":
        _claim(state, name, "a", 0)
    assert state.tainted.tainted_claims() == ["t/c", "t/d"]

    state.remove_claim("t/c")
    _claim(state, "d", "b", 0)
    assert state.tainted.tainted_claims() == []
