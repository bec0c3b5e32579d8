"""What is published while a feature gate is off."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import Counter, CounterSet, Device, DeviceCounterConsumption
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.feature_gate import FeatureGate, named_in, needed, without
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool, pool
from kubelet_plugin.publish.sync import resource_slices
from tests.samples.gpus import LOST, monitor, share, whole

TAINTS, COUNTERS = FeatureGate.DEVICE_TAINTS, FeatureGate.PARTITIONABLE_DEVICES
SHARES = FeatureGate.CONSUMABLE_CAPACITY
TYPES, HOST_MEMORY = FeatureGate.PARTITIONABLE_DEVICES_TYPE, FeatureGate.NODE_ALLOCATABLE_RESOURCES

HEALTHY = pool([whole(0)], PublishSettings("gpu.carina.dev"), node="node-1")
ONE_LOST = pool(
    [whole(0, LOST), whole(1)],
    PublishSettings("gpu.carina.dev"),
    node="node-1",
)


ALL_KINDS = pool(
    [whole(0, LOST), whole(1), share(0, LOST), share(1), monitor(0), monitor(1)],
    PublishSettings("gpu.carina.dev"),
    node="node-1",
)
ALL_FIELDS = pool(
    [whole(0, LOST), whole(1), share(0, LOST), share(1), monitor(0), monitor(1)],
    PublishSettings("gpu.carina.dev", host_memory_mib=512, partition_types=True),
    node="node-1",
)


def powerset(gates: Iterable[FeatureGate]) -> Iterator[tuple[FeatureGate, ...]]:
    all_gates = tuple(gates)
    for number in range(len(all_gates) + 1):
        yield from combinations(all_gates, number)


def devices(of: PublishedPool) -> list[Device]:
    return [
        device
        for content in of.slices
        if isinstance(content, DeviceSlice)
        for device in content.devices
    ]


def gates(of: PublishedPool) -> list[frozenset[FeatureGate]]:
    return [needed(new.spec) for new in resource_slices(of, 1)]


@pytest.mark.parametrize("gate", FeatureGate)
def test_a_refusal_that_names_a_gate_is_not_taken_for_one_of_another(gate: FeatureGate) -> None:
    assert named_in(f'node "node-1" does not support {gate.value} feature') == {gate}


def test_counter_sets_and_their_consumers_need_a_gate() -> None:
    assert gates(HEALTHY) == [{COUNTERS}, {COUNTERS}]


def test_taints_need_a_gate() -> None:
    assert gates(ONE_LOST) == [{COUNTERS}, {COUNTERS, TAINTS}]


def test_a_pool_without_a_gate_does_not_need_it() -> None:
    for off in map(frozenset, powerset(FeatureGate)):
        for of in (ALL_KINDS, ALL_FIELDS):
            assert not frozenset().union(*gates(without(of, off))) & off


def test_with_all_gates_on_the_pool_stays() -> None:
    assert without(ALL_KINDS, frozenset()) == ALL_KINDS
    assert without(ALL_FIELDS, frozenset()) == ALL_FIELDS


def test_partition_types_and_host_memory_need_gates() -> None:
    assert gates(ALL_FIELDS) == [{COUNTERS}, {COUNTERS, TAINTS, SHARES, TYPES, HOST_MEMORY}]


def test_without_the_gate_of_partition_types_slices_do_not_declare_them() -> None:
    counters, shown = without(ALL_FIELDS, frozenset({TYPES})).slices

    assert shown == DeviceSlice(tuple(devices(ALL_FIELDS)), None)
    assert counters == ALL_FIELDS.slices[0]


def test_without_the_gate_of_host_memory_devices_have_none() -> None:
    left = devices(without(ALL_FIELDS, frozenset({HOST_MEMORY})))

    assert left == [
        replace(device, node_allocatable_resources={}) for device in devices(ALL_FIELDS)
    ]


def test_a_slice_declares_types_only_while_a_device_in_it_consumes_counters() -> None:
    """The API server refuses others."""
    for off in map(frozenset, powerset(FeatureGate)):
        for content in without(ALL_FIELDS, off).slices:
            if isinstance(content, DeviceSlice) and content.partition_type_attribute is not None:
                assert any(device.consumes_counters for device in content.devices)
    only = pool(
        [whole(0, LOST), monitor(0)],
        PublishSettings("gpu.carina.dev", partition_types=True),
        node="node-1",
    )
    _, shown = without(only, frozenset({TAINTS})).slices
    assert shown == DeviceSlice(tuple(devices(only))[1:], None)


def test_shares_need_a_gate() -> None:
    assert gates(ALL_KINDS) == [{COUNTERS}, {COUNTERS, TAINTS, SHARES}]


@pytest.mark.parametrize(
    ("off", "left"),
    [
        ({SHARES}, ["gpu-0", "gpu-1", "gpu-0-monitor", "gpu-1-monitor"]),
        ({SHARES, TAINTS}, ["gpu-1", "gpu-0-monitor", "gpu-1-monitor"]),
        ({COUNTERS}, ["gpu-0", "gpu-1", "gpu-0-monitor", "gpu-1-monitor"]),
        ({TAINTS}, ["gpu-1", "gpu-1-share", "gpu-0-monitor", "gpu-1-monitor"]),
    ],
)
def test_devices_that_a_gate_would_make_wrong_are_left_out(
    off: set[FeatureGate], left: list[str]
) -> None:
    assert [device.name for device in devices(without(ALL_KINDS, frozenset(off)))] == left


def test_shares_stay_without_counters_where_whole_gpus_are_not_published() -> None:
    only = pool([share(0)], PublishSettings("gpu.carina.dev"), node="node-1")
    (left,) = devices(without(only, frozenset({COUNTERS})))
    assert left == replace(devices(only)[0], consumes_counters=())


def test_a_device_that_cannot_be_tainted_is_left_out() -> None:
    assert [device.name for device in devices(without(ONE_LOST, frozenset({TAINTS})))] == ["gpu-1"]


def test_without_counters_slices_keep_their_indexes() -> None:
    counters, shown = without(HEALTHY, frozenset({COUNTERS})).slices

    assert counters == DeviceSlice(())
    assert isinstance(shown, DeviceSlice)
    assert shown.devices == tuple(
        replace(device, consumes_counters=()) for device in devices(HEALTHY)
    )


def test_without_counters_one_device_of_a_gpu_stays() -> None:
    shares = {"gpu": Counter(Quantity.of(1))}
    whole, half, other = (
        Device(name, consumes_counters=(DeviceCounterConsumption(counter_set, shares),))
        for name, counter_set in (("whole", "gpu-0"), ("half", "gpu-0"), ("other", "gpu-1"))
    )
    partitioned = PublishedPool(
        "gpu.carina.dev",
        "node-1",
        (
            CounterSlice((CounterSet("gpu-0", shares), CounterSet("gpu-1", shares))),
            DeviceSlice((whole, half)),
            DeviceSlice((other,)),
        ),
    )

    left = without(partitioned, frozenset({COUNTERS}))

    assert [device.name for device in devices(left)] == ["whole", "other"]
