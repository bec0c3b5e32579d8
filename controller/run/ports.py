"""What the loop needs of what writes and reports."""

from typing import Protocol

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


class Writes(Protocol):
    """Writes to the cluster. No call waits; the outcomes come to the loop's inbox."""

    def commit(self, commit: Commit) -> None:
        """Starts a group: writes its claims, then removes the gates of its pods."""

    def release(self, release: Release) -> None:
        """Takes an allocation back whose pods still have their gates."""

    def unreserve(self, claim: ResourceClaim) -> None:
        """Ends the controller's own reservation of a claim."""

    def evict(self, pod: ObservedPod, eviction: Eviction | DeviceEviction | None) -> None:
        """Evicts a pod."""

    def fence(self, unsettled: Unsettled, *, until: float) -> None:
        """Gives an object another version; tries until a monotonic time."""


class Reports(Protocol):
    """Says what was decided."""

    def report(self, state: State, plan: Plan, observed: Observed, now: float) -> bool:
        """Reports a plan; returns whether Events are left for a later call."""


class RecordsEvents(Protocol):
    """Says what happened to one object."""

    def record(self, regarding: ObjectReference, notice: Notice) -> None:
        """Records an Event."""


class Watching(Protocol):
    """Follows the objects of a cluster."""

    def start(self) -> None:
        """Begins to deliver changes to the loop's inbox."""

    def unsynced(self) -> list[str]:
        """The resources whose first list has not been read."""
