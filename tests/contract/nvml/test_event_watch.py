"""The thread that waits for the driver's events. On the simulation."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.nvml import event_watch
from kubelet_plugin.nvml.event_watch import EventWatch
from simulation.nvml import SimulatedNode, installed
from tests.eventually import eventually
from tests.fakes.nvml_calls import nvml_calls

DEADLINE = 30.0
NEWEST = "590.48.01"


class Listener:
    """Keeps the XIDs, each of which has the GPUs read."""

    def __init__(self) -> None:
        self.xids: queue.Queue[tuple[str, int, MigSite | None]] = queue.Queue()

    def xid(self, uuid: str, number: int, site: MigSite | None) -> bool:
        self.xids.put((uuid, number, site))
        return number not in (13, 31)


class Watched:
    """A node with a watch whose clock a test sets."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.library = NvmlLibrary(HostPaths(node.root).gpu_addresses, patience=1.0)
        self.listener = Listener()
        self.reads: queue.Queue[float] = queue.Queue()
        self.offset = 0.0
        self.watch = EventWatch(
            self.library,
            self.listener,
            wake=lambda: self.reads.put(self.clock()),
            clock=self.clock,
            wait=0.05,
        )

    def clock(self) -> float:
        return time.monotonic() + self.offset

    def uuid(self, minor: int) -> str:
        return self.node.state.gpus[minor].uuid

    def wait_registered(self) -> None:
        eventually(lambda: self.watch.registered == 8)

    def next_xid(self) -> tuple[str, int, MigSite | None]:
        return self.listener.xids.get(timeout=DEADLINE)


@contextmanager
def watching(node: SimulatedNode) -> Iterator[Watched]:
    watched = Watched(node)
    with installed(node.directory):
        watched.watch.start()
        try:
            watched.wait_registered()
            yield watched
        finally:
            node.heal()
            watched.watch.stop()
            eventually(
                lambda: all(thread.name != "nvml-events" for thread in threading.enumerate())
            )


@pytest.fixture(params=["550.163.01", NEWEST])
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=request.param)
    with watching(node) as made:
        yield made


def test_an_xid_is_told_and_has_the_gpus_read(watched: Watched) -> None:
    watched.node.xid(3, 95)
    assert watched.next_xid() == (watched.uuid(3), 95, None)
    watched.reads.get(timeout=DEADLINE)


def test_the_gpus_are_read_again_after_one_second_and_after_five(watched: Watched) -> None:
    watched.node.xid(3, 95)
    first = watched.reads.get(timeout=DEADLINE)
    watched.offset += 1.0
    second = watched.reads.get(timeout=DEADLINE)
    watched.offset += 4.0
    third = watched.reads.get(timeout=DEADLINE)
    assert second - first >= 1.0
    assert third - first >= 5.0
    watched.offset += 60.0
    watched.node.xid(3, 13)
    watched.next_xid()
    assert watched.reads.empty()


def test_an_xid_that_changes_nothing_has_nothing_read(watched: Watched) -> None:
    watched.node.xid(3, 31)
    watched.node.xid(3, 13)
    assert [watched.next_xid()[1] for _ in range(2)] == [31, 13]
    assert watched.reads.empty()


def test_a_thousand_xids_have_the_gpus_read_a_few_times(watched: Watched) -> None:
    for _ in range(200):
        watched.node.xid(3, 95)
    for _ in range(200):
        watched.next_xid()
    begun = watched.reads.get(timeout=DEADLINE)
    took = watched.clock() - begun
    assert watched.reads.qsize() <= took + 1


def test_an_unknown_xid_has_the_gpus_read_and_is_none(watched: Watched) -> None:
    watched.node.xid(3, 999)
    watched.reads.get(timeout=DEADLINE)
    assert watched.listener.xids.empty()


def test_a_contained_error_names_its_gpu_instance(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=NEWEST)
    with watching(node) as watched, watched.library.lease():
        gpu = pynvml.nvmlDeviceGetHandleByIndex(2)
        pynvml.nvmlDeviceSetMigMode(gpu, 1)
        instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 19)
        info = pynvml.nvmlGpuInstanceGetInfo(instance)
        at = MigPlacement(info.placement.start, info.placement.size)

        node.xid(2, 94, gpu_instance=info.id)
        assert watched.next_xid() == (watched.uuid(2), 94, MigSite(19, at))
        node.xid(2, 94, gpu_instance=14)
        assert watched.next_xid() == (watched.uuid(2), 94, None)
        node.xid(2, 95, gpu_instance=info.id)
        assert watched.next_xid() == (watched.uuid(2), 95, None)


def test_a_change_of_the_recovery_action_has_the_gpus_read(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=NEWEST)
    with watching(node) as watched:
        node.recovery_action(5, 1)
        watched.reads.get(timeout=DEADLINE)
        assert watched.listener.xids.empty()


def test_a_gpu_that_falls_off_the_bus_leaves_the_events_of_others(watched: Watched) -> None:
    watched.node.lose_gpu(3)
    watched.reads.get(timeout=DEADLINE)
    eventually(lambda: watched.watch.registered == 7)
    while not watched.listener.xids.empty():  # its XID 79 may be lost with it
        watched.listener.xids.get()
    watched.node.xid(4, 95)
    assert watched.next_xid() == (watched.uuid(4), 95, None)

    watched.node.reset_gpu(3)
    watched.offset += 61.0
    watched.wait_registered()
    watched.node.xid(3, 48)
    assert watched.next_xid() == (watched.uuid(3), 48, None)


def test_events_come_again_after_the_driver_was_reloaded(watched: Watched) -> None:
    watched.node.driver(available=False)
    eventually(lambda: watched.watch.registered == 0)
    watched.node.driver(available=True)
    watched.wait_registered()
    watched.node.xid(1, 95)
    assert watched.next_xid() == (watched.uuid(1), 95, None)


def test_a_gpu_that_is_plugged_in_has_events(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", unplugged=[7])
    watched = Watched(node)
    with installed(node.directory):
        watched.watch.start()
        eventually(lambda: watched.watch.registered == 7)
        node.plug(7)
        watched.wait_registered()
        node.xid(7, 95)
        assert watched.next_xid() == (watched.uuid(7), 95, None)
        watched.watch.stop()


def test_a_wait_that_hangs_does_not_keep_others_from_the_library(watched: Watched) -> None:
    watched.node.hang("nvmlEventSetWait_v2")
    watched.node.plug(0)
    with watched.library.lease():
        assert pynvml.nvmlDeviceGetCount() == 8
    watched.watch.stop()


@pytest.mark.parametrize("failing", ["nvmlEventSetWait_v2", "nvmlDeviceGetCount_v2"])
def test_event_sets_are_freed_while_the_driver_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(event_watch, "_PAUSE", 0.01)
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=NEWEST)

    def fail(_number: int, symbol: str) -> int | None:
        return pynvml.NVML_ERROR_UNKNOWN if symbol == failing else None

    with nvml_calls(node.directory, fail) as calls:
        watched = Watched(node)
        watched.watch.start()
        eventually(lambda: calls.symbols.count("nvmlEventSetCreate") >= 5)
        watched.watch.stop()
        eventually(lambda: all(thread.name != "nvml-events" for thread in threading.enumerate()))
    made, freed = (calls.symbols.count(f"nvmlEventSet{word}") for word in ("Create", "Free"))
    assert made - freed <= 1


def test_at_rest_it_makes_one_call_a_wait(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=NEWEST)
    with nvml_calls(node.directory) as calls:
        watched = Watched(node)
        watched.watch.start()
        watched.wait_registered()
        calls.symbols.clear()
        eventually(lambda: len(calls.symbols) >= 5)
        watched.watch.stop()
    assert set(calls.symbols) == {"nvmlEventSetWait_v2"}


def test_an_event_set_is_freed_before_the_next_is_made(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "dgx-h100", driver_version=NEWEST)
    with nvml_calls(node.directory) as calls:
        watched = Watched(node)
        watched.watch.start()
        watched.wait_registered()
        watched.offset += 61.0
        eventually(lambda: calls.symbols.count("nvmlEventSetCreate") == 2)
        watched.watch.stop()
    sets = [name for name in calls.symbols if name in ("nvmlEventSetCreate", "nvmlEventSetFree")]
    assert sets == ["nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetCreate"]
