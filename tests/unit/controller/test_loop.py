"""The loop waits for work, and for the word to stop."""

import threading
from typing import Any

from controller.loop import Inbox, Loop
from controller.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.report.metrics import Metrics


class _Inbox(Inbox):
    """Says when the loop waits for work."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()

    def do(self, timeout: float) -> bool:
        if timeout > 1:
            self.awaited.set()
        return super().do(timeout)


class _Nothing:
    """A cluster in which there is nothing, and nobody to report it to."""

    def start(self) -> None: ...

    def unsynced(self) -> list[str]:
        return []

    def report(self, *_: object) -> bool:
        return False


def test_loop_that_has_nothing_to_do_stops_at_once() -> None:
    nothing: Any = _Nothing()
    inbox, stopping = _Inbox(), threading.Event()
    loop = Loop(
        Mirror(Snapshot(now=0)),
        None,
        nothing,
        nothing,
        Metrics(),
        inbox=inbox,
        verdict_seconds=1,
        avoid_seconds=1,
    )
    running = threading.Thread(target=loop.run, args=(nothing, stopping), daemon=True)
    running.start()
    assert inbox.awaited.wait(10)

    stopping.set()

    running.join(5)
    assert not running.is_alive()
