"""Locks among threads and processes."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubelet_plugin.claims.lock import FileLock, GpuLocks, LockBusyError, LockError
from tests.eventually import eventually


def _lock(path: Path) -> FileLock:
    return FileLock(path, clock=time.monotonic, pause=time.sleep)


def _hold_until_killed(path: Path, held: str) -> None:
    with _lock(path).held(time.monotonic() + 10):
        Path(held).touch()
        signal.pause()


def test_two_holders_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    lock = _lock(tmp_path / "lock")
    with (
        lock.held(time.monotonic() + 1),
        pytest.raises(LockError, match="is held by another call"),
        lock.held(time.monotonic() + 0.05),
    ):
        raise AssertionError("both hold it")
    with lock.held(time.monotonic() + 1):
        pass


def test_who_waits_for_a_turn_is_told_from_who_waits_for_a_holder_that_hangs(
    tmp_path: Path,
) -> None:
    now = [100.0]
    lock = FileLock(tmp_path / "lock", clock=lambda: now[0], pause=time.sleep)
    with lock.held(110.0):
        now[0] = 109.9
        with pytest.raises(LockBusyError, match="calls take turns"), lock.held(now[0]):
            raise AssertionError("both hold it")
        now[0] = 110.0
        with pytest.raises(LockError, match="plugin process that hangs") as caught, lock.held(110):
            raise AssertionError("both hold it")
    assert not isinstance(caught.value, LockBusyError)


def test_a_thread_has_it_as_soon_as_another_lets_it_go(tmp_path: Path) -> None:
    pauses: list[float] = []
    lock = FileLock(tmp_path / "lock", clock=time.monotonic, pause=pauses.append)
    waiting = threading.Event()
    had: list[str] = []

    def wait_for_it() -> None:
        waiting.set()
        with lock.held(time.monotonic() + 10):
            had.append("it")

    with lock.held(time.monotonic() + 1):
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        assert waiting.wait(10)
        assert had == []
    thread.join(10)
    assert had == ["it"]
    assert pauses == []


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "lock"
    with (
        pytest.raises(LockError, match=f"cannot be opened.*{path}"),
        _lock(path).held(time.monotonic() + 1),
    ):
        raise AssertionError("it is held")


def test_a_killed_process_holds_it_no_more(tmp_path: Path) -> None:
    path, held = tmp_path / "lock", tmp_path / "held"
    holder = multiprocessing.get_context("forkserver").Process(
        target=_hold_until_killed, args=(path, str(held))
    )
    holder.start()
    eventually(held.exists, within=20)
    with pytest.raises(LockError), _lock(path).held(time.monotonic() + 0.05):
        raise AssertionError("both hold it")
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with _lock(path).held(time.monotonic() + 1):
        pass


def test_a_file_that_cannot_be_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    path = tmp_path / "lock"
    with (
        pytest.raises(LockError, match=f"{path} cannot be locked.*No locks available"),
        _lock(path).held(time.monotonic() + 1),
    ):
        raise AssertionError("it is held")


def _gpu_locks(folder: Path) -> GpuLocks:
    return GpuLocks(folder, clock=time.monotonic, pause=time.sleep)


def test_gpus_are_locked_each_for_itself(tmp_path: Path) -> None:
    with _gpu_locks(tmp_path).held({"gpu-0", "gpu-1"}, time.monotonic() + 1):
        with _gpu_locks(tmp_path).held({"gpu-2"}, time.monotonic() + 1):
            pass
        for gpus in ({"gpu-1"}, {"gpu-0", "gpu-2"}):
            with (
                pytest.raises(LockError),
                _gpu_locks(tmp_path).held(gpus, time.monotonic() + 0.05),
            ):
                raise AssertionError("both hold it")
    with _gpu_locks(tmp_path).held({"gpu-0", "gpu-1", "gpu-2"}, time.monotonic() + 1):
        pass


def test_a_thread_has_a_gpu_as_soon_as_another_lets_it_go(tmp_path: Path) -> None:
    pauses: list[float] = []
    locks = GpuLocks(tmp_path, clock=time.monotonic, pause=pauses.append)
    waiting = threading.Event()
    had: list[str] = []

    def wait_for_it() -> None:
        waiting.set()
        with locks.held({"gpu-0"}, time.monotonic() + 10):
            had.append("it")

    with locks.held({"gpu-0"}, time.monotonic() + 1):
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        assert waiting.wait(10)
        assert had == []
    thread.join(10)
    assert had == ["it"]
    assert pauses == []


def test_gpus_are_locked_in_the_order_of_their_names(tmp_path: Path) -> None:
    taken: list[str] = []

    def waiting(_: float) -> None:
        for gpu in ("gpu-0", "gpu-2"):
            try:
                with _lock(tmp_path / f"{gpu}.lock").held(time.monotonic()):
                    pass
            except LockError:
                taken.append(gpu)
        held.close()

    with ExitStack() as held:
        held.enter_context(_lock(tmp_path / "gpu-1.lock").held(time.monotonic() + 1))
        locks = GpuLocks(tmp_path, clock=time.monotonic, pause=waiting)
        with locks.held(("gpu-2", "gpu-1", "gpu-0"), time.monotonic() + 10):
            pass
    assert taken == ["gpu-0"]


def test_threads_that_want_the_same_gpus_never_wait_for_each_other_forever(tmp_path: Path) -> None:
    locks = _gpu_locks(tmp_path)
    pairs = [("gpu-0", "gpu-1"), ("gpu-1", "gpu-0")]

    def work(gpus: tuple[str, str]) -> None:
        for _ in range(200):
            with locks.held(gpus, time.monotonic() + 10):
                pass

    threads = [threading.Thread(target=work, args=(pair,)) for pair in pairs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
