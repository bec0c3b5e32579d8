"""Which of several possible allocations is chosen."""

from typing import Any

import pytest

from carina_dra.allocator.group import NUMA_NODE, WHOLE, in_use
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import (
    FAR,
    UPSTREAM,
    Order,
    Policy,
    have_in_common,
    usage_of_node,
)
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult, ResourceClaim
from tests.samples.fleet import (
    DRIVER,
    claim,
    claim_of,
    cluster,
    consumption,
    give,
    gpu,
    model_is,
    network,
    place,
    slices,
)

_PACK, _SPREAD = Policy(), Policy(Order.SPREAD, Order.SPREAD)
_WHOLE_GPUS = Policy(Order.FRAGMENTATION, Order.FRAGMENTATION)


def test_binpack_fills_the_node_that_is_used_most() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0"), gpu("g1")])
    give(nodes, claim(), _SPREAD)
    assert give(nodes, claim(), _PACK) == ["a/g1"]


def test_spread_takes_the_node_that_is_used_least() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0"), gpu("g1")])
    assert [give(nodes, claim(), _SPREAD) for _ in range(3)] == [["a/g0"], ["b/g0"], ["a/g1"]]


def test_equally_good_nodes_are_taken_by_name() -> None:
    assert give(cluster(b=[gpu("g0")], a=[gpu("g0")]), claim()) == ["a/g0"]


def test_linked_gpus_come_before_those_of_one_numa_node() -> None:
    gpus = [
        gpu("g0", numa=0, nvlink="left"),
        gpu("g1", numa=0, nvlink="right"),
        gpu("g2", numa=1, nvlink="left"),
    ]
    assert give(cluster(a=gpus), claim(2)) == ["a/g0", "a/g2"]


def test_one_pcie_root_comes_before_one_numa_node() -> None:
    gpus = [
        gpu("g0", numa=0, root="r0"),
        gpu("g1", numa=0, root="r1"),
        gpu("g2", numa=1, root="r1"),
    ]
    assert give(cluster(a=gpus), claim(2)) == ["a/g1", "a/g2"]


def test_devices_of_two_requests_are_close_to_each_other() -> None:
    gpus = [gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", numa=0)]
    requests = ({"name": name, "exactly": {"deviceClassName": "gpu"}} for name in "ab")
    assert give(cluster(a=gpus), claim_of(*requests)) == ["a/g0", "a/g2"]


@pytest.mark.parametrize(("count", "distance"), [(1, 0), (2, FAR)])
def test_devices_whose_places_are_unknown_are_far_from_each_other(
    count: int, distance: int
) -> None:
    placed = place(cluster(a=[gpu("g0"), gpu("g1")]), claim(count))
    assert isinstance(placed, PlacedClaims)
    assert placed.allocated.score.distance == distance


def test_far_apart_is_better_than_nothing() -> None:
    assert give(cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)]), claim(2)) == ["a/g0", "a/g1"]


@pytest.mark.parametrize("policy", [_PACK, _SPREAD, UPSTREAM], ids=str)
def test_all_devices_are_allocated_though_they_are_far_apart(policy: Policy) -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    assert give(nodes, claim_of(request), policy) == ["a/g0", "a/g1"]


def test_node_with_close_gpus_comes_before_one_that_is_fuller() -> None:
    far = [gpu("g0", numa=2), gpu("g1", numa=0), gpu("g2", numa=1)]
    near = [gpu("g0", numa=2), gpu("g1", numa=0), gpu("g2", numa=0)]
    nodes = cluster(a=far, b=near)
    give(nodes, claim())  # a is used now
    assert give(nodes, claim(2)) == ["b/g1", "b/g2"]


def test_binpack_leaves_whole_numa_nodes_whole() -> None:
    gpus = [gpu(f"g{index}", numa=index // 2) for index in range(4)]
    nodes = cluster(a=gpus)
    first = give(nodes, claim())
    assert first + give(nodes, claim()) == ["a/g0", "a/g1"]


def test_network_attached_devices_are_no_neighbours() -> None:
    nodes = cluster(a=[gpu("g0", numa=0), gpu("g1", numa=1)])
    nodes.put_slice(network("net", gpu("n0", model="nic", numa=0)))
    assert give(nodes, claim(selector=model_is("H200"))) == ["a/g0"]


def test_device_without_an_attribute_has_it_in_common_with_all() -> None:
    devices = [gpu("g0", numa=0), gpu("g1"), gpu("g2", numa=0), gpu("g3", numa=1)]
    published = cluster(a=devices).state("a").published
    assert have_in_common(published[:3], NUMA_NODE, lists=False)
    assert not have_in_common(published, NUMA_NODE, lists=False)


def test_upstream_takes_the_first_that_fit() -> None:
    gpus = [gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", numa=0)]
    assert give(cluster(a=gpus), claim(2), UPSTREAM) == ["a/g0", "a/g1"]


def test_earlier_alternative_wins_over_a_fuller_node() -> None:
    nodes = cluster(a=[gpu("g0", model="L40S"), gpu("g1", model="L40S")], b=[gpu("g0")])
    give(nodes, claim(selector='device.attributes["gpu.carina.dev"].model == "L40S"'))
    alternatives = [
        {
            "name": model.lower(),
            "deviceClassName": "gpu",
            "selectors": [
                {"cel": {"expression": f'device.attributes["gpu.carina.dev"].model == "{model}"'}}
            ],
        }
        for model in ("H200", "L40S")
    ]
    assert give(nodes, claim_of({"name": "gpu", "firstAvailable": alternatives})) == ["b/g0"]


def _alternatives(name: str, *models: str) -> dict[str, Any]:
    """A request for a GPU of the first possible model."""
    return {
        "name": name,
        "firstAvailable": [
            {
                "name": model.lower(),
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": model_is(model)}}],
            }
            for model in models
        ],
    }


def test_alternatives_count_request_by_request() -> None:
    """The H200 is the first alternative of either request, but not of both."""
    nodes = cluster(a=[gpu("g0", model="L40S"), gpu("g1", model="H200"), gpu("g2", model="L40S")])
    requests = [_alternatives(name, "H200", "L40S") for name in ("first", "second")]
    placed = place(nodes, claim_of(*requests))
    assert isinstance(placed, PlacedClaims)
    assert [result.device for result in placed.allocated.allocations[0].devices.results] == [
        "g1",
        "g0",
    ]


def test_later_alternative_of_one_request_leaves_the_earlier_of_the_next() -> None:
    """The first H200 has no A100 beside it."""
    nodes = cluster(
        a=[gpu("g0", numa=0), gpu("g1", numa=0), gpu("g2", numa=1), gpu("g3", model="A100", numa=1)]
    )
    requests = (_alternatives("first", "B200", "H200"), _alternatives("second", "A100", "H200"))
    constraints = [{"matchAttribute": NUMA_NODE}]
    assert give(nodes, claim_of(*requests, constraints=constraints)) == ["a/g2", "a/g3"]


def test_devices_of_a_later_alternative_are_close_too() -> None:
    gpus = [gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", numa=0)]
    request = _alternatives("gpus", "B200", "H200")
    for alternative in request["firstAvailable"]:
        alternative["count"] = 2
    assert give(cluster(a=gpus), claim_of(request)) == ["a/g0", "a/g2"]


def test_score_has_the_sum_of_the_alternatives() -> None:
    nodes = cluster(a=[gpu(f"g{index}", model="L40S") for index in range(3)])
    requests = [_alternatives(name, "B200", "L40S") for name in ("first", "second")]
    placed = place(nodes, claim_of(*requests, _alternatives("third", "L40S", "B200")))
    assert isinstance(placed, PlacedClaims)
    assert placed.allocated.score.alternatives == 2


def test_later_alternative_that_would_fail_is_not_needed() -> None:
    """All devices of a pool cannot be asked for while its driver updates it."""
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(slices("b", {"nodeName": "a", "devices": []}, {"devices": []})[0])
    exactly = {"name": "one", "deviceClassName": "gpu"}
    every = {"name": "all", "deviceClassName": "gpu", "allocationMode": "All"}
    asked = claim_of({"name": "gpus", "firstAvailable": [exactly, every]})
    assert give(nodes, asked) == ["a/g0"]
    assert give(nodes, claim_of({"name": "gpus", "firstAvailable": [exactly, every]})) == []


_PARTITIONS = [
    {
        "name": f"gpu-{index}-{name}",
        "attributes": {"profile": {"string": name.partition("-")[0]}},
        "consumesCounters": [
            {
                "counterSet": f"gpu-{index}",
                "counters": {slot: {"value": "1"} for slot in slots.split()},
            }
        ],
    }
    for index in range(2)
    for name, slots in (("half-0", "s0 s1"), ("half-1", "s2 s3"), ("quarter-0", "s0"),
                        ("quarter-1", "s1"), ("quarter-2", "s2"), ("quarter-3", "s3"))
]  # fmt: skip
_COUNTERS = [
    {"name": f"gpu-{index}", "counters": {f"s{slot}": {"value": "1"} for slot in range(4)}}
    for index in range(2)
]


def test_partitions_leave_the_most_to_others() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in slices("a", {"sharedCounters": _COUNTERS}, {"devices": _PARTITIONS}):
        nodes.put_slice(published)
    quarter = 'device.attributes["gpu.carina.dev"].profile == "quarter"'
    half = 'device.attributes["gpu.carina.dev"].profile == "half"'
    first, second = give(nodes, claim(selector=quarter)), give(nodes, claim(selector=quarter))
    # Both quarters are in one half of one GPU: three halves are left.
    assert first + second == ["a/gpu-0-quarter-0", "a/gpu-0-quarter-1"]
    assert [bool(give(nodes, claim(selector=half))) for _ in range(4)] == [True, True, True, False]


def _shared_gpus(node: str, number: int) -> list[Any]:
    """The slices of a node with GPUs of which claims get shares, which take all counters."""
    counters = [
        {"name": f"gpu-{index}", "counters": {"memory": {"value": "80"}}} for index in range(number)
    ]
    devices = [
        {
            "name": f"s{index}",
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "80"}},
            **consumption(**{f"gpu-{index}": 80}),
        }
        for index in range(number)
    ]
    return slices(node, {"sharedCounters": counters}, {"devices": devices})


def _share(memory: str) -> ResourceClaim:
    return claim(capacity={"requests": {"memory": memory}})


def _share_of(device: str, memory: str, pool: str = "a") -> Allocation:
    consumed = {"memory": Quantity.parse(memory)}
    result = DeviceResult("r", DRIVER, pool, device, share_id="x", consumed_capacity=consumed)
    return Allocation(DeviceAllocation((result,)))


@pytest.mark.parametrize(("policy", "device"), [(_PACK, "a/s1"), (_SPREAD, "a/s2")])
def test_shared_gpus_are_ordered_by_what_is_consumed_of_them(policy: Policy, device: str) -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in _shared_gpus("a", 3):
        nodes.put_slice(published)
    for index, memory in enumerate(("20", "50", "10")):
        nodes.allocate(f"default/{index}", _share_of(f"s{index}", memory))
    assert give(nodes, _share("10"), policy) == [device]


@pytest.mark.parametrize(("policy", "device"), [(_PACK, "b/s0"), (_SPREAD, "a/s0")])
def test_nodes_of_shared_gpus_are_ordered_by_what_is_consumed(policy: Policy, device: str) -> None:
    nodes = Cluster()
    for name, memory in (("a", "20"), ("b", "50")):
        nodes.put_node(Node(name))
        for published in _shared_gpus(name, 1):
            nodes.put_slice(published)
        nodes.allocate(f"default/{name}", _share_of("s0", memory, name))
    assert give(nodes, _share("10"), policy) == [device]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("binpack", _PACK),
        ("spread", _SPREAD),
        ("fragmentation", _WHOLE_GPUS),
        ("spread/binpack", Policy(Order.SPREAD, Order.BINPACK)),
        ("upstream", UPSTREAM),
    ],
)
def test_policy_is_read(text: str, policy: Policy) -> None:
    assert Policy.parse(text) == policy


@pytest.mark.parametrize("text", ["", "pack", "/spread", "upstream/spread"])
def test_unknown_policy_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match="write binpack, spread, fragmentation, upstream"):
        Policy.parse(text)


def test_monitors_say_nothing_of_the_usage_of_a_node() -> None:
    kinds = [{"attributes": {"type": {"string": kind}}} for kind in ("gpu", "gpu", "monitor")]
    nodes = cluster(a=[{"name": f"g{index}", **kind} for index, kind in enumerate(kinds)])
    give(nodes, claim(selector=f'device.attributes["{DRIVER}"].type == "gpu"'))
    state = nodes.state("a")
    assert usage_of_node(in_use(state.ready, state.usage)) == WHOLE // 2


def test_monitors_are_no_neighbours() -> None:
    """Binpack takes the GPU that has no free neighbour."""
    numa = {f"g{index}": index for index in range(2)}
    gpus = [gpu(name, numa=place) for name, place in numa.items()]
    of_g0 = [gpu(f"g0-monitor-{index}", numa=0) for index in range(2)]
    for one in (*gpus, *of_g0):
        kind = "monitor" if "monitor" in one["name"] else "gpu"
        one["attributes"]["type"] = {"string": kind}
    beside = gpu("g2", numa=1)
    beside["attributes"]["type"] = {"string": "gpu"}
    nodes = cluster(a=[gpus[1], beside, gpus[0], *of_g0])
    selector = f'device.attributes["{DRIVER}"].type == "gpu"'
    assert give(nodes, claim(selector=selector)) == ["a/g0"]
