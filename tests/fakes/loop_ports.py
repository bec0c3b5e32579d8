"""Fakes of the loop's ports."""

import threading

from carina_dra.kube.event import ObjectReference
from carina_dra.resource import ResourceClaim
from controller.act.commit import Commit, Release
from controller.act.device_eviction import DeviceEviction
from controller.act.takeover import Unsettled
from controller.engine.model.plan import Eviction, Plan
from controller.engine.state.state import State
from controller.observe.pod import ObservedPod
from controller.report.cycle_report import Observed
from controller.report.notice import Notice


class NotedWrites:
    """Notes what is to be written, and writes nothing."""

    settled = True

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.releases: list[Release] = []
        self.evicted: list[ObservedPod] = []
        self.reasons: list[Eviction | DeviceEviction | None] = []
        """Why each of the evicted goes."""
        self.unreserved: list[str] = []
        self.unsettled: list[Unsettled] = []
        self.fencing = threading.Event()
        """Set once an object is to be fenced."""

    def commit(self, commit: Commit) -> None:
        self.commits.append(commit)

    def release(self, release: Release) -> None:
        self.releases.append(release)

    def unreserve(self, claim: ResourceClaim) -> None:
        self.unreserved.append(claim.key)

    def evict(self, pod: ObservedPod, eviction: Eviction | DeviceEviction | None) -> None:
        self.evicted.append(pod)
        self.reasons.append(eviction)

    def fence(self, unsettled: Unsettled, *, until: float) -> None:
        del until
        self.unsettled.append(unsettled)
        self.fencing.set()


class NotedReports:
    """Notes that a plan is reported."""

    def __init__(self) -> None:
        self.reported = threading.Event()

    def report(self, state: State, plan: Plan, observed: Observed, now: float) -> bool:
        del state, plan, observed, now
        self.reported.set()
        return False


class NotedEvents:
    """Notes the Events that are recorded."""

    def __init__(self) -> None:
        self.told: list[tuple[ObjectReference, Notice]] = []

    def record(self, regarding: ObjectReference, notice: Notice) -> None:
        self.told.append((regarding, notice))


class SyncedWatches:
    """Watches of a cluster in which nothing changes."""

    def start(self) -> None: ...

    def unsynced(self) -> list[str]:
        return []
