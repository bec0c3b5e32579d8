"""How many nodes are looked at for claims, on nodes that are all unlike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from carina_dra.allocator.allocate import choose
from carina_dra.allocator.matching import Matching, amounts_of
from carina_dra.placement.bounds import eligibility as eligibility_module
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.choice import findings as findings_module
from carina_dra.placement.choice import placer as placer_module
from carina_dra.placement.choice.placer import PlacedClaims, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    DeviceTaintRule,
    ResourceClaim,
    decode,
)
from tests.samples.fleet import (
    DRIVER,
    claim,
    claim_of,
    cluster,
    devices_of,
    give,
    gpu,
    network,
    placer_of,
    request,
)

_NODES = 100


@dataclass(slots=True)
class Work:
    """What was done for claims."""

    checked: int
    """On how many nodes the conditions of the demand were checked."""
    searched: int
    """On how many nodes devices were chosen."""


@contextmanager
def work() -> Iterator[Work]:
    """Counts the nodes that are looked at."""
    done = Work(0, 0)
    with (
        patch.object(findings_module, "choose", wraps=choose) as searched,
        patch.object(Demand, "bound", autospec=True, side_effect=Demand.bound) as checked,
    ):
        yield done
    done.checked, done.searched = checked.call_count, searched.call_count


def unlike(nodes: int = _NODES) -> Cluster:
    """Nodes of 8 GPUs, of which each has its own layout, memory and use."""
    random = Random(0)
    made = cluster(
        **{
            f"n{index:03}": [
                {
                    **gpu(f"g{number}", numa=random.randint(0, 1), model=f"m{index % 4}"),
                    "capacity": {"memory": {"value": f"{random.randint(40_000, 80_000)}Mi"}},
                }
                for number in range(8)
            ]
            for index in range(nodes)
        }
    )
    for name in list(made.nodes):
        used = random.randint(1, 7)
        results = (DeviceResult("r", DRIVER, name, f"g{number}") for number in range(used))
        made.allocate(f"in-use/{name}", Allocation(DeviceAllocation(tuple(results))))
    return made


def test_new_kind_of_claim_looks_at_few_nodes() -> None:
    placer = placer_of(unlike())
    for count in (1, 2, 4):
        with work() as done:
            assert isinstance(placer.place(request(claim(count))), PlacedClaims)
        assert 0 < done.searched <= 3, count
        assert 0 < done.checked <= 10, count


def test_new_kind_of_claim_with_a_selector_looks_at_some_nodes() -> None:
    placer = placer_of(unlike())
    with work() as done:
        asked = claim(selector=f'device.attributes["{DRIVER}"].model in ["m3"]')
        assert isinstance(placer.place(request(asked)), PlacedClaims)
    assert done.searched == 1
    assert 0 < done.checked <= 20


def test_like_claim_looks_at_one_or_two_nodes() -> None:
    nodes = unlike()
    placer = placer_of(nodes)
    for count in (1, 2):
        placer.place(request(claim(count)))
        for _ in range(20):
            asked = claim(count)
            with work() as done:
                placed = placer.place(request(asked))
            assert isinstance(placed, PlacedClaims)
            assert max(done.searched, done.checked) <= 2
            nodes.allocate(asked.key, placed.allocated.allocations[0])


def test_devices_that_were_checked_are_not_matched_again_to_choose_among_them() -> None:
    placer = placer_of(unlike())
    with (
        work() as done,
        patch.object(Matching, "refused_by", autospec=True, side_effect=Matching.refused_by) as by,
    ):
        asked = claim(2, selector=f'device.attributes["{DRIVER}"].model in ["m3"]')
        assert isinstance(placer.place(request(asked)), PlacedClaims)
    assert done.searched > 0
    assert by.call_count == 0


def test_like_claim_looks_at_no_node_if_nothing_has_changed() -> None:
    placer = placer_of(unlike())
    expected = placer.place(request(claim(2)))
    with work() as done:
        assert placer.place(request(claim(2))) == expected
    assert (done.searched, done.checked) == (0, 0)


def test_rule_for_all_devices_has_the_nodes_looked_at_again_once() -> None:
    nodes = unlike()
    placer = placer_of(nodes)
    expected = placer.place(request(claim(2)))
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "k", "effect": "None"}}
    nodes.put_rule(decode(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec}))
    with work() as done:
        assert placer.place(request(claim(2))) == expected
    assert done.searched > 0
    with work() as done:
        assert placer.place(request(claim(2))) == expected
    assert (done.searched, done.checked) == (0, 0)


def test_released_claim_looks_at_its_node_only() -> None:
    nodes = unlike()
    placer, asked = placer_of(nodes), claim(2)
    first = placer.place(request(asked))
    assert isinstance(first, PlacedClaims)
    nodes.allocate(asked.key, first.allocated.allocations[0])
    placer.place(request(claim(2)))
    nodes.release(asked.key)
    with work() as done:
        assert placer.place(request(claim(2))) == first
    assert (done.searched, done.checked) == (1, 1)


def test_nodes_with_too_few_free_devices_are_not_looked_at() -> None:
    nodes = unlike()
    with work() as done:
        assert devices_of(placer_of(nodes).place(request(claim(9)))) == []
    assert (done.searched, done.checked) == (0, 0)


def test_nodes_without_room_are_not_looked_at() -> None:
    def shared(index: int) -> dict[str, Any]:
        capacity = {"memory": {"value": str(1000 + index)}}
        return {**gpu("g0"), "allowMultipleAllocations": True, "capacity": capacity}

    nodes = cluster(**{f"n{index:03}": [shared(index)] for index in range(_NODES)})
    for index in range(_NODES - 1):
        name, consumed = f"n{index:03}", {"memory": Quantity.parse(str(900 + index))}
        share = DeviceResult("r", DRIVER, name, "g0", share_id="s", consumed_capacity=consumed)
        nodes.allocate(f"in-use/{name}", Allocation(DeviceAllocation((share,))))
    placer = placer_of(nodes)
    with work() as done:
        wanted = claim(capacity={"requests": {"memory": "200"}})
        assert devices_of(placer.place(request(wanted))) == [f"n{_NODES - 1:03}/g0"]
    assert (done.searched, done.checked) == (1, 1)


_MEMORY = f'device.capacity["{DRIVER}"].memory'


@pytest.mark.parametrize(
    "wanted",
    [
        claim(selector=f'device.attributes["{DRIVER}"].model == "m4"'),
        claim(selector=f'{_MEMORY}.compareTo(quantity("80001Mi")) >= 0'),
        claim(2, selector=f'{_MEMORY}.isGreaterThan(quantity("90Gi"))'),
        claim_of(
            {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
            constraints=[{"matchAttribute": f"{DRIVER}/uuid"}],
        ),
    ],
    ids=["of a model that none has", "more memory than any has", "several", "of one value"],
)
def test_nodes_out_of_reach_are_not_looked_at(wanted: ResourceClaim) -> None:
    placer = placer_of(unlike())
    placer.place(request(claim(selector="false")))  # evaluates the selector of the class
    with work() as done:
        assert placer.place(request(wanted)) == Unplaceable(undecided=0, failed=())
    assert (done.searched, done.checked) == (0, 0)


def test_devices_for_all_nodes_count_as_matching_only_if_they_are_asked_for() -> None:
    devices = [gpu("g0", numa=0), gpu("g1", numa=1)]
    nodes = cluster(**{f"n{index:03}": devices for index in range(_NODES)})
    nodes.put_slice(network("net", gpu("n0", numa=0, model="card")))
    placer = placer_of(nodes)

    def two(selector: str) -> ResourceClaim:
        selectors = [{"cel": {"expression": selector}}]
        wanted = {"deviceClassName": "gpu", "count": 2, "selectors": selectors}
        constraints = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
        return claim_of({"name": "gpus", "exactly": wanted}, constraints=constraints)

    with work() as done:
        answer = placer.place(request(two(f'device.attributes["{DRIVER}"].model == "H200"')))
    assert answer == Unplaceable(undecided=0, failed=())
    assert (done.searched, done.checked) == (0, 0)
    assert devices_of(placer.place(request(two("true")))) == ["n000/g0", "net/n0"]


def test_device_in_use_that_a_selector_names_is_not_looked_for() -> None:
    nodes = cluster(
        **{
            f"n{index:03}": [
                {"name": f"g{number}", "attributes": {"uuid": {"string": f"GPU-{index}-{number}"}}}
                for number in range(8)
            ]
            for index in range(_NODES)
        }
    )
    placer = placer_of(nodes)
    placer.place(request(claim(selector="false")))
    wanted = claim(selector=f'device.attributes["{DRIVER}"].uuid == "GPU-7-3"')
    assert give(nodes, wanted) == ["n007/g3"]
    with work() as done:
        assert placer.place(request(wanted)) == Unplaceable(undecided=0, failed=())
    assert (done.searched, done.checked) == (0, 0)


def test_refused_nodes_are_not_looked_at_again() -> None:
    nodes = unlike()
    placer = placer_of(nodes)
    wanted = request(claim(selector=f'device.attributes["{DRIVER}"].model.endsWith("9")'))
    with work() as first:
        assert devices_of(placer.place(wanted)) == []
    assert (first.searched, first.checked) == (0, _NODES)
    give(nodes, claim())
    with work() as second:
        assert devices_of(placer.place(wanted)) == []
    assert second.checked <= 1


def test_what_is_remembered_does_not_grow_with_changes_of_nodes_that_are_not_the_best() -> None:
    devices = [gpu(f"g{index}") for index in range(4)]
    nodes = cluster(best=devices, other=devices)
    placer, asked, taken = placer_of(nodes), request(claim()), DeviceResult("r", DRIVER, "", "g0")
    in_use = [replace(taken, pool="best", device=f"g{index}") for index in range(3)]
    nodes.allocate("default/best", Allocation(DeviceAllocation(tuple(in_use))))
    for _ in range(50):
        assert devices_of(placer.place(asked)) == ["best/g3"]
        nodes.allocate(
            "default/brief", Allocation(DeviceAllocation((replace(taken, pool="other"),)))
        )
        assert devices_of(placer.place(asked)) == ["best/g3"]
        nodes.release("default/brief")
    (ranking,) = placer._rankings.values()
    assert len(ranking._heap) + len(ranking._aside) <= 4 * len(nodes.nodes)


@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_few_kinds_of_claims_are_remembered_on_few_nodes_too(nodes: int) -> None:
    placer = placer_of(unlike(nodes))
    with patch.object(placer_module, "_REMEMBERED", 5000):
        for number in range(200):
            placer.place(request(claim(selector=f"{number} >= 0")))
    assert 16 < len(placer._rankings) <= 5000 // 80 + 16


def test_fewer_kinds_of_long_claims_are_remembered() -> None:
    placer, long = placer_of(unlike(2)), " && ".join(["true"] * 1000)
    with patch.object(placer_module, "_REMEMBERED", 5000):
        for number in range(50):
            placer.place(request(claim(selector=f"{number} >= 0 && {long}")))
    assert len(placer._rankings) <= 5000 // (80 + 8000 // 16) + 16


def test_what_a_request_consumes_of_a_device_is_computed_once() -> None:
    nodes = unlike(10)
    placer, wanted = placer_of(nodes), {"requests": {"memory": "1Gi"}}
    with patch.object(eligibility_module, "amounts_of", wraps=amounts_of) as computed:
        for _ in range(10):
            asked = claim(capacity=wanted)
            placed = placer.place(request(asked))
            assert isinstance(placed, PlacedClaims)
            nodes.allocate(asked.key, placed.allocated.allocations[0])
    devices = [call.args[1].id for call in computed.call_args_list]
    assert devices
    assert len(devices) == len(set(devices))


def test_next_best_node_costs_as_much_as_the_best() -> None:
    placed = placer_of(unlike()).best(request(claim(2)))
    with work() as done:
        for _ in range(10):
            next(placed)
    assert done.searched <= 15


def test_orders_of_nodes_are_kept_for_few_numbers_of_devices() -> None:
    """Above 8 devices, an order is that of a smaller number, a power of two up to 64."""
    placer = placer_of(cluster(a=[gpu("g0")]))
    for devices in (1, 7, 8, 9, 15, 16, 64, 65, 200):
        claims = [claim(min(32, devices - before)) for before in range(0, devices, 32)]
        placer.place(request(*claims))
    assert {devices for devices, _ in placer._orders} == {1, 7, 8, 16, 64}
