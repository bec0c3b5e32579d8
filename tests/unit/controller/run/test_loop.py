"""The loop waits for work, and for the word to stop."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.commit import Commit
from controller.act.takeover import Unsettled
from controller.act.writer import Fenced
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from controller.report.metrics import Metrics
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import Scene, gpu_slice


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


class _SlowToFence:
    """A writer that fences when it is told to."""

    def __init__(self) -> None:
        self.unsettled: list[Unsettled] = []
        self.begun = threading.Event()
        self.commits: list[Commit] = []

    settled = True

    def fence(self, unsettled: Unsettled, *, until: float) -> None:
        del until
        self.unsettled.append(unsettled)
        self.begun.set()

    def commit(self, commit: Commit) -> None:
        self.commits.append(commit)


class _Report(_Nothing):
    def __init__(self) -> None:
        self.reported = threading.Event()

    def report(self, *_: object) -> bool:
        self.reported.set()
        return False


def _run(
    mirror: Mirror, writer: _SlowToFence, report: _Report, inbox: Inbox, *, takes_over: bool
) -> tuple[Loop, Callable[[], None]]:
    """A loop that runs, and what ends it."""
    a_writer: Any = writer
    a_report: Any = report
    nothing: Any = _Nothing()
    stopping = threading.Event()
    loop = Loop(
        mirror,
        a_writer,
        a_report,
        nothing,
        Metrics(),
        inbox=inbox,
        takes_over=takes_over,
        verdict_seconds=1,
        avoid_seconds=1,
    )
    running = threading.Thread(target=loop.run, args=(nothing, stopping), daemon=True)
    running.start()

    def end() -> None:
        stopping.set()
        running.join(5)
        assert not running.is_alive()

    return loop, end


def test_a_leader_decides_after_a_while_though_not_all_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.run.loop._FENCE", 0.2)
    mirror = Mirror(Snapshot(now=0, settings=Scene().settings))
    mirror.put_pod(read_pod(pod_body("p")))
    writer, report, inbox = _SlowToFence(), _Report(), Inbox()
    loop, end = _run(mirror, writer, report, inbox, takes_over=True)

    assert report.reported.wait(10)

    assert writer.unsettled
    assert loop.settled
    end()


def test_a_leader_that_is_stopped_before_it_has_fenced_says_so() -> None:
    mirror = Mirror(Snapshot(now=0, settings=Scene().settings))
    mirror.put_pod(read_pod(pod_body("p")))
    writer, inbox = _SlowToFence(), Inbox()
    loop, end = _run(mirror, writer, _Report(), inbox, takes_over=True)
    assert writer.begun.wait(10)
    end()
    assert not loop.settled


@pytest.mark.parametrize("takes_over", [True, False])
def test_nothing_is_decided_while_the_last_leader_may_be_writing(takes_over: bool) -> None:
    mirror = Mirror(Snapshot(now=0, settings=Scene().settings))
    mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    mirror.put_queue("q", declared_queue())
    mirror.put_node(Scene().node("n1").nodes["n1"])
    mirror.put_devices(gpu_slice("n1", 1))
    mirror.put_claim(decode(ResourceClaim, claim_body("c")))
    mirror.put_pod(read_pod(pod_body("p", claims=["c"])))
    writer, report, inbox = _SlowToFence(), _Report(), Inbox()
    loop, end = _run(mirror, writer, report, inbox, takes_over=takes_over)
    if takes_over:
        assert writer.begun.wait(10)
        assert not report.reported.wait(0.3)
        assert writer.commits == []
        for each in writer.unsettled:
            inbox.put(partial(loop.take, Fenced(each)))

    assert report.reported.wait(10)

    assert [each.key.name for each in writer.unsettled] == (["c"] if takes_over else [])
    assert [commit.group for commit in writer.commits] == ["t/pod/p"]
    assert loop.settled
    end()


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
