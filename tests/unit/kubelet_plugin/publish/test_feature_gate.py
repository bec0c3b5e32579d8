"""What is published while a feature gate is off."""

from dataclasses import replace

from carina_dra.quantity import Quantity
from carina_dra.resource import Counter, CounterSet, Device, DeviceCounterConsumption
from kubelet_plugin.publish.feature_gate import FeatureGate, needed, without
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, Pool, pool
from kubelet_plugin.publish.sync import resource_slices
from tests.samples.gpus import LOST, whole

TAINTS, COUNTERS = FeatureGate.DEVICE_TAINTS, FeatureGate.PARTITIONABLE_DEVICES

HEALTHY = pool([whole(0)], driver="gpu.carina.dev", node="node-1")
ONE_LOST = pool(
    [whole(0, LOST), whole(1)],
    driver="gpu.carina.dev",
    node="node-1",
)


def devices(of: Pool) -> list[Device]:
    return [
        device
        for content in of.slices
        if isinstance(content, DeviceSlice)
        for device in content.devices
    ]


def gates(of: Pool) -> list[frozenset[FeatureGate]]:
    return [needed(new.spec) for new in resource_slices(of, 1)]


def test_counter_sets_and_their_consumers_need_a_gate() -> None:
    assert gates(HEALTHY) == [{COUNTERS}, {COUNTERS}]


def test_taints_need_a_gate() -> None:
    assert gates(ONE_LOST) == [{COUNTERS}, {COUNTERS, TAINTS}]


def test_a_pool_without_a_gate_does_not_need_it() -> None:
    for off in ({TAINTS}, {COUNTERS}, {TAINTS, COUNTERS}):
        assert not frozenset().union(*gates(without(ONE_LOST, frozenset(off)))) & off


def test_with_all_gates_on_the_pool_stays() -> None:
    assert without(ONE_LOST, frozenset()) == ONE_LOST


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
    partitioned = Pool(
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
