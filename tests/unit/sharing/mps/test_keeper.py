"""What is told of an MPS daemon while it is kept, by a daemon that does what a test says."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.sharing.message import MpsDaemon, MpsDevice, Reference, WantedDaemon
from sharing.mps import course, keeper
from sharing.mps.control_daemon import ControlDaemon, DaemonError, DaemonTurns
from sharing.mps.installation import MpsSearch
from sharing.mps.keeper import Keeper
from tests.eventually import eventually


def wanted(memory_mib: int = 1000) -> WantedDaemon:
    return WantedDaemon(
        claim=Reference(namespace="default", name="a", uid="uid-a"),
        devices=(MpsDevice(uuid="GPU-a", memory_mib=memory_mib),),
        thread_percentage=10,
    )


A, OTHER = wanted(), wanted(2000)


class Made(ControlDaemon):
    """A daemon that takes its steps when a test lets it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            "uid-a",
            search=MpsSearch(
                DriverSearch([]),
                host_root=folder,
                cgroup_root=folder,
                plugin_directory=folder,
                links=folder,
            ),
            cgroup_root=folder,
            driver_name="gpu.carina.dev",
            turns=DaemonTurns(1),
        )
        self.steps: list[str] = []
        self.fails: dict[str, deque[Exception]] = {}
        """What the next steps of a kind raise."""
        self.may: dict[str, threading.Event] = {}
        """A step of a kind waits for this."""
        self.left: WantedDaemon | None = None
        """What an earlier process has started."""
        self._dead, self._dies = os.pipe2(os.O_NONBLOCK)

    @property
    def leader(self) -> int | None:
        return self._dead

    def die(self) -> None:
        os.write(self._dies, b"-")

    def close(self) -> None:
        os.close(self._dead)
        os.close(self._dies)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.may:
            assert self.may[name].wait(60)
        if self.fails.get(name):
            raise self.fails[name].popleft()

    def recorded(self) -> WantedDaemon | None:
        return self.left

    def adopt(self, wanted: WantedDaemon) -> bool:
        self._step("adopt")
        return self.left == wanted

    def start(self, wanted: WantedDaemon) -> None:
        self._step("start")

    def probe(self) -> None:
        self._step("probe")

    def end(self) -> None:
        self._step("end")
        with suppress(BlockingIOError):
            os.read(self._dead, 1)

    def remove(self) -> None:
        self._step("remove")


class Kept:
    """A daemon with its keeper, and what it tells."""

    def __init__(self, daemon: Made) -> None:
        self.daemon = daemon
        self.told: list[MpsDaemon | None] = []
        self.removed: list[Keeper] = []
        self.keeper: Keeper

    def start(self, want: WantedDaemon | None = A) -> None:
        self.keeper = Keeper(
            "uid-a", self.daemon, wanted=want, tell=self._tell, removed=self.removed.append
        )
        self.keeper.start()

    def _tell(self) -> None:
        self.told.append(self.keeper.report())

    def state(self) -> str | None:
        report = self.keeper.report()
        return None if report is None else report.state

    def ready(self) -> None:
        eventually(lambda: self.state() == "ready")

    def hold(self, step: str) -> threading.Event:
        """Has the next step of a kind wait until the event is set."""
        return self.daemon.may.setdefault(step, threading.Event())

    def reached(self, step: str, times: int = 1) -> None:
        eventually(lambda: self.daemon.steps.count(step) >= times)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    daemon = Made(tmp_path)
    made = Kept(daemon)
    yield made
    for event in daemon.may.values():
        event.set()
    made.keeper.want(None)
    eventually(lambda: made.removed)
    daemon.close()


def test_a_daemon_is_ready_when_it_has_started_and_not_before(kept: Kept) -> None:
    start = kept.hold("start")
    kept.start()
    kept.reached("start")
    assert kept.keeper.report() == MpsDaemon(wanted=A, state="starting")
    start.set()
    kept.ready()
    assert kept.told[-1] == MpsDaemon(wanted=A, state="ready")


def test_one_that_runs_with_other_limits_is_not_ready(kept: Kept) -> None:
    kept.start()
    kept.ready()
    end = kept.hold("end")
    kept.keeper.want(OTHER)
    assert kept.keeper.report() == MpsDaemon(wanted=OTHER, state="starting")
    kept.reached("end", 2)
    assert kept.keeper.report() == MpsDaemon(wanted=OTHER, state="starting")
    end.set()
    kept.ready()
    assert kept.keeper.report() == MpsDaemon(wanted=OTHER, state="ready", restarts=1)


def test_one_that_ends_is_told_until_it_has(kept: Kept) -> None:
    kept.start()
    kept.ready()
    end = kept.hold("end")
    kept.keeper.want(None)
    kept.reached("end", 2)
    assert kept.keeper.report() == MpsDaemon(wanted=A, state="starting")
    assert not kept.removed
    end.set()
    eventually(lambda: kept.removed)


def test_one_that_ends_is_told_with_the_limits_that_it_had_last(kept: Kept) -> None:
    kept.start()
    kept.ready()
    kept.keeper.want(OTHER)
    kept.ready()
    kept.hold("end")
    kept.keeper.want(None)
    kept.reached("end", 3)
    assert kept.keeper.report() == MpsDaemon(wanted=OTHER, state="starting", restarts=1)


def test_one_that_an_earlier_process_has_left_is_told_until_it_has_ended(kept: Kept) -> None:
    kept.daemon.left = A
    end = kept.hold("end")
    kept.start(None)
    kept.reached("end")
    assert kept.keeper.report() == MpsDaemon(wanted=A, state="starting")
    end.set()
    eventually(lambda: kept.removed)


def test_one_that_is_adopted_is_ready_and_not_ended(kept: Kept) -> None:
    kept.daemon.left = A
    kept.start()
    kept.ready()
    assert kept.daemon.steps == ["adopt"]


def test_what_cannot_be_told_is_neither_ended_nor_started(kept: Kept) -> None:
    kept.daemon.left = A
    kept.daemon.fails["adopt"] = deque([DaemonError("no driver is loaded")])
    kept.start()
    kept.reached("adopt", 2)
    kept.ready()
    assert kept.daemon.steps == ["adopt", "adopt"]
    assert MpsDaemon(wanted=A, state="failed", reason="no driver is loaded") in kept.told


def test_the_end_of_its_process_is_told_at_once(kept: Kept) -> None:
    kept.start()
    kept.ready()
    end = kept.hold("end")
    kept.daemon.die()
    kept.reached("end", 2)
    failed = MpsDaemon(wanted=A, state="failed", reason="its process ended")
    assert kept.told[-1] == failed
    assert "probe" not in kept.daemon.steps
    end.set()
    kept.ready()
    assert kept.keeper.report() == MpsDaemon(wanted=A, state="ready", restarts=1)


def test_one_that_misses_three_probes_is_ended_and_started(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROBE_INTERVAL", "_RETRY_PROBE"):
        monkeypatch.setattr(course, name, 0.01)
    misses = [DaemonError("no answer")] * 3
    kept.daemon.fails["probe"] = deque(misses)
    kept.start()
    kept.reached("start", 2)
    kept.ready()
    failed = MpsDaemon(wanted=A, state="failed", reason="3 probes failed: no answer")
    assert failed in kept.told
    steps = kept.daemon.steps
    assert steps[: steps.index("start", 3) + 1] == [
        *("adopt", "end", "start"),
        *("probe", "probe", "probe"),
        *("end", "start"),
    ]


def test_one_that_is_not_started_says_why(kept: Kept) -> None:
    kept.daemon.fails["start"] = deque([DaemonError("no answer")])
    kept.start()
    kept.ready()
    assert MpsDaemon(wanted=A, state="failed", reason="no answer") in kept.told


def test_processes_that_do_not_end_are_told_and_nothing_is_started_beside_them(kept: Kept) -> None:
    kept.start()
    kept.ready()
    kept.daemon.fails["end"] = deque([DaemonError("1234 does not end")])
    kept.keeper.want(OTHER)
    kept.ready()
    assert MpsDaemon(wanted=OTHER, state="failed", reason="1234 does not end") in kept.told
    assert kept.daemon.steps[2:] == ["start", "end", "end", "start"]


def test_a_folder_that_cannot_be_removed_is_tried_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_RETRY_REMOVAL", 0.01)
    kept.daemon.fails["remove"] = deque([DaemonError("it is in use")])
    kept.start()
    kept.ready()
    kept.keeper.want(None)
    eventually(lambda: kept.removed)
    assert kept.daemon.steps[-2:] == ["remove", "remove"]


def test_a_bug_ends_no_supervision(kept: Kept) -> None:
    kept.daemon.fails["start"] = deque([ZeroDivisionError("a bug")])
    kept.start()
    kept.ready()
    assert any(told and "error of carina-sharing" in told.reason for told in kept.told)


def test_one_that_is_wanted_again_before_it_is_removed_is_started(kept: Kept) -> None:
    kept.start()
    kept.ready()
    remove = kept.hold("remove")
    kept.keeper.want(None)
    kept.reached("remove")
    assert kept.keeper.want(A)
    remove.set()
    eventually(lambda: kept.daemon.steps.count("start") == 2)
    kept.ready()
    assert not kept.removed


def test_a_keeper_that_has_ended_says_so_to_who_wants_the_daemon_again(kept: Kept) -> None:
    kept.start()
    kept.ready()
    before = len(kept.told)
    kept.keeper.want(None)
    eventually(lambda: kept.removed)
    eventually(lambda: len(kept.told) > before)
    assert not kept.keeper.want(A)
    assert not kept.keeper.want(None)


def test_a_keeper_that_has_ended_has_no_descriptor(kept: Kept) -> None:
    before = os.listdir("/proc/self/fd")
    kept.start()
    kept.ready()
    kept.keeper.want(None)
    eventually(lambda: kept.removed)
    assert os.listdir("/proc/self/fd") == before
