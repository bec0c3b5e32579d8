"""The node's lock."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from kubelet_plugin.claims.lock import LockError, NodeLock


def _lock(path: Path) -> NodeLock:
    return NodeLock(path, clock=time.monotonic, pause=time.sleep)


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


def test_a_thread_has_it_as_soon_as_another_lets_it_go(tmp_path: Path) -> None:
    pauses: list[float] = []
    lock = NodeLock(tmp_path / "lock", clock=time.monotonic, pause=pauses.append)
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
    deadline = time.monotonic() + 20
    while not held.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(LockError), _lock(path).held(time.monotonic() + 0.05):
        raise AssertionError("both hold it")
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with _lock(path).held(time.monotonic() + 1):
        pass
