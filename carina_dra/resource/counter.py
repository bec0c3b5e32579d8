"""Counters that devices of a pool consume, so that devices exclude each other (KEP-4815)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.quantity import Quantity
from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class Counter(Struct):
    """An amount that devices share."""

    value: Quantity


@dataclass(frozen=True, slots=True)
class CounterSet(Struct):
    """Counters that devices of a pool consume together."""

    SHARED: ClassVar[bool] = True

    name: str
    counters: Mapping[str, Counter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceCounterConsumption(Struct):
    """What a device consumes from one counter set."""

    SHARED: ClassVar[bool] = True

    counter_set: str
    counters: Mapping[str, Counter] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()
    """Devices that consume one set must share a group (feature gate
    DRADeviceCompatibilityGroups)."""
