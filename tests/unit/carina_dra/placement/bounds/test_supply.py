"""What a cluster can give at one time, as its objects come and go."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.features import DEFAULT_FEATURES, Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import Alternative, check
from carina_dra.placement.bounds import tally as tally_module
from carina_dra.placement.bounds.supply import Supply
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.gpu import GPU
from carina_dra.placement.cluster.pool_kind import PoolKind, PoolKinds
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceSlice, decode
from carina_dra.step_budget import OutOfStepsError
from tests.calls import calls_of
from tests.samples import golden_slices
from tests.samples.fleet import (
    DRIVER,
    claim_of,
    cluster,
    consumption,
    give,
    gpu,
    network,
    partitions,
    slices,
    with_zone,
)
from tests.samples.followed_cluster import FollowedCluster
from tests.samples.random_claims import CLASSES as RANDOM_CLASSES
from tests.samples.random_claims import device_class as random_class

_MEMORY = f"{DRIVER}/memory"
_DEVICES = 100
_Device = dict[str, Any]


def _class(*selectors: str) -> DeviceClass:
    body = [{"cel": {"expression": expression}} for expression in selectors]
    return decode(DeviceClass, {"metadata": {"name": "x"}, "spec": {"selectors": body}})


_ANY = _class()


def _type(name: str) -> DeviceClass:
    return _class(f'device.attributes["{DRIVER}"].type == "{name}"')


def _profile(name: str) -> DeviceClass:
    return _class(f'device.attributes["{DRIVER}"].?profile.orValue("") == "{name}"')


def _with(amount: str, policy: _Device | None = None, *, shared: bool = False) -> _Device:
    """What a device has with this memory."""
    capacity: _Device = {"value": amount}
    if policy:
        capacity["requestPolicy"] = policy
    more = {"allowMultipleAllocations": True} if shared else {}
    return {"capacity": {"memory": capacity}, **more}


def _dgx() -> Cluster:
    """A node as the plugin publishes it; the first of its GPUs has its partitions."""
    nodes = Cluster()
    nodes.put_node(Node("node-1"))
    published = Path(golden_slices.__file__).parent / "golden" / "dgx-h100-slices.json"
    for index, one in enumerate(json.loads(published.read_text())):
        nodes.put_slice(decode(ResourceSlice, {**one, "metadata": {"name": f"slice-{index}"}}))
    return nodes


def _rule(pool: str) -> DeviceTaintRule:
    spec = {"deviceSelector": {"pool": pool}, "taint": {"key": "x", "effect": "NoSchedule"}}
    return decode(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec})


def _asked(features: Features = DEFAULT_FEATURES, **exactly: Any) -> Alternative:
    """A request for any device of a driver."""
    claim = claim_of({"name": "r", "exactly": {"deviceClassName": "x", **exactly}})
    (request,) = check(claim, {"x": _ANY}, features).requests
    return request.alternatives[0]


# Devices that are published as by the plugin.


@pytest.mark.parametrize(
    ("of_class", "claims"),
    [
        (_type("gpu"), 8),
        (_type("monitor"), 8),
        (_type("mig"), 7),
        (_profile("1g.10gb"), 7),
        (_profile("1g.20gb"), 4),
        (_profile("2g.20gb"), 3),
        (_profile("3g.40gb"), 2),
        (_profile("4g.40gb"), 1),
        (_profile("7g.80gb"), 1),
        (_profile("1g.10gb+me"), 1),
        (_profile("9g"), 0),
        (_type("share"), 8 * 10),  # the smallest share has a tenth of the cores
    ],
)
def test_most_claims_that_devices_of_a_node_serve(of_class: DeviceClass, claims: int) -> None:
    assert Supply(_dgx()).devices(of_class) == claims


def test_memory_of_a_gpu_counts_once_beside_that_of_its_share_and_its_partitions() -> None:
    assert Supply(_dgx()).capacity(_MEMORY) == 8 * Quantity.parse("81559Mi").nanos


@pytest.mark.parametrize("name", ["other.dev/memory", f"{DRIVER}/colour"])
def test_no_device_has_a_capacity_of_another_name(name: str) -> None:
    assert Supply(_dgx()).capacity(name) == 0


def test_devices_in_use_are_counted() -> None:
    nodes = _dgx()
    exactly = {"deviceClassName": "gpu", "count": 2}
    assert give(nodes, claim_of({"name": "r", "exactly": exactly}))
    assert Supply(nodes).devices(_type("gpu")) == 8


# Counters and shares.


def _counted(**sizes: int) -> Cluster:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in partitions("a", 10, **sizes):
        nodes.put_slice(published)
    return nodes


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ({"a": 3, "b": 3, "c": 3, "d": 3}, 3),
        ({"a": 5, "b": 5}, 2),
        ({"a": 10, "b": 1, "c": 2}, 2),
        ({"a": 8, "b": 9}, 1),
        ({"a": 11}, 0),
        ({"a": 0, "b": 0}, 2),
    ],
)
def test_devices_of_a_counter_set_count_as_far_as_they_fit_together(
    sizes: dict[str, int], most: int
) -> None:
    assert Supply(_counted(**sizes)).devices(_ANY) == most


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 20))
def test_alike_devices_are_counted_exactly(size: int, number: int, total: int) -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in partitions("a", total, **{f"p{index}": size for index in range(number)}):
        nodes.put_slice(published)
    given_out = 0
    while give(nodes, claim_of({"name": "r", "exactly": {"deviceClassName": "gpu"}})):
        given_out += 1
    assert Supply(nodes).devices(_ANY) == given_out == min(number, total // size)


_RANGE = {"default": "4", "validRange": {"min": "3", "step": "1"}}


@pytest.mark.parametrize(
    ("device", "claims"),
    [
        pytest.param(_with("20"), 1, id="whole device"),
        pytest.param(_with("20", shared=True), 1, id="no policy"),
        pytest.param(_with("20", _RANGE, shared=True), 6, id="range"),
        pytest.param(_with("20", _RANGE), 1, id="whole device with a policy"),
        pytest.param(
            _with("20", {"default": "10", "validValues": ["5", "10"]}, shared=True), 4, id="values"
        ),
        pytest.param(_with("20", {"default": "10"}, shared=True), 2, id="default"),
        pytest.param(
            _with("20", {"default": "4", "validRange": {"min": "0"}}, shared=True),
            1,
            id="no bound",
        ),
        pytest.param({"allowMultipleAllocations": True}, 1, id="no capacity"),
    ],
)
def test_shared_device_counts_as_often_as_its_smallest_shares_fit(
    device: _Device, claims: int
) -> None:
    assert Supply(cluster(a=[{**gpu("g0"), **device}])).devices(_ANY) == claims


def test_scarcest_capacity_bounds_the_shares() -> None:
    cores = {"value": "10", "requestPolicy": {"default": "5"}}
    device = {**gpu("g0"), **_with("20", {"default": "1"}, shared=True)}
    device["capacity"] = {**device["capacity"], "cores": cores}
    assert Supply(cluster(a=[device])).devices(_ANY) == 2


def test_shares_of_a_gpu_count_in_place_of_fewer_partitions_of_it() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    shared = {"name": "s", **_with("20", {"default": "5"}, shared=True), **consumption(gpu=10)}
    parts = [{"name": f"p{index}", **consumption(gpu=5)} for index in range(2)]
    counters = {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "10"}}}]}
    for published in slices("a", counters, {"devices": [*parts, shared]}):
        nodes.put_slice(published)
    assert Supply(nodes).devices(_ANY) == 4


# Nodes and pools.


def test_pool_that_several_nodes_reach_counts_once() -> None:
    nodes = cluster(a=[gpu("g0")], b=[])
    nodes.put_slice(network("net", gpu("n0"), gpu("n1")))
    assert Supply(nodes).devices(_ANY) == 3


def test_device_counts_if_a_node_reaches_it() -> None:
    nodes = Cluster()
    per_device = [{**gpu(f"n{zone}"), "nodeSelector": with_zone(zone)} for zone in "xyz"]
    nodes.put_slice(network("rack", *per_device, perDeviceNodeSelection=True))
    supply = Supply(nodes)
    assert supply.devices(_ANY) == 0
    nodes.put_node(Node("a", {"zone": "x"}))
    nodes.put_node(Node("b", {"zone": "y"}))
    assert supply.devices(_ANY) == 2


def test_nodes_that_are_left_out_give_nothing_until_they_return() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")])
    supply = Supply(nodes)
    assert supply.devices(_ANY) == 3
    supply.leave_out({"a", "c"})
    assert supply.devices(_ANY) == 1
    supply.leave_out({"b"})
    assert supply.devices(_ANY) == 2
    supply.leave_out(())
    assert supply.devices(_ANY) == 3


def test_devices_of_an_incomplete_pool_are_not_counted() -> None:
    nodes = cluster(a=[gpu("g0")])
    supply = Supply(nodes)
    assert supply.devices(_ANY) == 1
    nodes.put_slice(slices("a", {"devices": []}, {"devices": []})[0])
    assert supply.devices(_ANY) == 0


@pytest.mark.parametrize(("effect", "claims"), [("NoSchedule", 1), ("NoExecute", 1), ("None", 2)])
def test_tainted_device_is_not_counted_if_the_taint_prevents_allocation(
    effect: str, claims: int
) -> None:
    taint = {"key": "broken", "effect": effect}
    nodes = cluster(a=[gpu("g0"), {**gpu("g1"), "taints": [taint]}])
    assert Supply(nodes).devices(_ANY) == claims


def test_taint_rule_takes_devices_out_while_it_exists() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")])
    nodes.put_slice(network("net", gpu("n0")))
    supply = Supply(nodes)
    assert supply.devices(_ANY) == 4
    nodes.put_rule(_rule("a"))
    assert supply.devices(_ANY) == 2
    nodes.put_rule(_rule("net"))
    assert supply.devices(_ANY) == 3
    nodes.remove_rule("r")
    assert supply.devices(_ANY) == 4


def test_another_taint_of_a_tainted_device_takes_it_from_who_tolerates_the_first() -> None:
    """Also if the pool reaches many nodes, of which only its usage is looked at."""
    taint = {"key": "known", "effect": "NoSchedule"}
    asked = _asked(tolerations=[{"key": "known", "operator": "Exists"}])
    for pool in ("a", "net"):
        nodes = cluster(a=[{**gpu("g0"), **_with("4"), "taints": [taint]}])
        nodes.put_slice(network("net", {**gpu("n0"), **_with("4"), "taints": [taint]}))
        nodes.remove_slice("a-0" if pool == "net" else "net")
        supply = Supply(nodes)
        assert supply.least(asked, _MEMORY) == Quantity.parse("4").nanos
        nodes.put_rule(_rule(pool))
        assert supply.least(asked, _MEMORY) is None
        nodes.remove_rule("r")
        assert supply.least(asked, _MEMORY) == Quantity.parse("4").nanos


def test_class_whose_selector_fails_or_does_not_compile_has_no_devices() -> None:
    nodes = cluster(a=[gpu("g0")])
    assert Supply(nodes).devices(_class(f'device.attributes["{DRIVER}"].missing == 1')) == 0
    assert Supply(nodes).devices(_class("device.")) == 0


# The least that a request takes.


@pytest.mark.parametrize(
    ("exactly", "least"),
    [
        pytest.param({}, "5", id="any"),
        pytest.param(
            {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "A"'}}]},
            "20",
            id="selected by the request",
        ),
        pytest.param({"capacity": {"requests": {"memory": "6"}}}, "8", id="large enough"),
        pytest.param({"capacity": {"requests": {"memory": "50"}}}, None, id="too large"),
        pytest.param({"capacity": {"requests": {"cores": "1"}}}, None, id="no such capacity"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, "2", id="tolerated taint"),
    ],
)
def test_least_that_a_request_takes_of_a_capacity(exactly: _Device, least: str | None) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    nodes = cluster(
        a=[{**gpu("g0", model="A"), **_with("40")}, {**gpu("g1", model="A"), **_with("20")}],
        b=[
            {**gpu("g0"), **_with("40", {"default": "5", "validRange": {"min": "1"}}, shared=True)},
            gpu("g1"),
        ],
        c=[{**gpu("g0"), **_with("2"), "taints": [taint]}, {**gpu("g1"), **_with("8")}],
    )
    if "capacity" in exactly:
        nodes.remove_slice("b-0")
    answer = Supply(nodes).least(_asked(**exactly), _MEMORY)
    assert answer == (None if least is None else Quantity.parse(least).nanos)


def test_request_of_an_amount_takes_the_amount_of_a_shared_device() -> None:
    policy = {"default": "5", "validRange": {"min": "2", "step": "2"}}
    nodes = cluster(a=[{**gpu("g0"), **_with("40", policy, shared=True)}])
    asked = _asked(capacity={"requests": {"memory": "7"}})
    assert Supply(nodes).least(asked, _MEMORY) == Quantity.parse("8").nanos


def test_requests_with_different_amounts_are_told_apart() -> None:
    nodes = cluster(a=[{**gpu("g0"), **_with("4")}], b=[{**gpu("g0"), **_with("8")}])
    supply = Supply(nodes)
    for amount, least in (("1", "4"), ("5", "8"), ("4", "4")):
        asked = _asked(capacity={"requests": {"memory": amount}})
        assert supply.least(asked, _MEMORY) == Quantity.parse(least).nanos


def test_request_whose_selectors_cost_too_much_is_an_error() -> None:
    long = " && ".join([f'device.driver.matches("^{DRIVER}$")'] * 50)
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0", model="other"), gpu("g1")])
    asked = _asked(selectors=[{"cel": {"expression": long}}])
    with patch("carina_dra.placement.bounds.supply.LEAST", 1), pytest.raises(OutOfStepsError):
        Supply(nodes).least(asked, _MEMORY)


def test_least_share_is_that_of_each_node_of_nodes_that_are_alike_otherwise() -> None:
    def part(least: str) -> _Device:
        said = {"type": "mig", "profile": "1g.10gb", "leastShare": least}
        return {"name": "part", "attributes": {name: {"string": of} for name, of in said.items()}}

    nodes = cluster(a=[part("1/4")], b=[part("1/5")], c=[part("1/2")])
    supply, drivers = Supply(nodes), frozenset({DRIVER})
    assert supply.least_gpus(_asked(), "", drivers) == GPU // 5
    assert supply.gpus("", drivers) == GPU // 4 + GPU // 5 + GPU // 2


# What it costs.


def test_alike_pools_are_evaluated_once() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0"), gpu("g1")] for index in range(20)})
    for name in list(nodes.nodes):
        body = gpu("g0")
        body["attributes"]["uuid"] = {"string": name}
        nodes.put_slice(slices(name, {"devices": [body, gpu("g1")]})[0])
    of_model = _class(f'device.attributes["{DRIVER}"].model == "H200"')
    evaluated: list[object] = []
    measured = tally_module.Tally._measured

    def counting(*args: Any) -> Any:
        evaluated.append(args)
        return measured(*args)

    with patch.object(tally_module.Tally, "_measured", counting):
        assert Supply(nodes).devices(of_model) == 40
    assert len(evaluated) == 1


def test_another_question_reads_the_attributes_of_no_device_again() -> None:
    """An alike node costs it fewer calls than there are devices."""
    few, many = (_calls_of_second_question(nodes) for nodes in (2, 12))
    assert many - few < 10 * _DEVICES


def _calls_of_second_question(nodes: int) -> int:
    devices = [gpu(f"gpu-{index}") for index in range(_DEVICES)]
    supply = Supply(cluster(**{f"n{at}": devices for at in range(nodes)}))
    model = f'device.attributes["{DRIVER}"].model'
    assert supply.devices(_class(f'{model} == "H200"')) == nodes * _DEVICES
    return calls_of(lambda: supply.devices(_class(f'{model} != "H100"')))


def test_only_the_pool_of_a_changed_node_is_looked_at_again() -> None:
    nodes = cluster(**{f"n{index}": [gpu("g0")] for index in range(20)})
    supply = Supply(nodes)
    assert supply.devices(_ANY) == 20
    evaluate, looked_at = tally_module.Tally._evaluate, []

    def counting(self: Any, name: Any, views: Any, budget: Any) -> Any:
        looked_at.append([offered.pool.id.pool for offered in views])
        return evaluate(self, name, views, budget)

    with patch.object(tally_module.Tally, "_evaluate", counting):
        assert supply.devices(_ANY) == 20
        give(nodes, claim_of({"name": "r", "exactly": {"deviceClassName": "gpu"}}))
        assert supply.devices(_ANY) == 20
        nodes.put_slice(slices("n7", {"devices": [gpu("g0"), gpu("g1")]})[0])
        assert supply.devices(_ANY) == 21
    assert looked_at == [["n7"]]


# Random clusters.


def _answers(supply: Supply, asked: list[Alternative]) -> list[int | None]:
    classes = [decode(DeviceClass, random_class(name)) for name in RANDOM_CLASSES]
    capacities = [
        f"{driver}/{name}" for driver in ("driver-a", "driver-b") for name in ("memory", "cores")
    ]
    return [
        *map(supply.devices, classes),
        *map(supply.capacity, capacities),
        *(supply.least(one, name) for one in asked for name in capacities),
    ]


def _requests(followed: FollowedCluster) -> list[Alternative]:
    questions = [question[1] for _ in range(3) if (question := followed.request()) is not None]
    return [
        alternative
        for question in questions
        for claim in question.claims
        for request in claim.requests
        for alternative in request.alternatives
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_supply_of_a_changing_cluster_is_that_of_a_new_one(seed: int) -> None:
    followed = FollowedCluster(seed)
    supply, asked = Supply(followed.cluster), _requests(followed)
    for _ in range(8):
        followed.objects.change()
        followed.follow()
        nodes = sorted(followed.objects.nodes)
        left_out = nodes and followed.random.sample(nodes, followed.random.randint(0, 1))
        new = Supply(followed.fresh())
        for one in (supply, new):
            one.leave_out(left_out)
        answers = _answers(supply, asked)
        assert answers == _answers(new, asked)
        assert answers == _answers(supply, asked)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_alike_pools_have_the_answers_that_each_has_alone(seed: int) -> None:
    followed = FollowedCluster(seed)
    asked = _requests(followed)
    for _ in range(6):
        followed.objects.change()
        followed.follow()
        answers = _answers(Supply(followed.cluster), asked)
        with patch.object(PoolKinds, "of", lambda _, offered: PoolKind(offered)):
            assert answers == _answers(Supply(followed.cluster), asked)
