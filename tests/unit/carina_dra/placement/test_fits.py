"""Whether exactly the devices of an allocation could be given to a claim that has nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Chosen, choose
from carina_dra.allocator.capacity import consumed_capacity
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    decode,
)
from tests.samples.fleet import (
    CLASSES,
    DRIVER,
    claim_of,
    cluster,
    consumption,
    gpu,
    network,
    partitions,
    placer_of,
    slices,
    with_zone,
)
from tests.samples.followed_cluster import FollowedCluster

_SHARED = {
    "name": "s0",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "20"}},
    **consumption(gpu=10),
}


def _device(name: str, pool: str = "a", *, admin: bool | None = None) -> DeviceResult:
    return DeviceResult("r", DRIVER, pool, name, admin_access=admin)


def _share(memory: str, capacity: str = "memory") -> DeviceResult:
    amounts = {capacity: Quantity.parse(memory)}
    return replace(_device("s0"), share_id="share", consumed_capacity=amounts)


def _allocation(*results: DeviceResult, node_selector: NodeSelector | None = None) -> Allocation:
    return Allocation(DeviceAllocation(results), node_selector)


def _gpus() -> Cluster:
    return cluster(a=[gpu("g0"), gpu("g1")], b=[gpu("g0")])


def _counted(**sizes: int) -> Cluster:
    """A node with partitions of a GPU of size 10, and a device `s0` of it that is shared."""
    made = Cluster()
    made.put_node(Node("a"))
    counters = {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "10"}}}]}
    devices = [{"name": name, **consumption(gpu=size)} for name, size in sizes.items()]
    for published in slices("a", counters, {"devices": [*devices, _SHARED]}):
        made.put_slice(published)
    return made


def test_free_device_fits() -> None:
    assert _gpus().fits(_allocation(_device("g0")))


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(_device("g2"), id="no such device"),
        pytest.param(_device("g0", pool="c"), id="no such pool"),
        pytest.param(replace(_device("g0"), driver="other"), id="no such driver"),
        pytest.param(replace(_device("g0"), share_id="x"), id="share of a device that has none"),
    ],
)
def test_result_that_is_not_published_does_not_fit(result: DeviceResult) -> None:
    assert not _gpus().fits(_allocation(result))


def test_device_in_use_does_not_fit_until_it_is_released() -> None:
    nodes, one = _gpus(), _allocation(_device("g0"))
    nodes.allocate("default/x", one)
    assert not nodes.fits(one)
    assert nodes.fits(_allocation(_device("g1")))
    nodes.release("default/x")
    assert nodes.fits(one)


def test_device_of_a_node_that_is_gone_does_not_fit() -> None:
    nodes = _gpus()
    nodes.remove_node("a")
    assert not nodes.fits(_allocation(_device("g0")))
    assert nodes.fits(_allocation(_device("g0", pool="b")))


def test_device_of_an_incomplete_pool_does_not_fit() -> None:
    nodes = _gpus()
    published = slices("a", {"devices": [gpu("g0")]}, {"devices": [gpu("g1")]})
    nodes.put_slice(published[0])
    assert not nodes.fits(_allocation(_device("g0")))
    nodes.put_slice(published[1])
    assert nodes.fits(_allocation(_device("g0")))


def test_same_device_twice_does_not_fit() -> None:
    assert not _gpus().fits(_allocation(_device("g0"), _device("g0")))


def test_devices_of_different_nodes_do_not_fit_together() -> None:
    nodes = _gpus()
    assert not nodes.fits(_allocation(_device("g0"), _device("g0", pool="b")))
    nodes.put_slice(network("net", gpu("n0")))
    assert nodes.fits(_allocation(_device("g0"), _device("n0", pool="net")))


def test_admin_access_to_a_device_in_use_fits() -> None:
    nodes = _gpus()
    nodes.allocate("default/x", _allocation(_device("g0")))
    assert nodes.fits(_allocation(_device("g0", admin=True)))
    assert not nodes.fits(_allocation(_device("g2", admin=True)))


def test_tainted_device_fits() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    assert cluster(a=[{**gpu("g0"), "taints": [taint]}]).fits(_allocation(_device("g0")))


@pytest.mark.parametrize(("names", "fits"), [(["a", "b"], True), (["a", "c"], False)])
def test_partitions_fit_together_if_their_counters_suffice(names: list[str], fits: bool) -> None:
    assert _counted(a=4, b=6, c=7).fits(_allocation(*map(_device, names))) is fits


def test_partition_fits_if_devices_in_use_leave_its_counters() -> None:
    nodes = _counted(a=4, b=6, c=7)
    nodes.allocate("default/x", _allocation(_device("a")))
    assert nodes.fits(_allocation(_device("b")))
    assert not nodes.fits(_allocation(_device("c")))


@pytest.mark.parametrize(
    ("shares", "fits"),
    [(["12", "8"], True), (["12", "9"], False), (["21"], False), (["20"], True)],
)
def test_shares_fit_together_if_the_capacity_suffices(shares: list[str], fits: bool) -> None:
    assert _counted().fits(_allocation(*map(_share, shares))) is fits


def test_share_fits_beside_those_in_use_if_the_capacity_suffices() -> None:
    nodes = _counted()
    nodes.allocate("default/x", _allocation(_share("15")))
    assert nodes.fits(_allocation(_share("5")))
    assert not nodes.fits(_allocation(_share("6")))


def test_share_of_a_capacity_that_the_device_lacks_does_not_fit() -> None:
    assert not _counted().fits(_allocation(_share("1", capacity="cores")))


def test_whole_use_of_a_device_that_is_shared_does_not_fit() -> None:
    assert not _counted().fits(_allocation(_device("s0")))


def test_first_share_needs_the_counters_and_a_second_one_does_not() -> None:
    nodes = _counted(a=1)
    nodes.allocate("default/x", _allocation(_device("a")))
    assert not nodes.fits(_allocation(_share("5")))
    nodes.release("default/x")
    nodes.allocate("default/x", _allocation(_share("5")))
    assert nodes.fits(_allocation(_share("5")))
    assert not nodes.fits(_allocation(_device("a")))


def test_allocation_fits_only_on_nodes_of_its_selector() -> None:
    nodes = _gpus()
    nodes.put_node(Node("a", {"zone": "x"}))
    nodes.put_slice(network("net", gpu("n0")))
    one = _device("n0", pool="net")
    in_x = decode(NodeSelector, with_zone("x"))
    assert nodes.fits(_allocation(one, node_selector=in_x))
    assert not nodes.fits(_allocation(one, node_selector=decode(NodeSelector, with_zone("y"))))
    assert not nodes.fits(_allocation(_device("g0", pool="b"), node_selector=in_x))


def test_allocation_with_an_invalid_selector_does_not_fit() -> None:
    wrong = NodeSelectorRequirement("zone", NodeSelectorOperator.GREATER, ("x",))
    selector = NodeSelector((NodeSelectorTerm((wrong,)),))
    assert not _gpus().fits(_allocation(_device("g0"), node_selector=selector))


def test_device_with_binding_conditions_fits_only_if_the_feature_is_enabled() -> None:
    device = {**gpu("g0"), "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    published = slices("a", {"devices": [device]})[0]
    for enabled in (True, False):
        nodes = Cluster(replace(DEFAULT_FEATURES, binding_conditions=enabled))
        nodes.put_node(Node("a"))
        nodes.put_slice(published)
        assert nodes.fits(_allocation(_device("g0"))) is enabled


def test_whole_device_fits_alone_and_not_beside_a_partition_of_it() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in partitions("a", 2, half=1, whole=2):
        nodes.put_slice(published)
    assert nodes.fits(_allocation(_device("whole")))
    assert not nodes.fits(_allocation(_device("whole"), _device("half")))


# Random clusters.


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "upstream"]))
def test_what_was_released_fits_again(seed: int, policy: str) -> None:
    followed = FollowedCluster(seed)
    nodes = followed.cluster
    placer = placer_of(nodes, policy)
    given_out: dict[str, Allocation] = {}
    for _ in range(12):
        asked = followed.request()
        try:
            placed = asked and placer.place(asked[1])
        except AllocationError:
            continue
        if asked is None or not isinstance(placed, PlacedClaims):
            continue
        for claim, allocation in zip(asked[1].claims, placed.allocated.allocations, strict=True):
            assert nodes.fits(allocation)
            nodes.allocate(claim.source.key, allocation)
            given_out[claim.source.key] = allocation
        key = followed.random.choice(sorted(given_out))
        nodes.release(key)
        assert nodes.fits(given_out[key])
        if followed.random.random() < 0.5:
            nodes.allocate(key, given_out[key])
        else:
            del given_out[key]


def _results(candidates: Sequence[Candidate], of: Cluster) -> Iterator[DeviceResult]:
    """What a claim without any wishes gets of these devices."""
    for one in candidates:
        result = DeviceResult("r", one.id.driver, one.id.pool, one.id.device)
        if of.features.consumable_capacity and one.device.allow_multiple_allocations:
            fractional = of.features.fractional_capacity_range
            amounts = consumed_capacity(one.device.capacity, None, fractional=fractional)
            result = replace(result, share_id="share", consumed_capacity=amounts or {})
        yield result


def _any_devices(count: int) -> ResourceClaim:
    asked: dict[str, Any] = {
        "deviceClassName": "any",
        "count": count,
        "tolerations": [{"operator": "Exists"}],
    }
    return claim_of({"name": "r", "exactly": asked})


def _can_choose(of: Cluster, node: str, request: PlacementRequest, devices: set[object]) -> bool:
    """Whether the search gives the claim these devices of a node, and may take no others."""
    state = of.state(node)
    among = sum(1 << index for index, one in enumerate(state.published) if one.id in devices)
    if among.bit_count() < len(devices):
        return False
    try:
        return isinstance(choose(request.claims, state, policy=Policy(), among=among), Chosen)
    except AllocationError:  # a pool of the node is invalid
        return False


def _compare(seed: int) -> Iterator[bool]:
    """Whether some devices fit, after it was compared with what the search says."""
    followed = FollowedCluster(seed)
    nodes, random = followed.cluster, Random(seed)
    any_class = {"any": decode(type(CLASSES["gpu"]), {"metadata": {"name": "any"}, "spec": {}})}
    for _ in range(10):
        followed.objects.change()
        followed.follow()
        for node in sorted(nodes.nodes):
            published = nodes.state(node).published
            count = random.choice((1, 1, 1, 2, 3))
            if len(published) < count:
                continue
            candidates = random.sample(published, count)
            request = PlacementRequest.of([_any_devices(count)], any_class, nodes.features)
            fits = nodes.fits(_allocation(*_results(candidates, nodes)))
            devices: set[object] = {one.id for one in candidates}
            assert fits is any(_can_choose(nodes, name, request, devices) for name in nodes.nodes)
            yield fits


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9))
def test_devices_fit_if_the_search_could_choose_them(seed: int) -> None:
    for _ in _compare(seed):
        pass


def test_the_comparison_meets_devices_that_fit_and_devices_that_do_not() -> None:
    answers = [fits for seed in range(20) for fits in _compare(seed)]
    assert min(answers.count(True), answers.count(False)) > len(answers) / 10
