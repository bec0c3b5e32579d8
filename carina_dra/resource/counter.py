"""What devices of a pool draw from, so that they exclude each other (KEP-4815)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from carina_dra.quantity import Quantity
from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class Counter(Struct):
    """So much of what devices share."""

    value: Quantity


@dataclass(frozen=True, slots=True)
class CounterSet(Struct):
    """What devices of a pool draw from."""

    name: str
    counters: Mapping[str, Counter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceCounterConsumption(Struct):
    """What a device draws from one counter set."""

    counter_set: str
    counters: Mapping[str, Counter] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()
    """Devices on one set need a group in common (gate DRADeviceCompatibilityGroups)."""
