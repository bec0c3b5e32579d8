"""What a Kubernetes without some feature gate makes of our slices, and what then to publish.

The API server drops fields whose feature gate is off without a word (KEP-4815, KEP-5055); it shows
in what it stored.
"""

from dataclasses import replace
from enum import Enum

from carina_dra.resource import Device, ResourceSliceSpec
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, Pool, SliceContent

__all__ = ["FeatureGate", "needed", "without"]


class FeatureGate(Enum):
    """A feature gate of Kubernetes that slices may need, by its name there."""

    DEVICE_TAINTS = "DRADeviceTaints"
    PARTITIONABLE_DEVICES = "DRAPartitionableDevices"


def needed(spec: ResourceSliceSpec) -> frozenset[FeatureGate]:
    """Gives the gates whose fields a slice uses.

    What a slice needed as it was sent and not as it was stored is off: of one slice the API server
    drops all such fields or none.
    """
    gates = set()
    if any(device.taints for device in spec.devices):
        gates.add(FeatureGate.DEVICE_TAINTS)
    if spec.shared_counters or any(device.consumes_counters for device in spec.devices):
        gates.add(FeatureGate.PARTITIONABLE_DEVICES)
    return frozenset(gates)


def without(pool: Pool, off: frozenset[FeatureGate]) -> Pool:
    """Gives the pool as it is to be where these gates are off.

    A device that a taint would keep from being given out is left out instead. Without counters
    nothing keeps two devices off one GPU, so of the devices that draw on one counter set only the
    first stays. Slices keep their places: one with counters becomes empty, as it is stored.
    """
    slices = pool.slices
    if FeatureGate.DEVICE_TAINTS in off:
        slices = tuple(_without_tainted(content) for content in slices)
    if FeatureGate.PARTITIONABLE_DEVICES in off:
        slices = _without_counters(slices)
    return replace(pool, slices=slices)


def _without_tainted(content: SliceContent) -> SliceContent:
    match content:
        case CounterSlice():
            return content
        case DeviceSlice(devices):
            return DeviceSlice(tuple(device for device in devices if not device.taints))


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
                kept = [replace(each, consumes_counters=()) for each in devices if first(each)]
                return DeviceSlice(tuple(kept))

    return tuple(stripped(content) for content in slices)
