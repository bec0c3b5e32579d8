"""Writes of taints that change again and again, against a reader of slices that counts them."""

import math
from dataclasses import replace

import pytest

from carina_dra.node_keys import NodeKeys
from carina_dra.resource import Device, DeviceTaint, ResourceSlice, TaintEffect
from kubelet_plugin.publish.pacing import TaintWrites, paced, unpaced
from kubelet_plugin.publish.pool import DeviceSlice, PublishedPool
from kubelet_plugin.publish.sync import SlicePlan, resource_slices, sync

LOOK = 5.0
IN_A_SLICE = 4


class Pool:
    """The slices of GPUs, each of which has devices in two of them."""

    def __init__(self, gpus: int) -> None:
        self.gpus, self.now = gpus, 0.0
        self.writes = TaintWrites()
        self.times: list[float] = []
        self.due = math.inf
        self.slices = [
            named(new, index) for index, new in enumerate(resource_slices(self._pool({}), 1))
        ]

    def see(self, bad: dict[int, str]) -> None:
        """Publishes that these GPUs, and no others, have a taint of this state."""
        plan = sync(self._pool(bad), self.slices)
        due, self.due = paced(plan, self.slices, self.writes, self.now)
        self.writes = self.writes.after(plan, due, self.slices, self.now)
        written = {new.metadata.name: new for new in due.update}
        self.slices = [written.get(old.metadata.name, old) for old in self.slices]
        self.times += [self.now for _ in written]
        self.now += LOOK

    def tainted(self) -> dict[str, str]:
        return {
            device.name: device.taints[0].key
            for current in self.slices
            for device in current.spec.devices
            if device.taints
        }

    def most_in_a_minute(self, since: float = 0.0) -> int:
        times = [at for at in self.times if at >= since]
        return max((sum(0 <= at - start < 60 for at in times) for start in times), default=0)

    def _pool(self, bad: dict[int, str]) -> PublishedPool:
        devices = [
            Device(name=f"gpu-{gpu}{kind}", taints=taints(bad[gpu]) if gpu in bad else ())
            for kind in ("", "-share")
            for gpu in range(self.gpus)
        ]
        slices = (
            DeviceSlice(tuple(devices[at : at + IN_A_SLICE]))
            for at in range(0, len(devices), IN_A_SLICE)
        )
        return PublishedPool("gpu.carina.dev", "node-1", tuple(slices))


def named(new: ResourceSlice, index: int) -> ResourceSlice:
    return replace(new, metadata=replace(new.metadata, name=f"slice-{index}"))


def taints(state: str) -> tuple[DeviceTaint, ...]:
    return (DeviceTaint(key=state, effect=TaintEffect.NO_SCHEDULE),)


@pytest.mark.parametrize("gpus", [1, 4, 16])
def test_a_first_fault_and_its_end_are_written_at_once(gpus: int) -> None:
    pool = Pool(gpus)
    pool.see(dict.fromkeys(range(gpus), "lost"))
    assert len(pool.tainted()) == 2 * gpus
    pool.see({})
    assert pool.tainted() == {}
    assert pool.due == math.inf


def test_a_first_fault_waits_for_no_other_gpu() -> None:
    pool = Pool(8)
    for n in range(60):
        pool.see({0: "lost"} if n % 2 else {})
    pool.see({7: "lost"})
    assert {"gpu-7", "gpu-7-share"} <= pool.tainted().keys()


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("states", [1, 3])
@pytest.mark.parametrize("length", [1, 3, 14])
@pytest.mark.parametrize("pauses", [True, False])
def test_gpus_that_come_and_go_cost_four_writes_a_minute(
    gpus: int, states: int, length: int, pauses: bool
) -> None:
    pool = Pool(gpus)
    first = 2 * 2 * length * gpus
    for look in range(first + 12 * 20):
        turn, well = divmod(look // length, 2)
        state = f"state-{turn // gpus % states}"
        pool.see({} if well and pauses else {turn % gpus: state})
    assert pool.times
    assert pool.most_in_a_minute(first * LOOK) <= 4


def test_what_waits_is_written_as_soon_as_there_is_room_in_the_end() -> None:
    pool = Pool(8)
    for n in range(100):
        pool.see({n % 8: f"state-{n % 3}"})
    bad = {3: "lost"}
    for _ in range(12 * 2):
        pool.see(bad)
    assert pool.tainted() == {"gpu-3": "lost", "gpu-3-share": "lost"}
    assert pool.due == math.inf


def test_the_rest_is_due_when_the_first_writes_of_the_minute_are_a_minute_old() -> None:
    pool = Pool(1)
    for n in range(4):
        pool.see({} if n % 2 else {0: "lost"})
    pool.see({0: "lost"})
    assert len(pool.times) == 4
    assert pool.due == pool.times[0] + 60


def test_changes_are_forgotten_after_half_an_hour() -> None:
    pool = Pool(1)
    for n in range(5):
        pool.see({} if n % 2 else {0: "lost"})
    pool.now += 1801
    pool.see({})
    pool.see({0: "lost"})
    assert len(pool.tainted()) == 2


def test_release_and_restore_of_a_node_never_wait() -> None:
    pool, released = Pool(8), NodeKeys("gpu.carina.dev").released_taint
    for n in range(12):
        pool.see({} if n % 2 else dict.fromkeys(range(8), released))
        assert len(pool.tainted()) == (0 if n % 2 else 16)


def test_without_damping_nothing_waits() -> None:
    plan = SlicePlan(update=tuple(Pool(1).slices))
    assert unpaced(plan, (), TaintWrites(), 0.0) == (plan, math.inf)
