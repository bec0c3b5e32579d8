"""Tells a person at a terminal how far a command has come that takes more than a second or two."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO, TypeAlias

_FIRST: Final = 1.0
"""Seconds before anything is shown: most commands are done by then."""
_INTERVAL: Final = 0.2
_CLEAR: Final = "\r\x1b[K"
"""Goes to the beginning of the line, and erases it."""

Show: TypeAlias = Callable[[str], None]
"""Is told how far a command has come, as often as it likes."""


@contextmanager
def progress(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Show]:
    """Shows a line on standard error that is gone when the block ends.

    Nothing is written unless it is a terminal, so files and pipes have no trace of it.
    """
    shown_on = sys.stderr if stream is None else stream
    if shown_on is None or not shown_on.isatty():
        yield lambda _: None
        return
    due = clock() + _FIRST
    has_shown = False

    def show(text: str) -> None:
        nonlocal due, has_shown
        if clock() >= due:
            due, has_shown = clock() + _INTERVAL, True
            shown_on.write(_CLEAR + text)
            shown_on.flush()

    try:
        yield show
    finally:
        if has_shown:
            shown_on.write(_CLEAR)
            shown_on.flush()
