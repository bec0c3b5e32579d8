"""Pauses Python's cyclic garbage collector while many long-lived objects are created.

Parsing a list creates millions of objects and no cycles; collections meanwhile take 55 to 80 % of
the time. Later, each collection of all objects takes a second for a cluster of 5,000 nodes, in the
middle of a decision, unless these objects are exempt. Collections would take half of the first
decision on 5,000 nodes, which remembers much of each of them.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_freezes = False
"""Whether one of the pauses asks for the objects to be exempt."""


@contextmanager
def collector_paused(*, freeze: bool = False) -> Iterator[None]:
    """Pauses the collector. If several threads do, it resumes after the last of them.

    freeze: exempts all objects that exist at the end from later collections. They are still freed
        when nothing refers to them, but not as part of a cycle. Use it once, around the first lists
        of a process that keeps them while it lives.

    A collector that was off before stays off.
    """
    global _pauses, _freezes  # noqa: PLW0603 - the process has one collector, so one count
    with _lock:
        if _pauses == 0 and not gc.isenabled():
            was_paused = False
        else:
            was_paused = True
            if freeze:
                gc.collect()  # cycles that are garbage would be kept for good
            _freezes = _freezes or freeze
            _pauses += 1
            gc.disable()
    try:
        yield
    finally:
        if was_paused:
            with _lock:
                _pauses -= 1
                if _pauses == 0:
                    if _freezes:
                        gc.freeze()
                    _freezes = False
                    gc.enable()
