"""Runs a program that ends itself with SIGKILL before its n-th step about something.

    python -m tests.integration.killed NUMBER WORDS MODULE ARGUMENTS...

A step is a change of a file, or the start of another program, in which one of the WORDS occurs;
they are separated by commas. The program is one that Python has as a module.
"""

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

_STEPS: Final = frozenset(
    {
        "os.chmod",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "shutil.rmtree",
        "subprocess.Popen",
    }
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def killed_before(number: int, words: Sequence[str], command: Sequence[str]) -> list[str]:
    """Returns the command of a Python module so that its process ends itself before a step."""
    python, flag, module, *arguments = command
    assert flag == "-m"
    return [
        *(python, "-m", "tests.integration.killed", str(number), ",".join(words)),
        *(module, *arguments),
    ]


def _kill_before(number: int, words: Sequence[str]) -> None:
    left = number

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if not (writes or event in _STEPS):
            return
        text = str(arguments)
        if any(word in text for word in words):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(audit)


def main() -> None:
    """Runs the module."""
    number, words, module, *arguments = sys.argv[1:]
    _kill_before(int(number), words.split(","))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
