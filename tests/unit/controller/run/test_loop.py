"""The loop waits for work, and for the word to stop."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.writer import Fenced
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from controller.report.metrics import ControllerMetrics
from controller.run.fence import Fence
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from tests.fakes.loop_ports import NotedEvents, NotedReports, NotedWrites, SyncedWatches
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


def _run(
    mirror: Mirror,
    writer: NotedWrites,
    report: NotedReports,
    inbox: Inbox,
    fence: Fence,
) -> tuple[Loop, Callable[[], None]]:
    """A loop that runs, and what ends it."""
    stopping = threading.Event()
    loop = Loop(
        mirror,
        writer,
        report,
        NotedEvents(),
        ControllerMetrics(),
        inbox=inbox,
        fence=fence,
        verdict_seconds=1,
        avoid_seconds=1,
    )
    running = threading.Thread(target=loop.run, args=(SyncedWatches(), stopping), daemon=True)
    running.start()

    def end() -> None:
        stopping.set()
        running.join(5)
        assert not running.is_alive()

    return loop, end


def test_a_leader_decides_after_a_while_though_not_all_is_fenced() -> None:
    mirror = Mirror(Snapshot(now=0, settings=Scene().settings))
    mirror.put_pod(read_pod(pod_body("p")))
    writer, report = NotedWrites(), NotedReports()
    loop, end = _run(mirror, writer, report, Inbox(), Fence(mirror, is_needed=True, longest=0.2))

    assert report.reported.wait(10)

    assert writer.unsettled
    assert loop.settled
    end()


def test_a_leader_that_is_stopped_before_it_has_fenced_says_so() -> None:
    mirror = Mirror(Snapshot(now=0, settings=Scene().settings))
    mirror.put_pod(read_pod(pod_body("p")))
    writer = NotedWrites()
    loop, end = _run(mirror, writer, NotedReports(), Inbox(), Fence(mirror, is_needed=True))
    assert writer.fencing.wait(10)
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
    writer, report, inbox = NotedWrites(), NotedReports(), Inbox()
    loop, end = _run(mirror, writer, report, inbox, Fence(mirror, is_needed=takes_over))
    if takes_over:
        assert writer.fencing.wait(10)
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
    inbox, stopping = _Inbox(), threading.Event()
    loop = Loop(
        Mirror(Snapshot(now=0)),
        None,
        NotedReports(),
        NotedEvents(),
        ControllerMetrics(),
        inbox=inbox,
        verdict_seconds=1,
        avoid_seconds=1,
    )
    running = threading.Thread(target=loop.run, args=(SyncedWatches(), stopping), daemon=True)
    running.start()
    assert inbox.awaited.wait(10)

    stopping.set()

    running.join(5)
    assert not running.is_alive()
