"""Finds out which feature gates of the API server are off, and what to publish without them.

The API server silently drops fields whose feature gate is off (KEP-4815, KEP-5055, KEP-5075,
KEP-5517, KEP-5677), and a server that is older than a gate drops its fields, too. The stored object
shows it. Fields of a feature that the node has to declare are refused if it does not (KEP-5328).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from carina_dra.resource import Device, ResourceSliceSpec, TaintEffect
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool, SliceContent


class FeatureGate(Enum):
    """A Kubernetes feature gate that slices may need; the value is its name."""

    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DEVICE_TAINTS = "DRADeviceTaints"
    NODE_ALLOCATABLE_RESOURCES = "DRANodeAllocatableResources"
    PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
    PARTITIONABLE_DEVICES_TYPE = "DRAPartitionableDevicesType"


def needed(spec: ResourceSliceSpec) -> frozenset[FeatureGate]:
    """Returns the gates whose fields a slice uses.

    A gate that the sent slice needs and the stored slice does not is off: the API server drops
    either all of a gate's fields in a slice or none.
    """
    gates = set()
    if any(device.allow_multiple_allocations for device in spec.devices):
        gates.add(FeatureGate.CONSUMABLE_CAPACITY)
    if any(device.taints for device in spec.devices):
        gates.add(FeatureGate.DEVICE_TAINTS)
    if any(device.node_allocatable_resources for device in spec.devices):
        gates.add(FeatureGate.NODE_ALLOCATABLE_RESOURCES)
    if spec.partition_type_attribute is not None:
        gates.add(FeatureGate.PARTITIONABLE_DEVICES_TYPE)
    if spec.shared_counters or any(device.consumes_counters for device in spec.devices):
        gates.add(FeatureGate.PARTITIONABLE_DEVICES)
    return frozenset(gates)


def named_in(message: str) -> frozenset[FeatureGate]:
    """Returns the gates that a message names. The name of one is the beginning of another's."""
    words = set(re.findall(r"\w+", message))
    return frozenset(gate for gate in FeatureGate if gate.value in words)


def without(pool: PublishedPool, off: frozenset[FeatureGate]) -> PublishedPool:
    """Returns the pool to publish while these gates are off.

    Without consumable capacity, a device that allows multiple allocations would be allocated whole,
    so it is left out. Without taints, so is a device that a taint keeps from being allocated.
    Without counters, nothing prevents the scheduler from allocating two devices of one GPU, so only
    the first device of each counter set stays. The indexes of slices do not change: a slice of
    counter sets becomes empty, as the API server stores it. Without the other gates, only their
    fields are left out.
    """
    slices = pool.slices
    if FeatureGate.CONSUMABLE_CAPACITY in off:
        slices = _only(slices, lambda device: not device.allow_multiple_allocations)
    if FeatureGate.DEVICE_TAINTS in off:
        slices = _only(slices, _is_allocatable)
        slices = _each_device(slices, lambda device: replace(device, taints=()))
    if FeatureGate.PARTITIONABLE_DEVICES in off:
        slices = _without_counters(slices)
    if FeatureGate.NODE_ALLOCATABLE_RESOURCES in off:
        slices = _each_device(slices, lambda device: replace(device, node_allocatable_resources={}))
    typed = FeatureGate.PARTITIONABLE_DEVICES_TYPE not in off
    return replace(pool, slices=tuple(_declaring(content, typed=typed) for content in slices))


def _is_allocatable(device: Device) -> bool:
    return all(taint.effect is TaintEffect.NONE for taint in device.taints)


def _only(
    slices: tuple[SliceContent, ...], keep: Callable[[Device], bool]
) -> tuple[SliceContent, ...]:
    def kept(content: SliceContent) -> SliceContent:
        match content:
            case CounterSlice():
                return content
            case DeviceSlice(devices):
                return replace(content, devices=tuple(filter(keep, devices)))

    return tuple(kept(content) for content in slices)


def _each_device(
    slices: tuple[SliceContent, ...], change: Callable[[Device], Device]
) -> tuple[SliceContent, ...]:
    def changed(content: SliceContent) -> SliceContent:
        match content:
            case CounterSlice():
                return content
            case DeviceSlice(devices):
                return replace(content, devices=tuple(map(change, devices)))

    return tuple(changed(content) for content in slices)


def _declaring(content: SliceContent, *, typed: bool) -> SliceContent:
    """Returns a slice that declares partition types only for devices that consume counters."""
    match content:
        case CounterSlice():
            return content
        case DeviceSlice(devices):
            if typed and any(device.consumes_counters for device in devices):
                return content
            return replace(content, partition_type_attribute=None)


def _without_counters(slices: tuple[SliceContent, ...]) -> tuple[SliceContent, ...]:
    taken: set[str] = set()

    def first(device: Device) -> bool:
        drawn_on = {consumption.counter_set for consumption in device.consumes_counters}
        free = taken.isdisjoint(drawn_on)
        taken.update(drawn_on)
        return free

    def stripped(content: SliceContent) -> DeviceSlice:
        match content:
            case CounterSlice():
                return DeviceSlice(())
            case DeviceSlice(devices):
                kept = (device for device in devices if first(device))
                return replace(
                    content, devices=tuple(replace(device, consumes_counters=()) for device in kept)
                )

    return tuple(stripped(content) for content in slices)
