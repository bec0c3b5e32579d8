"""A process is told to end by a signal, and by a thread of its own that fails."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from carina_dra.process import termination
from carina_dra.process.termination import Termination

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_INTERRUPTED = """
import signal, sys
from carina_dra.process import termination

stop = termination.watch().stop

def interrupt(frame, event, argument):
    if event == "line":
        signal.raise_signal(signal.SIGTERM)
    return interrupt

sys.settrace(interrupt)
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
stop.wait()
"""
"""Sends a second signal at every line of Python that runs while the first is handled."""

_BURST = """
import os, sys
for _ in range(2000):
    try:
        os.kill(int(sys.argv[1]), 15)
    except ProcessLookupError:
        break
"""

_WAITS = """
from carina_dra.process import termination

stop = termination.watch().stop
print("ready", flush=True)
stop.wait()
"""

_CHILD = """
import signal, subprocess, sys
from carina_dra.process import termination

termination.watch()
child = subprocess.Popen(["sleep", "60"])
child.terminate()
print(child.wait(30))
"""

_ENDS_WITHIN = 30


@pytest.fixture
def terminated() -> Iterator[Termination]:
    handlers, hook = [signal.getsignal(number) for number in _SIGNALS], threading.excepthook
    descriptor = signal.set_wakeup_fd(-1)
    yield termination.watch()
    signal.set_wakeup_fd(descriptor)
    threading.excepthook = hook
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_signal_stops_the_process_which_has_not_failed(
    terminated: Termination, number: signal.Signals
) -> None:
    assert not terminated.stop.is_set()
    os.kill(os.getpid(), number)
    assert terminated.stop.wait(10)
    terminated.exit_if_failed()


def test_a_signal_that_the_process_does_not_handle_does_not_stop_it(
    terminated: Termination,
) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)
    assert not terminated.stop.wait(0.05)
    signal.raise_signal(signal.SIGTERM)
    assert terminated.stop.wait(10)


def test_a_signal_while_the_last_is_handled_does_not_hang_the_process() -> None:
    subprocess.run([sys.executable, "-c", _INTERRUPTED], timeout=_ENDS_WITHIN, check=True)


def test_bursts_of_signals_from_two_processes_end_the_process() -> None:
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process, process.stdout:
            process.stdout.readline()
            senders = [
                subprocess.Popen([sys.executable, "-c", _BURST, str(process.pid)]) for _ in range(2)
            ]
            for sender in senders:
                sender.wait(_ENDS_WITHIN)
            try:
                # A signal in the last moments of the interpreter has its default action.
                assert process.wait(_ENDS_WITHIN) in {0, -signal.SIGTERM}
            finally:
                process.kill()


def test_children_receive_signals_as_usual() -> None:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD], timeout=_ENDS_WITHIN, check=True, stdout=subprocess.PIPE
    )
    assert int(child.stdout) == -signal.SIGTERM


def test_a_thread_that_fails_stops_the_process_with_status_1(terminated: Termination) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    thread = threading.Thread(target=fail)
    thread.start()
    assert terminated.stop.wait(10)
    thread.join()
    with pytest.raises(SystemExit) as ended:
        terminated.exit_if_failed()
    assert ended.value.code == 1
