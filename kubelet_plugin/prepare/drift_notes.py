"""Notes of what ports had to make, on the thread that makes it.

A port knows best whether something was there. It notes each thing that it makes or replaces; of a
claim that is being prepared these are no drifts, of one that was complete they are.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kubelet_plugin.claims.drift import DriftNote


class DriftNotes(threading.local):
    """What was made on this thread while it is being collected. Calls do not nest."""

    def __init__(self) -> None:
        self._collected: list[DriftNote] | None = None

    def note(self, found: DriftNote) -> None:
        """Notes that something was not as it has to be, before it is made."""
        if self._collected is not None:
            self._collected.append(found)

    @contextmanager
    def collected(self) -> Iterator[list[DriftNote]]:
        """Collects what is noted inside the `with` block."""
        found: list[DriftNote] = []
        self._collected = found
        try:
            yield found
        finally:
            self._collected = None
