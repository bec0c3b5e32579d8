"""What a pool offers: which of its devices a selector selects, and how many are in one place."""

from typing import Any

from carina_dra.cel import Selector, compile_selector
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import OfferedPool, PoolState
from carina_dra.work import Work
from tests.samples.fleet import DRIVER, claim, cluster, give, gpu, model_is

_NUMA_NODE = "resource.kubernetes.io/numaNode"


def pool(*devices: dict[str, Any]) -> OfferedPool:
    """The pool of a node with these devices."""
    (offered,) = cluster(a=list(devices)).offer("a").ready
    return offered


def state(of: Cluster) -> PoolState:
    """The pool of node `a` as it is now."""
    (offered,) = of.offer("a").ready
    return of.pool_state(offered)


def gpu_with(memory: str, **places: Any) -> dict[str, Any]:
    """A GPU with an amount of memory."""
    return {**gpu("g", **places), "capacity": {"memory": {"value": memory}}}


def evaluated(of: OfferedPool, selector: Selector) -> tuple[list[str], int]:
    """The devices that a selector selects or fails on, and what their evaluation costs."""
    budget, every = Work(), (1 << len(of.devices)) - 1
    found = of.selected(selector, every, budget)
    names = [
        f"{one.id.device} {'fails' if found.doubtful >> index & 1 else 'is selected'}"
        for index, one in enumerate(of.devices)
        if (found.mask | found.doubtful) >> index & 1
    ]
    return names, budget.spent


_IS_H200 = compile_selector(model_is("H200"))
_IS_LARGE = compile_selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')


def test_device_with_another_string_is_not_evaluated() -> None:
    assert evaluated(pool(gpu("g0", model="A100")), _IS_H200) == ([], 0)


def test_device_with_the_string_is_evaluated() -> None:
    names, cost = evaluated(pool(gpu("g0", model="A100"), gpu("g1")), _IS_H200)
    assert names == ["g1 is selected"]
    assert cost == evaluated(pool(gpu("g1")), _IS_H200)[1] > 0


def test_selector_fails_on_a_device_without_the_string() -> None:
    number = {"name": "number", "attributes": {"model": {"int": 1}}}
    names, _ = evaluated(pool({"name": "none"}, number, gpu("other", model="A100")), _IS_H200)
    assert names == ["none fails"]


def test_selector_fails_on_an_unsupported_device_with_another_string() -> None:
    odd = gpu("odd", model="A100")
    odd["attributes"]["driverVersion"] = {"version": "new"}
    names, _ = evaluated(pool(odd), _IS_H200)
    assert names == ["odd fails"]


def test_device_with_less_of_a_capacity_is_not_evaluated() -> None:
    assert evaluated(pool(gpu_with("79Gi")), _IS_LARGE) == ([], 0)
    names, _ = evaluated(pool({**gpu_with("79Gi"), "name": "s"}, gpu_with("80Gi")), _IS_LARGE)
    assert names == ["g is selected"]


def test_selector_fails_on_a_device_without_the_capacity() -> None:
    odd = {**gpu_with("1Gi"), "name": "odd"}
    odd["attributes"] = {"driverVersion": {"version": "new"}}
    names, _ = evaluated(pool(gpu("g0"), odd), _IS_LARGE)
    assert names == ["g0 fails", "odd fails"]


def test_capacity_matters_only_to_devices_with_the_string() -> None:
    both = compile_selector(f"{_IS_H200.expression} && {_IS_LARGE.expression}")
    assert evaluated(pool(gpu("g0", model="A100"), gpu_with("1Gi")), both) == ([], 0)
    assert evaluated(pool({"name": "g0"}), both)[0] == ["g0 fails"]


def test_attributes_and_capacities_that_selectors_require_are_remembered_for_few() -> None:
    offered = pool(gpu_with("1Gi"))
    for number in range(100):
        name = f"x{number}"
        offered.refused(compile_selector(f'device.attributes["{DRIVER}"].{name} == "x"'))
        offered.refused(
            compile_selector(f'device.capacity["{DRIVER}"].{name}.isGreaterThan(quantity("1"))')
        )
    assert max(len(offered._strings), len(offered._amounts)) < 10


def test_free_devices_with_a_value_in_common_are_counted() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", numa=1), gpu("g3")])
    assert state(nodes).most_together(_NUMA_NODE) == 2
    give(nodes, claim(selector='device.attributes["resource.kubernetes.io"].numaNode == 1'))
    assert state(nodes).most_together(_NUMA_NODE) == 1
    assert state(nodes).most_together(f"{DRIVER}/absent") == 0


def test_device_with_a_list_of_values_is_counted_with_each() -> None:
    several = gpu("g0")
    several["attributes"]["links"] = {"ints": [1, 2]}
    one, other = gpu("g1"), gpu("g2")
    one["attributes"]["links"], other["attributes"]["links"] = {"int": 1}, {"int": 2}
    nodes = cluster(a=[several, one, other])
    expected = 2 if nodes.features.list_attributes else 1
    assert state(nodes).most_together(f"{DRIVER}/links") == expected
