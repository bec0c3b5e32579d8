"""How many devices could be given out if those who have some moved."""

from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, ResourceSlice, decode
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.gpu_cluster import CLASS, claim, gpus, node, queue


def _state(*claims: ResourceClaim, slices: tuple[ResourceSlice, ...] = (gpus(),)) -> State:
    names = sorted({each.spec.pool.name for each in slices})
    return State(
        Snapshot(
            now=0,
            nodes=tuple(map(node, names)),
            slices=slices,
            classes=(CLASS,),
            queues=(queue("q"),),
            claims=claims,
        )
    )


def _slice(name: str, *, count: int = 1, **content: Any) -> ResourceSlice:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": count}
    spec = {"driver": "d", "nodeName": "n1", "pool": pool, **content}
    return decode(ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def _with_request(has: ResourceClaim, wants: dict[str, Any]) -> ResourceClaim:
    other = decode(
        ResourceClaim,
        {
            "metadata": {"namespace": "a", "name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", **wants}]}},
        },
    )
    return ResourceClaim(other.metadata, spec=other.spec, status=has.status)


def test_devices_that_nobody_has_are_to_spare() -> None:
    assert _state(claim("a/c", 3, has=("n1/g0", "n1/g1", "n1/g2"))).most_to_spare() == 5


def test_devices_of_all_nodes_are_counted() -> None:
    state = _state(claim("a/c", has=("n2/g0",)), slices=(gpus("n1", 2), gpus("n2", 4)))
    assert state.most_to_spare() == 5


def test_count_follows_claims_and_nodes() -> None:
    held = claim("a/c", has=("n1/g0",))
    state = _state(held)
    assert state.most_to_spare() == 7
    state.remove_claim(held.key)
    assert state.most_to_spare() == 8
    state.remove_node("n1")
    assert state.most_to_spare() == 0


@pytest.mark.parametrize(
    "wants",
    [
        {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
        {
            "firstAvailable": [
                {"name": "two", "deviceClassName": "gpu", "count": 2},
                {"name": "one", "deviceClassName": "gpu", "count": 1},
            ]
        },
    ],
)
def test_devices_of_a_claim_that_might_do_with_fewer_are_to_spare(wants: dict[str, Any]) -> None:
    has = claim("a/c", 2, has=("n1/g0", "n1/g1"))
    assert _state(_with_request(has, wants)).most_to_spare() == 8


def test_no_bound_is_known_for_a_device_that_is_shared() -> None:
    shared = _slice("n1", devices=[{"name": "g0", "allowMultipleAllocations": True}])
    assert _state(slices=(shared,)).most_to_spare() > 1_000


def test_no_bound_is_known_for_devices_that_consume_the_same_counters() -> None:
    consumes = [{"counterSet": "s", "counters": {"memory": {"value": "1"}}}]
    devices = [{"name": name, "consumesCounters": consumes} for name in ("whole", "part")]
    counters = [{"name": "s", "counters": {"memory": {"value": "2"}}}]
    slices = (
        _slice("n1", count=2, devices=devices),
        _slice("n1-counters", count=2, sharedCounters=counters),
    )
    assert _state(slices=slices).most_to_spare() > 1_000
