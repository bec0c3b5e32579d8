"""Periodic readings of the GPUs."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kubelet_plugin.inventory.change import (
    DriverArrived,
    GpuAppeared,
    InventoryChange,
    ProblemAppeared,
)
from kubelet_plugin.inventory.hang import during_hang
from kubelet_plugin.inventory.health import NvmlHang
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    Inventory,
)
from kubelet_plugin.inventory.poller import InventoryPoller
from tests.samples.gpus import NOTICED, UNREADABLE, gpu, observed

DEADLINE = 10.0
ONE = DriverReady((observed(0),))
TWO = DriverReady((observed(0), observed(1)))
MISSING = DriverMissing("not installed")


class Node:
    """GPUs that a test changes; it sees each reading and may delay it."""

    def __init__(self, inventory: Inventory | Exception) -> None:
        self.inventory = inventory
        self.readings: queue.Queue[Inventory | None] = queue.Queue()
        self.answering = threading.Event()
        self.answering.set()

    def read(self, previous: Inventory | None) -> Inventory:
        self.readings.put(previous)
        assert self.answering.wait(DEADLINE)
        if isinstance(self.inventory, Exception):
            raise self.inventory
        return self.inventory


class Report:
    """Reports, in queues that a test waits on."""

    def __init__(self) -> None:
        self.inventories: queue.Queue[Inventory] = queue.Queue()
        self.reads: queue.Queue[float] = queue.Queue()
        self.changes: queue.Queue[InventoryChange] = queue.Queue()
        self.stalls: queue.Queue[str] = queue.Queue()
        self.failures: list[Exception] = []

    def inventory_read(self, seconds: float) -> None:
        self.reads.put(seconds)

    def inventory_seen(self, inventory: Inventory) -> None:
        if self.failures:
            raise self.failures.pop()

    def inventory_changed(self, change: InventoryChange) -> None:
        self.changes.put(change)

    def inventory_read_stalled(self, seconds: float) -> None:
        self.stalls.put("stalled")

    def inventory_read_resumed(self, seconds: float) -> None:
        self.stalls.put("resumed")


@contextmanager
def polling(
    node: Node,
    report: Report,
    *,
    interval: float = 3600,
    patience: float = 3600,
    changed: Callable[[Inventory], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    judged: Callable[[Inventory], Inventory] = lambda inventory: inventory,
    known: DriverReady | None = None,
) -> Iterator[InventoryPoller]:
    poller = InventoryPoller(
        node.read,
        changed=changed or report.inventories.put,
        reporter=report,
        clock=clock,
        interval=interval,
        patience=patience,
        judged=judged,
        known=known,
        now=lambda: NOTICED,
    )
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()
        node.answering.set()


def test_the_first_reading_is_passed_on() -> None:
    node, report = Node(ONE), Report()
    with polling(node, report) as poller:
        assert report.inventories.get(timeout=DEADLINE) == ONE
        assert poller.latest == ONE
    assert report.changes.empty()


def test_a_reading_is_given_the_previous_inventory() -> None:
    node, report = Node(ONE), Report()
    with polling(node, report) as poller:
        assert node.readings.get(timeout=DEADLINE) is None
        report.inventories.get(timeout=DEADLINE)
        poller.read_now()
        assert node.readings.get(timeout=DEADLINE) == ONE


def test_a_change_is_passed_on_and_reported() -> None:
    node, report = Node(ONE), Report()
    with polling(node, report) as poller:
        report.inventories.get(timeout=DEADLINE)
        node.inventory = TWO
        poller.read_now()
        assert report.inventories.get(timeout=DEADLINE) == TWO
        assert report.changes.get(timeout=DEADLINE) == GpuAppeared(gpu(1))


def test_an_unchanged_inventory_is_not_passed_on_again() -> None:
    node, report = Node(ONE), Report()
    with polling(node, report) as poller:
        report.inventories.get(timeout=DEADLINE)
        for _ in range(3):
            poller.read_now()
            node.readings.get(timeout=DEADLINE)
        node.inventory = TWO
        poller.read_now()
        assert report.inventories.get(timeout=DEADLINE) == TWO


def test_the_gpus_are_read_periodically() -> None:
    node, report = Node(MISSING), Report()
    with polling(node, report, interval=0.01):
        report.inventories.get(timeout=DEADLINE)
        node.inventory = ONE
        assert report.inventories.get(timeout=DEADLINE) == ONE
        while not isinstance(report.changes.get(timeout=DEADLINE), DriverArrived):
            pass


def test_a_reading_that_hangs_is_reported_once_and_again_when_it_returns() -> None:
    node, report = Node(ONE), Report()
    node.answering.clear()
    with polling(node, report, patience=0.01):
        assert report.stalls.get(timeout=DEADLINE) == "stalled"
        with pytest.raises(queue.Empty):
            report.stalls.get(timeout=0.05)
        node.answering.set()
        assert report.stalls.get(timeout=DEADLINE) == "resumed"
        assert report.inventories.get(timeout=DEADLINE) == ONE
    assert report.stalls.empty()


def test_while_a_reading_hangs_no_gpu_is_readable() -> None:
    node, report = Node(TWO), Report()
    with polling(node, report, patience=0.01) as poller:
        assert report.inventories.get(timeout=DEADLINE) == TWO
        node.answering.clear()
        poller.read_now()
        during = report.inventories.get(timeout=DEADLINE)
        assert during == poller.latest == during_hang(TWO, NvmlHang(0.01), NOTICED)
        node.answering.set()
        assert report.inventories.get(timeout=DEADLINE) == TWO


def test_what_counts_of_a_reading_is_passed_on() -> None:
    node, report = Node(ONE), Report()
    judgement = DriverReady((observed(0, UNREADABLE),))
    with polling(node, report, judged=lambda _: judgement) as poller:
        assert report.inventories.get(timeout=DEADLINE) == judgement
        assert poller.latest == judgement
        assert report.changes.get(timeout=DEADLINE) == ProblemAppeared(gpu(0), UNREADABLE)


def test_the_first_reading_is_given_the_gpus_of_an_earlier_process() -> None:
    node, report = Node(TWO), Report()
    with polling(node, report, known=ONE):
        assert node.readings.get(timeout=DEADLINE) == ONE
        assert report.inventories.get(timeout=DEADLINE) == TWO
        assert report.changes.get(timeout=DEADLINE) == GpuAppeared(gpu(1))


def test_the_gpus_of_an_earlier_process_are_unreadable_while_the_first_reading_hangs() -> None:
    node, report = Node(ONE), Report()
    node.answering.clear()
    with polling(node, report, patience=0.01, known=ONE) as poller:
        assert report.inventories.get(timeout=DEADLINE) == during_hang(ONE, NvmlHang(0.01), NOTICED)
        assert poller.latest is not None
        node.answering.set()
        assert report.inventories.get(timeout=DEADLINE) == ONE


def test_the_age_is_that_of_the_last_reading_that_returned() -> None:
    node, report, seconds = Node(ONE), Report(), [100.0]
    with polling(node, report, clock=lambda: seconds[0]) as poller:
        report.inventories.get(timeout=DEADLINE)
        assert poller.age == 0
        node.readings.get(timeout=DEADLINE)
        node.answering.clear()
        seconds[0] += 61
        poller.read_now()
        node.readings.get(timeout=DEADLINE)
        assert poller.age == 61
        node.inventory = TWO
        node.answering.set()
        report.inventories.get(timeout=DEADLINE)
        assert poller.age == 0


def test_a_reading_that_returns_in_time_is_not_reported_as_stalled() -> None:
    node, report = Node(ONE), Report()
    before = set(threading.enumerate())
    with polling(node, report) as poller:
        threads = set(threading.enumerate()) - before
        for _ in range(20):  # the watchdog may not see each of them
            node.answering.clear()
            poller.read_now()
            node.readings.get(timeout=DEADLINE)
            node.answering.set()
            report.reads.get(timeout=DEADLINE)
    for thread in threads:
        thread.join(DEADLINE)
    assert report.stalls.empty()


def test_stopping_does_not_wait_for_a_reading_that_hangs() -> None:
    node, report = Node(ONE), Report()
    node.answering.clear()
    with polling(node, report) as poller:
        node.readings.get(timeout=DEADLINE)
        begun = time.monotonic()
        poller.stop()
        assert (
            time.monotonic() - begun < DEADLINE / 10
        )  # the reading itself hangs for ten times as long
    assert report.inventories.empty()


def test_a_reading_that_ends_after_stopping_is_passed_on_to_nobody_and_the_threads_end() -> None:
    node, report = Node(ONE), Report()
    node.answering.clear()
    before = set(threading.enumerate())
    with polling(node, report) as poller:
        node.readings.get(timeout=DEADLINE)
        threads = set(threading.enumerate()) - before
        poller.stop()
        node.answering.set()
        for thread in threads:
            thread.join(DEADLINE)
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)
    assert report.inventories.empty()
    assert poller.latest is None


def test_how_long_a_reading_took_is_reported() -> None:
    node, report = Node(ONE), Report()
    begun = time.monotonic()
    with polling(node, report):
        assert 0 <= report.reads.get(timeout=DEADLINE) <= time.monotonic() - begun


def test_a_reading_that_fails_unexpectedly_is_logged_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, report = Node(RuntimeError("a bug")), Report()
    with polling(node, report) as poller:
        node.readings.get(timeout=DEADLINE)
        node.inventory = ONE
        poller.read_now()
        assert report.inventories.get(timeout=DEADLINE) == ONE
    assert "the GPUs could not be read" in caplog.text
    assert "a bug" in caplog.text


def test_an_inventory_whose_report_failed_is_passed_on_after_the_next_reading() -> None:
    node, report = Node(ONE), Report()
    report.failures.append(RuntimeError("a bug"))
    with polling(node, report) as poller:
        node.readings.get(timeout=DEADLINE)
        poller.read_now()
        assert report.inventories.get(timeout=DEADLINE) == ONE


def test_an_inventory_whose_receiver_failed_is_passed_on_after_the_next_reading() -> None:
    node, report = Node(ONE), Report()
    failures = [RuntimeError("a bug")]

    def take(inventory: Inventory) -> None:
        if failures:
            raise failures.pop()
        report.inventories.put(inventory)

    with polling(node, report, changed=take) as poller:
        node.readings.get(timeout=DEADLINE)
        poller.read_now()
        assert report.inventories.get(timeout=DEADLINE) == ONE


def test_the_latest_inventory_is_available_before_it_is_passed_on() -> None:
    node, report = Node(ONE), Report()
    known: queue.Queue[Inventory | None] = queue.Queue()
    started = threading.Event()

    def take(_: Inventory) -> None:
        assert started.wait(DEADLINE)
        known.put(poller.latest)

    with polling(node, report, changed=take) as poller:
        started.set()
        assert known.get(timeout=DEADLINE) == ONE
