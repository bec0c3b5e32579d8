"""`carina-controller`: connects the components, and leads while it holds the Lease."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.event import ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.kube.lease import LeaderElector, LeadershipEnd, WorkNotStopped
from carina_dra.process.cluster import connected
from carina_dra.process.program import ProgramError, run_to_the_end, served_http
from controller.act.exclusive_taint import ExclusiveTaint, remove_taint
from controller.act.queue_finalizer import QueueFinalizers
from controller.act.writer import Writer
from controller.engine.model.snapshot import Snapshot
from controller.names import CONTROLLER
from controller.observe.mirror import Mirror
from controller.report.cycle_report import CycleReport
from controller.report.group_events import GroupEvents
from controller.report.health import Health
from controller.report.metrics import ControllerMetrics
from controller.report.regarding import pod_named, references
from controller.report.status_writer import StatusWriter
from controller.run.fence import Fence
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from controller.run.newcomers import Newcomers
from controller.run.watches import Watches
from controller.settings import Settings

PROGRAM: Final = "carina-controller"
"""The name under which Events are reported."""

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the controller until SIGTERM or SIGINT.

    Exits with 2 if the settings are invalid, and with 1 if the Lease is lost: the next process
    starts again.
    """
    run_to_the_end(PROGRAM, Settings, connected(_run_or_end), arguments)


def _run_or_end(chosen: Settings, connection: Connection, stop: threading.Event) -> None:
    try:
        run(chosen, connection, stop)
    except WorkNotStopped as error:
        _log.critical("the process ends", extra={"error": str(error)})
        os._exit(1)  # another may lead now, so nothing more may be written


def run(chosen: Settings, connection: Connection, stop: threading.Event) -> None:
    """Runs the controller until `stop` is set.

    Raises ProgramError if the address cannot be used or leadership is lost, or what ended the work.
    """
    metrics, health = ControllerMetrics(), Health()
    with contextlib.ExitStack() as cleanup:
        connect = partial(Client, connection, user_agent=PROGRAM)
        elector = LeaderElector(
            cleanup.enter_context(connect()),
            chosen.lease,
            chosen.identity,
            timing=chosen.lease_timing,
        )
        cleanup.enter_context(
            served_http(
                chosen.http_address,
                metrics=metrics.exposition,
                content_type=ControllerMetrics.CONTENT_TYPE,
                healthy=health.healthy,
                ready=health.ready,
            )
        )

        def work(stopping: threading.Event) -> None:
            metrics.leading(leads=True)
            elector.releases = False  # unless it is known at the end that nothing is under way
            try:
                elector.releases = lead(
                    chosen,
                    connect,
                    lambda: elector.leading,
                    metrics,
                    health,
                    stopping,
                    takes_over=not elector.was_released,
                )
            finally:
                health.follow()
                metrics.leading(leads=False)

        if elector.run(work, stop) is LeadershipEnd.LOST:
            raise ProgramError("the Lease was lost to another process, or could not be renewed")


def lead(
    chosen: Settings,
    connect: Callable[[], Client],
    leading: Callable[[], bool],
    metrics: ControllerMetrics,
    health: Health,
    stopping: threading.Event,
    *,
    takes_over: bool,
) -> bool:
    """Decides and acts until it is to stop; nothing is kept from an earlier leadership.

    takes_over: whether writes of an earlier leader may still be under way.

    Returns whether no write of any leader is under way at the end.
    """
    with contextlib.ExitStack() as cleanup:
        # Watches, writes and reports have connections of their own, so that none waits for others.
        watching, writing, reporting = (cleanup.enter_context(connect()) for _ in range(3))
        recorder = cleanup.enter_context(
            EventRecorder(reporting, ReportingController(CONTROLLER, chosen.identity))
        )
        metrics.follow_events(lambda: recorder.dropped)
        mirror = Mirror(
            Snapshot(now=time.time(), settings=chosen.engine_settings, topologies=chosen.topologies)
        )
        set_aside = mirror.set_aside
        statuses = cleanup.enter_context(StatusWriter(reporting, metrics, set_aside=set_aside))
        events = GroupEvents(recorder, set_aside=set_aside)
        inbox, newcomers = Inbox(), Newcomers()
        writer: Writer | None = None
        finalizers: QueueFinalizers | None = None
        if not chosen.dry_run:
            writer = Writer(
                writing,
                lambda outcome: inbox.put(lambda: loop.take(outcome)),
                pool=ThreadPoolExecutor(chosen.writers, thread_name_prefix="writer"),
                leading=leading,
                metrics=metrics,
            )
            cleanup.callback(writer.close)
            finalizers = cleanup.enter_context(
                QueueFinalizers(reporting, metrics, set_aside=set_aside)
            )
            if chosen.exclusive:
                taint = ExclusiveTaint(reporting, chosen.driver_name, metrics)
                taint.start()
                cleanup.callback(taint.stop)
            else:
                remove_taint(reporting, metrics)
        loop = Loop(
            mirror,
            writer,
            CycleReport(
                statuses,
                events,
                metrics,
                references(mirror),
                (lambda _: None) if finalizers is None else finalizers.want,
                set_aside=set_aside,
                pod_named=pod_named(mirror),
            ),
            events,
            metrics,
            inbox=inbox,
            newcomers=newcomers,
            fence=Fence(mirror, is_needed=takes_over),
            progress=health.progress,
            decide_seconds=chosen.decide_seconds,
            verdict_seconds=chosen.verdict_seconds,
            avoid_seconds=chosen.avoid_seconds,
            evicts_unqueued=chosen.evict_unqueued,
            device_eviction_grace=chosen.device_eviction_grace_seconds,
        )
        watches = Watches(watching, mirror, inbox.put, statuses, finalizers, newcomers)
        cleanup.callback(watches.stop)
        metrics.follow_watches(watches.ages)
        metrics.follow_set_aside(set_aside.counts)
        health.lead(watches.unsynced)
        loop.run(watches, stopping)
    return loop.settled and (writer is None or writer.settled)
