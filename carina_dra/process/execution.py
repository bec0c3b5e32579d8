"""A process that replaces itself by another program, or starts again.

SIGTERM and SIGINT are blocked meanwhile, and stay blocked in the program that comes next until it
has handlers for them. So none is lost, not even by a process with the ID 1, which ignores signals
without a handler.
"""

import contextlib
import os
import signal
import sys
from typing import NoReturn

from carina_dra.process.termination import SIGNALS


def start_again() -> NoReturn:
    """Replaces the process by one with the same command, which has none of its files open."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself, which is closed
            if int(number) > sys.stderr.fileno():
                os.set_inheritable(int(number), False)  # noqa: FBT003 - its signature
    replace_by(list(sys.orig_argv))


def replace_by(command: list[str]) -> NoReturn:
    """Replaces the process by one with the interpreter and a command of this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.execv(sys.executable, command)  # noqa: S606 - the interpreter, with a command of this process
