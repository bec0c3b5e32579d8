"""The scheduler may allocate partitions together exactly if NVML makes them all.

The counters of the published devices stand for the scheduler, and the rules of the simulated NVML
for the hardware.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import Device as PublishedDevice
from kubelet_plugin.devices.counters import counter_set
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.partition import Partition
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.inventory import DriverReady
from simulation.nvml import mig
from simulation.nvml.hardware import GpuModel
from simulation.nvml.state import GpuInstance
from tests.samples.mig_models import MODELS, observed_with

Instances: TypeAlias = tuple[GpuInstance, ...]
PLAIN = PublishSettings("gpu.carina.dev")
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def partitions(observed: ObservedGpu) -> list[Partition]:
    """The partitions that are made when a claim has them."""
    found = devices(DriverReady((observed,)))
    return [device for device in found if isinstance(device, Partition)]


def available(observed: ObservedGpu) -> Mapping[str, int]:
    """The amounts of a GPU's counter set."""
    counters = counter_set(observed.gpu, observed.state).counters
    return {name: counter.value.value() for name, counter in counters.items()}


def fits(observed: ObservedGpu, published: Sequence[PublishedDevice]) -> bool:
    """Whether the devices consume no more than their GPU's counter set has."""
    consumed: Counter[str] = Counter()
    for device in published:
        for consumption in device.consumes_counters:
            consumed.update(
                {name: counter.value.value() for name, counter in consumption.counters.items()}
            )
    has = available(observed)
    return all(amount <= has.get(name, 0) for name, amount in consumed.items())


def extend(model: GpuModel, instances: Instances, partition: Partition) -> Instances | None:
    """The instances with one for the partition; None if NVML does not make it."""
    profile = mig.profile_by_id(model, partition.profile.id)
    assert profile is not None
    try:
        return mig.create(model, instances, profile, partition.placement.start)[1]
    except mig.NoRoomError:
        return None


def made(model: GpuModel, instances: Instances, wanted: Sequence[Partition]) -> bool:
    """Whether NVML makes all, in this order."""
    for partition in wanted:
        after = extend(model, instances, partition)
        if after is None:
            return False
        instances = after
    return True


@st.composite
def of_an_administrator(draw: st.DrawFn, model: GpuModel) -> Instances:
    """Instances that an administrator has made."""
    instances: Instances = ()
    for profile in draw(st.lists(st.sampled_from(model.mig_profiles), max_size=4)):
        starts = list(mig.fitting(model, instances, profile))
        if starts:
            instances = mig.create(model, instances, profile, draw(st.sampled_from(starts)))[1]
    return instances


@each_model
def test_partitions_fit_together_exactly_if_nvml_makes_them_all(model: GpuModel) -> None:
    """Of all sets: each that can be made is extended by each further partition."""
    observed = observed_with(model, ())
    offered = partitions(observed)
    consumed = [partition.published(PLAIN).consumes_counters[0].counters for partition in offered]
    sets: list[tuple[int, Instances, Mapping[str, int]]] = [(0, (), available(observed))]
    for first, instances, left in sets:
        for number, partition in enumerate(offered[first:], start=first):
            after = {name: one.value.value() for name, one in consumed[number].items()}
            fitting = all(left.get(name, 0) >= amount for name, amount in after.items())
            extended = extend(model, instances, partition)
            assert fitting == (extended is not None), (instances, partition.name)
            if extended is not None:
                rest = {name: amount - after.get(name, 0) for name, amount in left.items()}
                sets.append((number + 1, extended, rest))
    assert len(sets) > len(offered)


@each_model
@given(data=st.data())
def test_partitions_fit_beside_an_administrators_exactly_if_nvml_makes_them_all(
    model: GpuModel, data: st.DataObject
) -> None:
    instances = data.draw(of_an_administrator(model))
    observed = observed_with(model, instances)
    offered = partitions(observed)
    wanted = data.draw(
        st.lists(st.sampled_from(offered), max_size=6, unique=True) if offered else st.just([])
    )

    assert fits(observed, [each.published(PLAIN) for each in wanted]) == made(
        model, instances, wanted
    )


@each_model
@given(data=st.data())
def test_every_partition_that_nvml_makes_beside_an_administrators_is_offered_and_no_other(
    model: GpuModel, data: st.DataObject
) -> None:
    instances = data.draw(of_an_administrator(model))

    offered = {
        (each.profile.id, each.placement.start)
        for each in partitions(observed_with(model, instances))
    }

    assert offered == {
        (profile.id, start)
        for profile in model.mig_profiles
        for start in mig.fitting(model, instances, profile)
    }


@each_model
def test_a_whole_gpu_fits_alone_and_with_no_partition(model: GpuModel) -> None:
    observed = observed_with(model, ())
    whole = WholeGpu(observed.gpu, observed.state).published(PLAIN)

    assert fits(observed, [whole])
    for partition in partitions(observed):
        assert not fits(observed, [whole, partition.published(PLAIN)])


@each_model
def test_a_gpu_can_be_filled_with_the_smallest_partitions(model: GpuModel) -> None:
    observed = observed_with(model, ())
    smallest = min(model.mig_profiles, key=lambda one: (one.memory_mib, one.ofa_engines))
    wanted = [one for one in partitions(observed) if one.profile.id == smallest.id]

    assert len(wanted) == smallest.instances
    assert fits(observed, [partition.published(PLAIN) for partition in wanted])
