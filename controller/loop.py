"""The loop: what has changed is applied, the engine decides, and what follows is written.

One thread does all of it. Watches and the writer deliver work to it; it waits for nobody.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Final, assert_never

from carina_dra.kube.api_resource import PODS, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.kube.errors import ApiError, Conflict, NotFound
from carina_dra.kube.event import ObjectReference
from carina_dra.resource import ResourceClaim, decode
from controller.act.commit import Acts, Commit, Release, acts
from controller.act.parting import Evict, Tell, partings
from controller.act.takeover import Unsettled, unsettled
from controller.act.verdict import DecideAgain, GiveUp, next_verdict, verdicts
from controller.act.writer import (
    Committed,
    Evicted,
    Failed,
    Fenced,
    Released,
    Settled,
    Stored,
    Writer,
    Written,
)
from controller.decide.cycle import Engine
from controller.inbox import Inbox
from controller.model.plan import Eviction, Plan
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod, read_pod
from controller.report.cycle_report import CycleReport, ObjectVersion, Observed
from controller.report.group_events import GroupEvents
from controller.report.metrics import Metrics, Phase, Undone
from controller.report.notice import DoubleAllocation, GateNotRemoved, PodEvicted
from controller.report.regarding import pod_reference, references
from controller.watches import Watches

_SETTLE: Final = 0.01
"""Seconds in which further changes are awaited before a decision, since changes come in groups."""
_REPORT_INTERVAL: Final = 0.3
"""Seconds between two reports."""
_FENCE: Final = 10.0
"""Seconds for which a leader waits at most until nothing of the last one is carried out."""
_IDLE: Final = 30.0
"""Seconds after which the loop looks at the time without being told."""
_RACE_DELAY: Final = 0.1
"""Seconds before a group is decided on again of which an object had changed."""
_FAILURE_DELAY: Final = 1.0
"""Seconds before a group is decided on again whose start was refused for another reason."""
_LONGEST_DELAY: Final = 60.0
_EVICTION_RETRY: Final = 5.0
"""Seconds before a refused eviction is tried again."""

_log = logging.getLogger(__name__)


class Loop:
    """Decides and acts for one cluster, while it leads."""

    def __init__(
        self,
        mirror: Mirror,
        writer: Writer | None,
        report: CycleReport,
        events: GroupEvents,
        metrics: Metrics,
        *,
        inbox: Inbox,
        takes_over: bool = False,
        progress: Callable[[], None] = lambda: None,
        decide_seconds: float = math.inf,
        verdict_seconds: float,
        avoid_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`writer` is None to decide and report only; `progress` is called again and again.

        takes_over: whether the last leader may still be writing.

        No decision begins anything after `decide_seconds`; the next one goes on.
        """
        self._mirror = mirror
        self._writer = writer
        self._report = report
        self._events = events
        self._metrics = metrics
        self._inbox = inbox
        self._progress = progress
        self._decide_seconds = decide_seconds
        self._verdict_seconds = verdict_seconds
        self._avoid_seconds = avoid_seconds
        self._now = now
        self._engine = Engine(mirror.state)
        self._settling: dict[str, float] = {}
        """The claims of which a reservation is being ended, or cannot be until a Unix time."""
        self._told: set[ObjectReference] = set()
        """The claims and pods that lose a device to another claim, as Events have said."""
        self._failures: dict[str, int] = {}
        """By group: how often its start has failed in a row."""
        self._started: set[str] = set()
        """The groups whose wait has been measured."""
        self._settled = not takes_over
        self._fencing: dict[Unsettled, None] = {}
        """What gets another version before the first decision."""
        self._plan: Plan | None = None
        self._reported_at = 0.0
        self._report_due = False

    def run(self, watches: Watches, stopping: threading.Event) -> None:
        """Runs until it is to stop."""
        threading.Thread(
            target=self._wake_at_end, args=(stopping,), name="wake", daemon=True
        ).start()
        with collector_paused(freeze=True):
            watches.start()
            while names := watches.unsynced():
                self._inbox.do(0.1)
                self._progress()
                if stopping.is_set():
                    return
                _log.debug("waiting for the first lists", extra={"resources": names})
            self._inbox.do(0)
        if not self._settled and self._writer is not None:
            self._fence(self._writer, stopping)
        again = True
        while not stopping.is_set():
            began = time.monotonic()
            busy = self._inbox.do(0 if again else self._patience())
            if busy and not again:
                stopping.wait(_SETTLE)
                self._inbox.do(0)
            again = self.step(began, busy=busy or again)
            self._progress()

    def _wake_at_end(self, stopping: threading.Event) -> None:
        """Ends the wait for work once the loop is to stop: the next leader waits for that."""
        stopping.wait()
        self._inbox.put(lambda: None)

    @property
    def settled(self) -> bool:
        """Whether what an earlier leader was writing is fenced, as far as that was possible."""
        return self._settled

    def _fence(self, writer: Writer, stopping: threading.Event) -> None:
        """Has nothing of what the last leader was writing be carried out from now on.

        Bounded in time: tenants choose how many claims wait.
        """
        until = time.monotonic() + _FENCE
        self._mirror.refresh(self._now())
        self._fencing = dict.fromkeys(unsettled(self._mirror))
        number = len(self._fencing)
        for each in self._fencing:
            writer.fence(each, until=until)
        while self._fencing and not stopping.is_set() and time.monotonic() < until:
            self._inbox.do(0.1)
            self._progress()
        facts = {"objects": number, "not_fenced": len(self._fencing)}
        _log.info("late writes of the last leader are fenced off", extra=facts)
        self._settled = not stopping.is_set()

    # One cycle ---------------------------------------------------------------------------------

    def step(self, began: float, *, busy: bool) -> bool:
        """Decides and acts if there may be something to do; whether to do it again at once."""
        busy |= self._mirror.refresh(self._now())
        if self._judge() | self._part():
            busy |= self._mirror.refresh(self._now())
        busy |= self._settle_again()
        observed = time.monotonic()
        again = False
        if busy or self._is_due():
            again = self._cycle(began if busy else observed, observed)
        self._say()
        return again

    def _cycle(self, began: float, observed: float) -> bool:
        """Decides and acts; whether another cycle should follow at once."""
        plan = self._plan = self._engine.decide(self._spent_since(observed))
        decided = time.monotonic()
        self._mirror.state.memory = plan.memory
        self._mirror.roster.note_stale(plan.stale, self._now())
        acted = self._writer is not None and self._act(self._writer, acts(plan, self._mirror))
        self._report_due = True
        phases = {
            Phase.OBSERVE: observed - began,
            Phase.DECIDE: decided - observed,
            Phase.ACT: time.monotonic() - decided,
        }
        self._metrics.cycle(phases)
        return acted or (self._writer is not None and plan.is_unfinished)

    def _spent_since(self, began: float) -> Callable[[], float]:
        """Gives which part of the time for a decision is spent, and says that it goes on."""

        def spent() -> float:
            self._progress()
            return (time.monotonic() - began) / self._decide_seconds

        return spent

    def _act(self, writer: Writer, todo: Acts) -> bool:
        """Has all of it be written; whether there was anything."""
        for commit in todo.commits:
            for key, assumed in commit.assumed.items():
                self._mirror.assume(key, assumed)
            writer.commit(commit)
        for release in todo.releases:
            self._mirror.release(release.claim.key)
            writer.release(release)
        for claim in todo.endings:
            if claim.key not in self._settling:
                self._settling[claim.key] = math.inf
                writer.unreserve(claim)
        for eviction, pod in todo.evictions:
            if pod.key not in self._mirror.evicting:
                self._mirror.assume_evicted(pod.key)
                self._mirror.roster.note_evicted(
                    self._mirror.roster.group_of(pod.key) or "", self._now()
                )
                writer.evict(pod, eviction)
        return bool(todo.commits or todo.releases or todo.evictions)

    def _patience(self) -> float:
        """Seconds for which there is nothing to do."""
        now = self._now()
        wakes = [self._mirror.wake, None if self._plan is None else self._plan.wake]
        wakes += [next_verdict(self._mirror, self._verdict_seconds), *self._settling.values()]
        if self._report_due:
            wakes.append(now + self._reported_at + _REPORT_INTERVAL - time.monotonic())
        return min([_IDLE, *(at - now for at in wakes if at is not None)])

    def _is_due(self) -> bool:
        wake = None if self._plan is None else self._plan.wake
        return wake is not None and wake <= self._now()

    # What others say and do --------------------------------------------------------------------

    def _judge(self) -> bool:
        """Undoes starts that kube-scheduler refuses: the group avoids the node for a while.

        Whether there were any.
        """
        mirror, now = self._mirror, self._now()
        judged = list(verdicts(mirror, now, self._verdict_seconds))
        for verdict in judged:
            mirror.avoid(verdict.group, verdict.node, now + self._avoid_seconds)
            match verdict:
                case DecideAgain(pod):
                    del mirror.refused[pod.key]
                    self._metrics.undone(Undone.TAKEN_BACK)
                case GiveUp(pod):
                    mirror.refused[pod.key] = math.inf  # until the eviction is refused
                    self._metrics.undone(Undone.REFUSED)
                    if self._writer is not None:
                        self._writer.evict(pod, None)
                case _:
                    assert_never(verdict)
        return bool(judged)

    def _part(self) -> bool:
        """Has claims leave devices that another claim keeps; whether something is written."""
        todo = list(partings(self._mirror))
        told = {each.regarding: each.notice for each in todo if isinstance(each, Tell)}
        for regarding in told.keys() - self._told:
            self._events.record(regarding, told[regarding])
            if isinstance(told[regarding], DoubleAllocation):
                self._metrics.undone(Undone.DOUBLE_ALLOCATION)
        self._told = set(told)
        if self._writer is None:
            return False
        for each in todo:
            match each:
                case Evict(pod):
                    self._mirror.assume_evicted(pod.key)
                    self._writer.evict(pod, None)
                case Release(claim):
                    self._mirror.release(claim.key)
                    self._writer.release(each)
                case Tell():
                    pass
                case _:
                    assert_never(each)
        return any(not isinstance(each, Tell) for each in todo)

    def _settle_again(self) -> bool:
        """Whether reservations can be ended that could not be before."""
        now = self._now()
        left = {claim: at for claim, at in self._settling.items() if at > now}
        can, self._settling = len(left) < len(self._settling), left
        return can

    # What became of writes ---------------------------------------------------------------------

    def take(self, outcome: Written) -> None:
        """Takes what became of a write."""
        mirror, now = self._mirror, self._now()
        match outcome:
            case Stored(resource, body):
                self._see(resource, body)
            case Committed(commit):
                self._failures.pop(commit.group, None)
                self._measure_wait(commit.group)
                mirror.forget(commit.assumed)
            case Failed(commit, error):
                self._failed(commit, error)
            case Settled(claim, error):
                self._settling[claim] = now + self._delay(error)
                _note(error)
            case Released(claim, error):
                mirror.end_release(claim, now + self._delay(error))
                _note(error)
            case Evicted(pod, eviction, error):
                self._evicted(pod, eviction, error)
            case Fenced(each):
                self._fencing.pop(each, None)
            case _:
                assert_never(outcome)

    def _evicted(
        self, pod: ObservedPod, eviction: Eviction | None, error: Exception | None
    ) -> None:
        if error is not None:
            mirror, now = self._mirror, self._now()
            known = mirror.pods.get(pod.key)
            if known is not None and known.uid == pod.uid and pod.key in mirror.refused:
                mirror.refused[pod.key] = now
            mirror.forget_eviction(pod, now + _EVICTION_RETRY)
            _note(error)
        elif eviction is not None:
            self._metrics.evicted(eviction.action)
            self._events.record(pod_reference(pod), PodEvicted(eviction))

    def _measure_wait(self, key: str) -> None:
        """Takes notice that a group has started, the first time."""
        group = self._mirror.roster.groups.get(key)
        if group is not None and group.started is None and key not in self._started:
            self._started.add(key)
            self._metrics.group_started(group.queue, self._now() - group.created)

    def _see(self, resource: ApiResource, body: Body) -> None:
        """Takes an answer as if a watch had shown it, which also shows one that cannot be read."""
        try:
            read = read_pod(body) if resource == PODS else decode(ResourceClaim, body)
        except Exception as error:  # noqa: BLE001 - as for what watches show
            _log.warning("an answer cannot be read", extra={"error": str(error)})
            return
        match read:
            case ObservedPod():
                self._mirror.put_pod(read)
            case ResourceClaim():
                self._mirror.put_claim(read)

    def _failed(self, commit: Commit, error: Exception) -> None:
        """Has a group be decided on again, the later the more often its start has failed."""
        times = self._failures[commit.group] = self._failures.get(commit.group, 0) + 1
        is_race = isinstance(error, Conflict | NotFound)
        # A start that is refused would keep devices for nothing; any other is completed soon.
        keeps = is_race or (isinstance(error, ApiError) and error.retriable)
        delay = min(self._delay(error) * 2 ** min(times - 1, 10), _LONGEST_DELAY)
        self._mirror.hold_back(commit.group, self._now() + delay, keeps=keeps)
        self._mirror.forget(commit.assumed)
        self._metrics.undone(Undone.CONFLICT)
        _log.info("a start is decided again", extra={"group": commit.group, "error": str(error)})
        if not is_race:
            for reference in islice(references(self._mirror)(commit.group), 1):
                self._events.record(reference, GateNotRemoved(str(error)))

    def _delay(self, error: Exception | None) -> float:
        """Seconds before something is tried again that ended with an error."""
        if error is None:
            return 0
        return _RACE_DELAY if isinstance(error, Conflict | NotFound) else _FAILURE_DELAY

    # What is said ------------------------------------------------------------------------------

    def _say(self) -> None:
        """Reports the last plan, at a bounded rate."""
        now = time.monotonic()
        if self._plan is None or not self._report_due or now < self._reported_at + _REPORT_INTERVAL:
            return
        roster = self._mirror.roster
        self._started &= roster.groups.keys()
        observed = Observed(
            pod_groups={
                key: ObjectVersion(each.uid, each.generation)
                for key, each in roster.declared.items()
            },
            queues={
                name: ObjectVersion(each.uid, each.generation)
                for name, each in roster.queues.items()
            },
            refused=self._mirror.refusals(),
        )
        self._failures = {key: of for key, of in self._failures.items() if key in roster.groups}
        self._reported_at = now
        self._report_due = self._report.report(self._mirror.state, self._plan, observed, now)


def _note(error: Exception | None) -> None:
    """Logs why a write has failed, if it has; it is tried again as long as it is wanted."""
    if error is not None:
        _log.info("a write has failed", extra={"error": str(error)})
