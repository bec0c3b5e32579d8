"""A process is told to end by a signal, and by a thread of its own that fails."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from carina_dra.process import termination
from carina_dra.process.termination import Termination

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def terminated() -> Iterator[Termination]:
    handlers, hook = [signal.getsignal(number) for number in _SIGNALS], threading.excepthook
    yield termination.watch()
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
