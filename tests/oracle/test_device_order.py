"""What claims get when a scheduler takes the first fit of slices that follow a policy.

The scheduler is upstream's own allocator, or the product's with upstream's policy.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubelet_plugin.devices.name import PartitionName, parse_name
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.room import FreeDevice, GpuRoom, gpu_room
from tests.conformance.answer import answer
from tests.fakes.first_fit_node import (
    PROFILES,
    WHOLE,
    Ask,
    FirstFitNode,
    Scheduler,
    partition,
    share,
)

POLICIES = (DeviceOrder.BINPACK, DeviceOrder.SPREAD, DeviceOrder.FRAGMENTATION)
SMALL = partition("1g.10gb")


@pytest.fixture(params=["product", pytest.param("upstream", marks=pytest.mark.oracle)])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    if request.param == "product":
        return answer
    answers: Scheduler = request.getfixturevalue("upstream_allocator").answer
    return answers


@pytest.mark.parametrize("reorders", [True, False], ids=["reordered", "in a burst"])
def test_binpack_fills_one_gpu_after_another(scheduler: Scheduler, reorders: bool) -> None:
    node = FirstFitNode(DeviceOrder.BINPACK, scheduler, gpus=3, reorders=reorders)

    assert node.fill(SMALL) == 21
    assert node.used() == [0] * 7 + [1] * 7 + [2] * 7


@pytest.mark.parametrize("reorders", [True, False], ids=["reordered", "in a burst"])
def test_spread_uses_all_gpus_alike(scheduler: Scheduler, reorders: bool) -> None:
    node = FirstFitNode(DeviceOrder.SPREAD, scheduler, gpus=3, reorders=reorders)

    assert node.fill(SMALL) == 21
    assert node.used() == [0, 1, 2] * 7


def test_spread_gives_shares_of_all_gpus_and_binpack_of_the_fullest(scheduler: Scheduler) -> None:
    spread, binpack = (
        FirstFitNode(order, scheduler, gpus=3)
        for order in (DeviceOrder.SPREAD, DeviceOrder.BINPACK)
    )
    for node in (spread, binpack):
        for percent in (30, 20, 10, 40):
            node.ask(share(percent))

    assert spread.used() == [0, 1, 2, 2]
    assert binpack.used() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("order", "whole"), [("none", 0), ("spread", 0), ("binpack", 1), ("fragmentation", 1)]
)
def test_after_departures_an_idle_gpu_stays_idle(
    scheduler: Scheduler, order: str, whole: int
) -> None:
    node = FirstFitNode(DeviceOrder(order), scheduler)
    for _ in range(8):
        node.ask(SMALL)
    for claim, use in list(node.held.items()):
        if use.device.startswith("gpu-0-") and order != "spread":
            node.release(claim)
    node.ask(SMALL)

    assert node.fill(WHOLE) == whole


@pytest.mark.parametrize(
    ("order", "whole"), [("none", 1), ("binpack", 2), ("fragmentation", 2), ("spread", 0)]
)
def test_shares_after_departures_leave_gpus_to_whole_claims(
    scheduler: Scheduler, order: str, whole: int
) -> None:
    node = FirstFitNode(DeviceOrder(order), scheduler, gpus=3)
    for _ in range(3):
        node.ask(share(60))
    for claim, use in list(node.held.items()):
        if use.device != "gpu-2-share":
            node.release(claim)
    for _ in range(2):
        node.ask(share(20))

    assert node.fill(WHOLE) == whole


@pytest.mark.parametrize(("order", "large"), [("none", 1), ("binpack", 1), ("fragmentation", 2)])
def test_fragmentation_takes_the_gpu_on_which_no_large_partition_is_lost(
    scheduler: Scheduler, order: str, large: int
) -> None:
    node = FirstFitNode(DeviceOrder(order), scheduler)
    given = [node.ask(partition(profile)) for profile in ("3g.40gb", "4g.40gb", "1g.10gb")]
    assert given[1:] == ["gpu-0-mig-4g40gb-5-0", "gpu-1-mig-1g10gb-19-6"]
    node.release("claim-1")
    node.ask(SMALL)

    assert node.fill(partition("4g.40gb")) == large


@pytest.mark.parametrize("order", POLICIES)
def test_an_amount_of_memory_gets_the_smallest_partition_on_any_gpu(
    scheduler: Scheduler, order: DeviceOrder
) -> None:
    node = FirstFitNode(order, scheduler)
    for _ in range(5):
        node.ask(SMALL)

    names = [
        parse_name(str(node.ask(Ask("mig", capacity=(("memory", "15Gi"),))))) for _ in range(4)
    ]

    profiles = {name.profile for name in names if isinstance(name, PartitionName)}
    assert profiles == {"1g20gb"}
    assert len(set(names)) == 4


def test_over_random_sequences_fragmentation_leaves_more_large_partitions_than_none(
    scheduler: Scheduler,
) -> None:
    none, fragmentation = (
        [_large_left(order, scheduler, seed) for seed in range(10)]
        for order in (DeviceOrder.NONE, DeviceOrder.FRAGMENTATION)
    )

    assert all(more >= less for more, less in zip(fragmentation, none, strict=True))
    assert sum(fragmentation) > sum(none)


def _large_left(order: DeviceOrder, scheduler: Scheduler, seed: int) -> int:
    """The number of large partitions that fit after smaller ones have come and gone."""
    chance = random.Random(seed)
    node = FirstFitNode(order, scheduler)
    for _ in range(16):
        if len(node.held) > 4:
            node.release(chance.choice(list(node.held)))
        node.ask(partition(chance.choice(("1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb"))))
    return node.fill(partition("4g.40gb")) + node.fill(partition("3g.40gb"))


STEPS = st.lists(
    st.sampled_from(PROFILES).map(partition)
    | st.integers(1, 100).map(share)
    | st.just(WHOLE)
    | st.integers(0, 100),
    max_size=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from(POLICIES))
def test_the_first_fit_is_the_choice_of_the_policy(
    scheduler: Scheduler, steps: list[Ask | int], order: DeviceOrder
) -> None:
    node = FirstFitNode(order, scheduler)
    for step in steps:
        match step:
            case int(which):
                if node.held:
                    node.release(list(node.held)[which % len(node.held)])
            case Ask():
                rooms = {minor: _room(node, minor) for minor in range(node.gpus)}
                given = node.ask(step)
                if given is not None:
                    _check(order, rooms, given, dict(step.capacity).get("cores", "0"))


def _room(node: FirstFitNode, minor: int) -> GpuRoom:
    of_gpu = [device for device in node.devices if device.gpu.minor == minor]
    names = {device.name for device in of_gpu}
    return gpu_room(of_gpu, [use for use in node.held.values() if use.device in names])


def _check(order: DeviceOrder, rooms: dict[int, GpuRoom], given: str, percent: str) -> None:
    """Compares the device with each that a claim for so many percent could have had."""
    size = next(one.size for room in rooms.values() for one in room.free if one.name == given)
    kind = type(parse_name(given))
    could = [
        (room, one)
        for room in rooms.values()
        for one in room.free
        if one.size == size
        and type(parse_name(one.name)) is kind
        and round(room.fullness * 100) + int(percent) <= 100
    ]
    costs = {one.name: _cost(order, room, one) for room, one in could}
    assert costs[given] == min(costs.values())


def _cost(order: DeviceOrder, room: GpuRoom, one: FreeDevice) -> tuple[object, ...]:
    match order:
        case DeviceOrder.BINPACK:
            return (-room.fullness,)
        case DeviceOrder.SPREAD:
            return (room.fullness,)
        case _:
            return room.loss(one)
