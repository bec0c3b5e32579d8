"""When slices are written with changed taints: at once, but seldom for devices that come and go.

The first two changes of a device's taints in half an hour are written at once: a fault, and that it
is over. Further ones share four writes a minute on the node. Meanwhile, no claim is prepared on
what is bad: that follows from what is read, and not from the slices.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from carina_dra.node_keys import NodeKeys
from carina_dra.resource import ResourceSlice
from kubelet_plugin.publish.sync import SlicePlan

_MOST: Final = 4
"""Writes within the window that leave no room for further ones that can wait."""
_WINDOW: Final = 60.0
_AT_ONCE: Final = 2
"""Changes of a device's taints that are written at once."""
_MEMORY: Final = 1800.0
"""Seconds after which a change no longer counts."""


Pace: TypeAlias = Callable[
    [SlicePlan, Iterable[ResourceSlice], "TaintWrites", float], tuple[SlicePlan, float]
]
"""Says which part of a plan is due: `paced` or `unpaced`."""


@dataclass(frozen=True, slots=True)
class TaintWrites:
    """What was written of taints in the recent past. Times are in monotonic seconds."""

    times: tuple[float, ...] = ()
    """When slices with changed taints were written, within the window."""
    slices: Mapping[str, float] = field(default_factory=dict)
    """When such slices were last written, by name."""
    changes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The last changes of the taints of devices, by name."""

    def flaps(self, device: str, now: float) -> bool:
        """Returns whether the taints of a device have changed too often."""
        return sum(now - at < _MEMORY for at in self.changes.get(device, ())) >= _AT_ONCE

    def after(
        self, plan: SlicePlan, due: SlicePlan, existing: Iterable[ResourceSlice], now: float
    ) -> "TaintWrites":
        """Returns what is known after the part of the plan that was due was carried out.

        A change that waits counts as well, also if it is over before it is written.
        """
        stored = {current.metadata.name: current for current in existing}
        changed = {
            new.metadata.name: devices
            for new in plan.update
            if (devices := _changed(stored[new.metadata.name], new))
        }
        if not changed:
            return self
        written = changed.keys() & {new.metadata.name for new in due.update}
        kept = {device: at for device, at in self.changes.items() if now - max(at) < _MEMORY}
        new = {
            device: (*self.changes.get(device, ()), now)[-_AT_ONCE:]
            for devices in changed.values()
            for device in devices
        }
        last = {name: at for name, at in self.slices.items() if name in stored}
        return TaintWrites(
            times=(*_recent(self.times, now), *(now for _ in written)),
            slices=last | dict.fromkeys(written, now),
            changes=kept | new,
        )


def paced(
    plan: SlicePlan, existing: Iterable[ResourceSlice], writes: TaintWrites, now: float
) -> tuple[SlicePlan, float]:
    """Returns the part of the plan that is due, and when the rest is; never if there is none.

    A plan that does more than to update slices is due as a whole.
    """
    if plan.create or plan.delete:
        return plan, math.inf
    stored = {current.metadata.name: current for current in existing}
    waiting = [new for new in plan.update if _can_wait(stored[new.metadata.name], new, writes, now)]
    at_once = tuple(new for new in plan.update if new not in waiting)
    recent = _recent(writes.times, now)
    room = max(0, _MOST - len(recent) - len(at_once))
    if len(waiting) <= room:
        return plan, math.inf
    longest_ago = sorted(waiting, key=lambda new: writes.slices.get(new.metadata.name, -math.inf))
    update = (*at_once, *longest_ago[:room])
    times = (*recent, *(now for _ in update))
    return replace(plan, update=update), times[-_MOST] + _WINDOW


def unpaced(
    plan: SlicePlan, existing: Iterable[ResourceSlice], writes: TaintWrites, now: float
) -> tuple[SlicePlan, float]:
    """Returns the whole plan: every change is due at once. For a node without damping."""
    del existing, writes, now
    return plan, math.inf


def _can_wait(before: ResourceSlice, after: ResourceSlice, writes: TaintWrites, now: float) -> bool:
    """Returns whether slices differ only in the taints of devices that come and go.

    The taint of released GPUs does not wait: an administrator waits for it.
    """
    if _is_released(before) != _is_released(after):
        return False
    if [device.name for device in before.spec.devices] != [
        device.name for device in after.spec.devices
    ]:
        return False
    devices = tuple(
        replace(new, taints=old.taints)
        for old, new in zip(before.spec.devices, after.spec.devices, strict=True)
    )
    same_otherwise = replace(after, spec=replace(after.spec, devices=devices)) == before
    return same_otherwise and all(writes.flaps(name, now) for name in _changed(before, after))


def _is_released(current: ResourceSlice) -> bool:
    key = NodeKeys(current.spec.driver).released_taint
    return any(taint.key == key for device in current.spec.devices for taint in device.taints)


def _changed(before: ResourceSlice, after: ResourceSlice) -> Collection[str]:
    """Returns the names of the devices whose taints differ."""
    taints = {device.name: device.taints for device in before.spec.devices}
    return [
        device.name for device in after.spec.devices if device.taints != taints.get(device.name, ())
    ]


def _recent(times: Iterable[float], now: float) -> tuple[float, ...]:
    return tuple(at for at in times if now - at < _WINDOW)
