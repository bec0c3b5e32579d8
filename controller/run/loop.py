"""The loop: what has changed is applied, the engine decides, and what follows is written.

One thread does all of it. Watches and the writer deliver work to it; it waits for nobody.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice
from typing import Final, assert_never

from carina_dra.allocator.taint import taint_text
from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import Body, key_of
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.kube.errors import ApiError
from carina_dra.kube.event import ObjectReference
from carina_dra.resource import ResourceClaim
from controller.act.commit import Acts, Commit, Release, acts
from controller.act.device_eviction import DeviceEviction, DeviceEvictions
from controller.act.node_release import ReleaseEvictions
from controller.act.parting import Evict, Tell, partings
from controller.act.verdict import (
    DecideAgain,
    GiveUp,
    Keep,
    Strand,
    Verdict,
    devices_are_needed,
    next_verdict,
    verdicts,
)
from controller.act.writer import (
    CommitFailed,
    Committed,
    EvictionEnded,
    Fenced,
    Released,
    ReservationEnded,
    Stored,
    WriteOutcome,
)
from controller.engine.decide.cycle import Engine
from controller.engine.model.failed_device import TaintTolerance
from controller.engine.model.plan import Action, Eviction, Plan
from controller.observe.claim import read_claim
from controller.observe.group_registry import GROUPS
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod, read_pod
from controller.report.cycle_report import ObjectVersion, Observed
from controller.report.failures import FailureLog
from controller.report.metrics import DEVICE_TAINT, ControllerMetrics, CyclePhase, Undone
from controller.report.notice import (
    DeviceLost,
    DoubleAllocation,
    GateNotRemoved,
    ObjectSetAside,
    PodEvicted,
    PodEvictedForTaint,
    PodStranded,
)
from controller.report.queue_checks import access_of
from controller.report.regarding import claim_reference, pod_reference, references
from controller.run.fence import Fence
from controller.run.inbox import Inbox
from controller.run.newcomers import Newcomers
from controller.run.ports import RecordsEvents, Reports, Watching, Writes
from controller.run.retry import EVICTION, StartRetries, delay, is_race

_SETTLE: Final = 0.01
"""Seconds in which further changes are awaited before a decision, since changes come in groups."""
_REPORT_INTERVAL: Final = 0.3
"""Seconds between two reports."""
_IDLE: Final = 30.0
"""Seconds after which the loop looks at the time without being told."""
_PODS: Final = PODS.qualified_name
_CLAIMS: Final = RESOURCE_CLAIMS.qualified_name

_log = logging.getLogger(__name__)


class Loop:
    """Decides and acts for one cluster, while it leads."""

    def __init__(
        self,
        mirror: Mirror,
        writer: Writes | None,
        report: Reports,
        events: RecordsEvents,
        metrics: ControllerMetrics,
        *,
        inbox: Inbox,
        fence: Fence | None = None,
        newcomers: Newcomers | None = None,
        progress: Callable[[], None] = lambda: None,
        decide_seconds: float = math.inf,
        verdict_seconds: float,
        avoid_seconds: float,
        evicts_unqueued: bool = False,
        device_eviction_grace: float = 60.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`writer` is None to decide and report only; `progress` is called again and again.

        fence: what keeps the previous leader from writing, if it may still be.

        newcomers: where pods wait that no decision has seen yet.

        evicts_unqueued: whether pods without a queue are evicted for taints of their devices.

        device_eviction_grace: for how many seconds disruption budgets may refuse that.

        No decision begins anything after `decide_seconds`; the next one goes on.
        """
        self._mirror = mirror
        self._writer = writer
        self._report = report
        self._events = events
        self._metrics = metrics
        self._inbox = inbox
        self._newcomers = newcomers or Newcomers()
        self._failure_log = FailureLog()
        mirror.set_aside.report = self._note_set_aside
        self._progress = progress
        self._decide_seconds = decide_seconds
        self._verdict_seconds = verdict_seconds
        self._avoid_seconds = avoid_seconds
        self._now = now
        self._engine = Engine(mirror.state)
        self._device_evictions = DeviceEvictions(mirror, evicts_unqueued, device_eviction_grace)
        self._release_evictions = ReleaseEvictions(mirror)
        self._settling: dict[str, float] = {}
        """The claims of which a reservation is being ended, or cannot be until a Unix time."""
        self._told: set[ObjectReference] = set()
        """The claims and pods that lose a device to another claim, as Events have said."""
        self._retries = StartRetries()
        self._started: set[str] = set()
        """The groups whose wait has been measured."""
        self._fence = fence or Fence(mirror, is_needed=False)
        self._plan: Plan | None = None
        self._reported_at = 0.0
        self._report_due = False

    def run(self, watches: Watching, stopping: threading.Event) -> None:
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
        if not self._fence.is_settled and self._writer is not None:
            self._fence.close(
                self._writer, self._inbox, stopping, now=self._now(), progress=self._progress
            )
        again = True
        while not stopping.is_set():
            busy = not again and self._inbox.do(self._patience())
            if busy:
                stopping.wait(_SETTLE)
            self._newcomers.seen()
            busy |= self._inbox.do(0)
            again = self.step(busy=busy or again)
            self._progress()

    def _wake_at_end(self, stopping: threading.Event) -> None:
        """Ends the wait for work once the loop is to stop: the next leader waits for that."""
        stopping.wait()
        self._inbox.put(lambda: None)

    @property
    def settled(self) -> bool:
        """Whether what an earlier leader was writing is fenced, as far as that was possible."""
        return self._fence.is_settled

    # One cycle ---------------------------------------------------------------------------------

    def step(self, *, busy: bool) -> bool:
        """Decides and acts if there may be something to do; whether to do it again at once."""
        began = time.monotonic()
        busy |= self._mirror.refresh(self._now())
        if self._judge() | self._part() | self._evict_from_devices():
            busy |= self._mirror.refresh(self._now())
        busy |= self._settle_again()
        observed = time.monotonic()
        again = False
        if busy or self._is_due():
            again = self._cycle(observed, self._inbox.take_seconds() + observed - began)
        self._say()
        return again

    def _cycle(self, observed: float, observing: float) -> bool:
        """Decides and acts; whether another cycle should follow at once.

        observed: when the state was brought up to date, by the monotonic clock.
        observing: how many seconds of work that took.
        """
        spent = self._spent_since(observed)
        with collector_paused():  # what a first look at all devices finds out is kept
            plan = self._plan = self._engine.decide(spent, self._newcomers.are_besides)
        decided = time.monotonic()
        self._mirror.state.memory = plan.memory
        self._mirror.roster.note_stale(plan.stale, self._now())
        self._failure_log.plan(plan, self._metrics)
        acted = self._writer is not None and self._act(self._writer, acts(plan, self._mirror))
        self._report_due = True
        phases = {
            CyclePhase.OBSERVE: observing,
            CyclePhase.DECIDE: decided - observed,
            CyclePhase.ACT: time.monotonic() - decided,
        }
        self._metrics.cycle(phases)
        return acted or (self._writer is not None and plan.is_unfinished)

    def _spent_since(self, began: float) -> Callable[[], float]:
        """Gives which part of the time for a decision is spent, and says that it goes on."""

        def spent() -> float:
            self._progress()
            return (time.monotonic() - began) / self._decide_seconds

        return spent

    def _act(self, writer: Writes, todo: Acts) -> bool:
        """Submits all writes; returns whether there were any."""
        attempt = self._mirror.set_aside.attempt_when_due
        failed = list(todo.failed)
        for commit in todo.commits:
            if not attempt(GROUPS, commit.group, "written", partial(self._commit, writer, commit)):
                self._mirror.forget(commit.assumed)
                failed.append(commit.group)
        for group in failed:  # others get its devices meanwhile
            until = self._mirror.set_aside.until(GROUPS, group)
            self._mirror.hold_back(group, until, keeps=False)
        for release in todo.releases:
            attempt(_CLAIMS, release.claim.key, "written", partial(self._release, writer, release))
        for claim in todo.endings:
            if claim.key not in self._settling:
                self._settling[claim.key] = math.inf
                writer.unreserve(claim)
        replaced = (eviction for eviction, _ in todo.evictions if eviction.action is Action.REPLACE)
        self._avoid_failed({eviction.group for eviction in replaced})
        for eviction, pod in todo.evictions:
            if pod.key not in self._mirror.evicting or pod.deleted is not None:
                attempt(_PODS, pod.key, "evicted", partial(self._evict, writer, pod, eviction))
        return bool(todo.commits or todo.releases or todo.evictions)

    def _commit(self, writer: Writes, commit: Commit) -> None:
        for key, assumed in commit.assumed.items():
            self._mirror.assume(key, assumed)
        writer.commit(commit)

    def _release(self, writer: Writes, release: Release) -> None:
        self._mirror.release(release.claim.key)
        writer.release(release)

    def _evict(self, writer: Writes, pod: ObservedPod, eviction: Eviction) -> None:
        self._mirror.assume_evicted(pod.key)
        self._mirror.roster.note_evicted(pod, self._now())
        writer.evict(pod, eviction)

    def _avoid_failed(self, groups: Iterable[str]) -> None:
        """Keeps groups that are replaced from nodes with failed devices that they would tolerate.

        Elsewhere the taint keeps them from the device.
        """
        for group in groups:
            for failed in () if self._plan is None else self._plan.degraded.get(group, ()):
                if failed.tolerance is TaintTolerance.TOLERATES:
                    self._mirror.avoid(group, failed.node, self._now() + self._avoid_seconds)

    def _patience(self) -> float:
        """Seconds for which there is nothing to do."""
        now = self._now()
        wakes = [self._mirror.wake, None if self._plan is None else self._plan.wake]
        wakes += [next_verdict(self._mirror, self._verdict_seconds), *self._settling.values()]
        wakes += [self._device_evictions.wake, self._release_evictions.wake]
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
        mirror = self._mirror
        is_needed = cache(partial(devices_are_needed, mirror.state.occupancy, self._plan))
        judged = list(verdicts(mirror, self._now(), self._verdict_seconds, is_needed=is_needed))
        followed = [
            mirror.set_aside.attempt_when_due(
                _PODS, verdict.pod.key, "undone", partial(self._follow, verdict)
            )
            for verdict in judged
        ]
        return any(followed)

    def _follow(self, verdict: Verdict) -> None:
        """Does what follows from a verdict."""
        mirror = self._mirror
        if isinstance(verdict, Keep | Strand):
            mirror.kept.add(verdict.pod.key)
            mirror.refuse(verdict.pod, verdict.group, None)
            if isinstance(verdict, Strand):
                self._events.record(pod_reference(verdict.pod), PodStranded(verdict.node))
            return
        if verdict.pod.key in mirror.evicting:  # with others of its gang
            return
        until = self._now() + self._avoid_seconds
        mirror.avoid(verdict.group, verdict.node, until)
        mirror.refuse(verdict.pod, verdict.group, (verdict.node, until))
        match verdict:
            case DecideAgain(pod):
                del mirror.refused[pod.key]
                self._metrics.undone(Undone.TAKEN_BACK)
            case GiveUp(pod, mates=mates):
                mirror.refused[pod.key] = math.inf  # until the eviction is refused
                self._metrics.undone(Undone.REFUSED)
                if self._writer is not None:
                    self._writer.evict(pod, None)
                    for mate in mates:
                        self._evict_mate(self._writer, mate, verdict.group)
            case _:
                assert_never(verdict)

    def _evict_mate(self, writer: Writes, pod: ObservedPod, group: str) -> None:
        """Evicts a pod of a gang that lacks another one."""
        node = pod.node or pod.given
        if node is not None and pod.key not in self._mirror.evicting:
            grace = self._mirror.roster.queues.eviction_grace(pod.queue or "")
            self._evict(writer, pod, Eviction(pod.key, node, Action.STALE, group, grace))

    def _part(self) -> bool:
        """Has claims leave devices that another claim keeps; whether something is written."""
        todo = list(partings(self._mirror))
        attempt = self._mirror.set_aside.attempt_when_due
        told = {parting.regarding: parting.notice for parting in todo if isinstance(parting, Tell)}
        self._told &= told.keys()
        for regarding in told.keys() - self._told:
            tell = partial(self._tell, regarding, told[regarding])
            attempt(regarding.kind, f"{regarding.namespace}/{regarding.name}", "told", tell)
        if self._writer is None:
            return False
        writes = False
        for parting in todo:
            match parting:
                case Evict(pod):
                    part = partial(self._evict_from_device, self._writer, pod)
                    writes |= attempt(_PODS, pod.key, "parted", part)
                case Release(claim):
                    part = partial(self._release, self._writer, parting)
                    writes |= attempt(_CLAIMS, claim.key, "written", part)
                case Tell():
                    pass
                case _:
                    assert_never(parting)
        return writes

    def _tell(self, regarding: ObjectReference, notice: DoubleAllocation | DeviceLost) -> None:
        self._told.add(regarding)
        if isinstance(notice, DoubleAllocation):
            self._metrics.undone(Undone.DOUBLE_ALLOCATION)
        self._events.record(regarding, notice)

    def _evict_from_device(self, writer: Writes, pod: ObservedPod) -> None:
        self._mirror.assume_evicted(pod.key)
        writer.evict(pod, None)

    def _evict_from_devices(self) -> bool:
        """Evicts pods for taints of their devices or releases of nodes; whether there were any."""
        if self._writer is None:
            return False
        attempt = self._mirror.set_aside.attempt_when_due
        now = self._now()
        evicted = [
            attempt(_PODS, due.pod.key, "evicted", partial(self._evict_for, self._writer, due))
            for due in self._device_evictions.due(now)
        ]
        evicted += [
            attempt(_PODS, pod.key, "evicted", partial(self._evict, self._writer, pod, eviction))
            for eviction, pod in self._release_evictions.due(now)
        ]
        return any(evicted)

    def _evict_for(self, writer: Writes, eviction: DeviceEviction) -> None:
        self._mirror.assume_evicted(eviction.pod.key)
        self._mirror.roster.note_device_eviction(eviction.pod, self._now())
        writer.evict(eviction.pod, eviction)

    def _settle_again(self) -> bool:
        """Whether reservations can be ended that could not be before."""
        now = self._now()
        left = {claim: at for claim, at in self._settling.items() if at > now}
        can, self._settling = len(left) < len(self._settling), left
        return can

    # What became of writes ---------------------------------------------------------------------

    def take(self, outcome: WriteOutcome) -> None:
        """Takes what became of a write."""
        resource, key, error = _about(outcome)
        set_aside = self._mirror.set_aside
        if error is not None and not isinstance(error, ApiError):
            set_aside.attempt_when_due(resource, key, "carried out", partial(_raise, error))
        set_aside.attempt(resource, key, "answered", partial(self._take, outcome))

    def _take(self, outcome: WriteOutcome) -> None:
        mirror, now = self._mirror, self._now()
        match outcome:
            case Stored(resource, body):
                self._see(resource, body)
            case Committed(commit):
                self._retries.started(commit.group)
                mirror.forget(commit.assumed)
                self._measure_wait(commit.group)
            case CommitFailed(commit, error):
                self._failed(commit, error)
            case ReservationEnded(claim, error):
                self._settling[claim] = now + delay(error)
                _note(error)
            case Released(claim, error):
                mirror.end_release(claim, now + delay(error))
                _note(error)
            case EvictionEnded(pod, eviction, error):
                self._evicted(pod, eviction, error)
            case Fenced(unsettled):
                self._fence.note(unsettled)
            case _:
                assert_never(outcome)

    def _evicted(
        self,
        pod: ObservedPod,
        eviction: Eviction | DeviceEviction | None,
        error: Exception | None,
    ) -> None:
        if error is not None:
            self._not_evicted(pod, eviction, error)
            return
        match eviction:
            case Eviction():
                self._metrics.evicted(eviction.action)
                group = self._mirror.state.occupancy.groups.get(eviction.group)
                queue = "" if group is None else group.queue
                self._events.record(pod_reference(pod), PodEvicted(eviction, queue))
                facts = {"pod": pod.key, "action": eviction.action, "for": eviction.group}
            case DeviceEviction(device=device):
                self._metrics.evicted(DEVICE_TAINT)
                taint = taint_text(eviction.taint)
                notice = PodEvictedForTaint(str(device), taint, eviction.past_budgets)
                self._events.record(pod_reference(pod), notice)
                facts = {"pod": pod.key, "device": str(device), "taint": taint}
            case None:
                return
            case _:
                assert_never(eviction)
        how = "deleted past its budgets" if eviction.past_budgets else "evicted"
        _log.info(f"a pod is {how}", extra=facts)

    def _not_evicted(
        self, pod: ObservedPod, eviction: Eviction | DeviceEviction | None, error: Exception
    ) -> None:
        mirror, now = self._mirror, self._now()
        known = mirror.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and pod.key in mirror.refused:
            mirror.refused[pod.key] = now
        if isinstance(eviction, DeviceEviction):
            self._device_evictions.fail(pod, error, now)
        mirror.forget_eviction(pod, now + EVICTION)
        _note(error)

    def _measure_wait(self, key: str) -> None:
        """Records that a group has started, the first time."""
        group = self._mirror.roster.groups.get(key)
        if group is not None and group.started is None and key not in self._started:
            self._started.add(key)
            self._metrics.group_started(group.queue, self._now() - group.created)

    def _see(self, resource: ApiResource, body: Body) -> None:
        """Takes an answer as if a watch had shown it, which also shows one that cannot be read."""
        attempt = partial(
            self._mirror.set_aside.attempt, resource.qualified_name, str(key_of(body))
        )
        read: list[ObservedPod | ResourceClaim] = []
        is_pod = resource == PODS
        if not attempt("read", lambda: read.append((read_pod if is_pod else read_claim)(body))):
            return

        def put() -> None:
            match read[0]:
                case ObservedPod() as pod:
                    self._mirror.put_pod(pod)
                case ResourceClaim() as claim:
                    self._mirror.put_claim(claim)

        attempt("applied", put)

    def _failed(self, commit: Commit, error: Exception) -> None:
        """Schedules another decision on a group, the later the more often its start has failed."""
        retry = self._retries.failed(commit.group, error)
        self._mirror.hold_back(commit.group, self._now() + retry.seconds, keeps=retry.keeps)
        if not retry.keeps:
            for start in islice(commit.pods, 1):
                self._mirror.refuse_start(start.pod.key, commit.group, error)
        self._mirror.forget(commit.assumed)
        self._metrics.undone(Undone.CONFLICT)
        _log.info("a start is decided again", extra={"group": commit.group, "error": str(error)})
        if not is_race(error):
            for reference in islice(references(self._mirror)(commit.group), 1):
                self._events.record(reference, GateNotRemoved(str(error)))

    # What is said ------------------------------------------------------------------------------

    def _say(self) -> None:
        """Reports the last plan, at a bounded rate."""
        now = time.monotonic()
        if self._plan is None or not self._report_due or now < self._reported_at + _REPORT_INTERVAL:
            return
        self._reported_at = now
        make = partial(self._make_report, self._plan, now)
        self._mirror.set_aside.attempt_when_due("reports", "all", "made", make)

    def _make_report(self, plan: Plan, now: float) -> None:
        roster = self._mirror.roster
        self._started &= roster.groups.keys()
        self._retries.forget_all_but(roster.groups)
        observed = Observed(
            pod_groups={
                key: ObjectVersion(pod_group.uid, pod_group.generation)
                for key, pod_group in roster.declared.items()
            },
            queues={
                name: ObjectVersion(queue.uid, queue.generation)
                for name, queue in roster.queues.by_name.items()
            },
            refused=self._mirror.refusals(),
            access=access_of(roster.queues, roster.namespaces),
        )
        self._report_due = self._report.report(self._mirror.state, plan, observed, now)

    # What is set aside -------------------------------------------------------------------------

    def _note_set_aside(self, resource: str, key: str, doing: str, error: Exception) -> None:
        """Records, on any thread, that an object is set aside."""
        if self._failure_log.object(resource, key, doing, error):
            self._inbox.put(partial(self._tell_set_aside, resource, key, doing, error))

    def _tell_set_aside(self, resource: str, key: str, doing: str, error: Exception) -> None:
        notice = ObjectSetAside(doing, type(error).__name__)

        def tell() -> None:
            for regarding in islice(self._references(resource, key), 1):
                self._events.record(regarding, notice)

        self._mirror.set_aside.attempt(resource, key, "told of its defect", tell)

    def _references(self, resource: str, key: str) -> Iterable[ObjectReference]:
        """The objects on which an Event about another one stands."""
        mirror = self._mirror
        if resource == GROUPS:
            return references(mirror)(key)
        if resource == _PODS and key in mirror.pods:
            return (pod_reference(mirror.pods[key]),)
        if resource == _CLAIMS and key in mirror.claims:
            return (claim_reference(mirror.claims[key]),)
        return ()


def _about(outcome: WriteOutcome) -> tuple[str, str, Exception | None]:
    """The resource and the key of the object that an outcome is about, and its error."""
    match outcome:
        case Stored(resource, body):
            return resource.qualified_name, str(key_of(body)), None
        case Committed(commit):
            return GROUPS, commit.group, None
        case CommitFailed(commit, error):
            return GROUPS, commit.group, error
        case ReservationEnded(claim, error):
            return _CLAIMS, claim, error
        case Released(claim, error):
            return _CLAIMS, claim.key, error
        case EvictionEnded(pod, _, error):
            return _PODS, pod.key, error
        case Fenced(unsettled, error):
            return unsettled.resource.qualified_name, str(unsettled.key), error
    assert_never(outcome)


def _raise(error: Exception) -> None:
    raise error


def _note(error: Exception | None) -> None:
    """Logs why a write has failed, if it has; it is tried again as long as it is wanted."""
    if error is not None:
        _log.info("a write has failed", extra={"error": str(error)})
