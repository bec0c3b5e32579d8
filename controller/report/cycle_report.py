"""Reports a cycle: the statuses of PodGroups and Queues, and Events of groups that wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.event import ObjectReference
from controller.api.pod_group import PodGroupStatus
from controller.api.queue import GroupCounts
from controller.engine.decide.nodes.stranded import StrandedGpus
from controller.engine.model.failed_device import FailedDevice
from controller.engine.model.group import Group
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Pod
from controller.engine.model.queue import Queue
from controller.engine.model.reason import Reason, what_helps
from controller.engine.model.resource import describe, figure
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.state import State
from controller.names import POD_GROUPS, QUEUES
from controller.observe.group_registry import GROUPS
from controller.observe.set_aside import SetAsideObjects
from controller.report.giving_log import GivingLog
from controller.report.group_events import GroupEvents, GroupNotice
from controller.report.group_status import (
    NothingWanted,
    Outlook,
    degraded_text,
    empty_status,
    group_status,
    outlooks,
    refused_status,
    starting,
)
from controller.report.metrics import ControllerMetrics, QueueFigures
from controller.report.notice import GroupDegraded, GroupRefused, GroupWaits
from controller.report.places_in_queues import PlacesInQueues
from controller.report.queue_checks import UNKNOWN_ACCESS, QueueAccess
from controller.report.queue_giving import NO_HOLDUP, holdups
from controller.report.queue_status import (
    ResourceAmounts,
    count_groups,
    queue_amounts,
    queue_status,
)
from controller.report.queue_use import queues_in_use, use_of_stopped_queues
from controller.report.status_writer import StatusTarget, StatusWriter
from controller.report.waiting import for_tenant, needs_its_user, waiting_text, waiting_word

_SETTLED: Final = NothingWanted()


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Which object was decided on, by its metadata."""

    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects on which a cycle has decided."""

    pod_groups: Mapping[str, ObjectVersion] = field(default_factory=dict)
    """The PodGroups of Carina by `namespace/name`."""
    queues: Mapping[str, ObjectVersion] = field(default_factory=dict)
    """The Queues by name."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The groups that cannot be decided on: why, and the remedy."""
    access: Mapping[str, QueueAccess] = field(default_factory=dict)
    """By Queue: what is wrong with who may use it. Others have nothing wrong."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """What the status of a PodGroup depends on. Most of it is the same object cycle after cycle."""

    version: ObjectVersion
    group: Group | None
    pods: tuple[Pod, ...]
    outlook: Outlook
    refused: str | None
    failed: tuple[FailedDevice, ...]

    def status(self, key: str) -> PodGroupStatus:
        """The status that follows."""
        generation = self.version.generation
        if self.refused is not None:
            return refused_status(self.refused, self.pods, generation=generation)
        if self.group is None:
            return empty_status(key, generation=generation)
        return group_status(self.group, self.pods, self.outlook, self.failed, generation=generation)


class CycleReport:
    """Says what a cycle has decided. Used by one thread.

    Of thousands of groups that wait, most wait for the same reasons as before, and cost little.
    """

    def __init__(
        self,
        statuses: StatusWriter,
        events: GroupEvents,
        metrics: ControllerMetrics,
        pods_of: Callable[[str], Iterable[ObjectReference]],
        note_use: Callable[[AbstractSet[str]], None] = lambda _: None,
        set_aside: SetAsideObjects | None = None,
        pod_named: Callable[[str], Iterable[ObjectReference]] = lambda _: (),
    ) -> None:
        """`pods_of` gives the pods of a group that have no place.

        pod_named: gives a pod by its key, if it is known.
        note_use: takes the queues to which groups are charged.
        set_aside: keeps objects that cannot be reported.
        """
        self._set_aside = SetAsideObjects() if set_aside is None else set_aside
        self._statuses = statuses
        self._events = events
        self._metrics = metrics
        self._pods_of = pods_of
        self._pod_named = pod_named
        self._note_use = note_use
        self._known: dict[str, _Basis] = {}
        self._waiting: dict[str, tuple[tuple[Reason, ...], GroupWaits]] = {}
        self._turns = PlacesInQueues()
        self._giving_log = GivingLog()
        self._stranded: StrandedGpus | None = None

    def report(self, state: State, plan: Plan, observed: Observed, now: float) -> bool:
        """Reports a plan for a state. `now` is in seconds of any steady clock.

        Returns whether Events were left out to keep their rate: then they are due in a later call.
        """
        self._report_groups(state, plan, observed)
        self._report_queues(state, plan, observed, now)
        if self._stranded is None or not self._stranded.is_of(state):
            self._stranded = StrandedGpus(state)
        self._metrics.stranded(self._stranded.by_lack())
        self._metrics.degraded(len(plan.degraded))
        notices = self._notices(state, plan, observed.refused)
        self._turns.keep(state)
        are_left = self._events.report_degraded(
            _degraded(plan, observed), partial(self._failed_pods, plan), now
        )
        are_left |= self._events.report(
            notices, self._pods_of, now, lambda key: self._turns.of(state, key, now)
        )
        return are_left

    def _failed_pods(self, plan: Plan, group: str) -> Iterable[ObjectReference]:
        """The pods of a group that have a device which has failed, as Events name them."""
        failed = dict.fromkeys(device.pod for device in plan.degraded[group])
        return chain.from_iterable(map(self._pod_named, failed))

    def _report_queues(self, state: State, plan: Plan, observed: Observed, now: float) -> None:
        groups, figures = count_groups(state), {}
        held_up = holdups(state.occupancy, plan)
        self._giving_log.note(held_up, now)
        use = use_of_stopped_queues(state.occupancy)
        self._note_use(queues_in_use(state.occupancy))

        def report_queue(queue: str, version: ObjectVersion) -> None:
            of_queue = groups.get(queue, GroupCounts())
            status = queue_status(
                state.occupancy,
                plan,
                queue,
                of_queue,
                use.get(queue),
                access=observed.access.get(queue, UNKNOWN_ACCESS),
                holdup=held_up.get(queue, NO_HOLDUP),
                generation=version.generation,
            )
            self._statuses.want(StatusTarget(QUEUES, ObjectKey("", queue)), status.body())
            figures[queue] = _figures(queue_amounts(state.occupancy, plan, queue), of_queue)

        for queue, version in observed.queues.items():
            self._attempt(QUEUES, queue, partial(report_queue, queue, version))
        self._metrics.queues(figures)

    def _report_groups(self, state: State, plan: Plan, observed: Observed) -> None:
        """Reports each PodGroup of which something has changed, but for those that start.

        The next cycle finds the pods of these in their places.
        """
        of_plan = outlooks(plan, _group_of(state.occupancy))
        starts = starting(plan, _group_of(state.occupancy))
        known, self._known = self._known, {}
        for key, version in observed.pod_groups.items():
            before = known.get(key)
            basis = _Basis(
                version=version,
                group=state.occupancy.groups.get(key),
                pods=_pods(state.occupancy, key),
                outlook=of_plan.get(key, _SETTLED),
                refused=observed.refused.get(key),
                failed=plan.degraded.get(key, ()),
            )
            if basis != before and key not in starts:
                namespace, _, name = key.partition("/")
                target = StatusTarget(POD_GROUPS, ObjectKey(namespace, name))
                if self._attempt(POD_GROUPS, key, partial(self._want, target, basis, key)):
                    before = basis
            if before is not None:
                self._known[key] = before

    def _want(self, target: StatusTarget, basis: _Basis, key: str) -> None:
        self._statuses.want(target, basis.status(key).body())

    def _attempt(self, resource: ApiResource, key: str, report: Callable[[], None]) -> bool:
        name = resource.qualified_name
        return self._set_aside.attempt_when_due(name, key, "reported", report)

    def _notices(
        self, state: State, plan: Plan, refused: Mapping[str, str]
    ) -> Mapping[str, GroupNotice]:
        known, self._waiting = self._waiting, {}

        def take(key: str, reasons: tuple[Reason, ...]) -> None:
            before = known.get(key)
            if before is None or before[0] != reasons:
                before = reasons, group_waits(key, reasons, state.occupancy.tree.queues.values())
            self._waiting[key] = before

        for key, reasons in plan.waiting.items():
            self._set_aside.attempt_when_due(GROUPS, key, "explained", partial(take, key, reasons))
        waiting: dict[str, GroupNotice] = {
            key: notice for key, (_, notice) in self._waiting.items()
        }
        return waiting | {key: GroupRefused(text) for key, text in refused.items()}


def _degraded(plan: Plan, observed: Observed) -> Mapping[str, GroupNotice]:
    """What Events say of degraded groups; of one with a PodGroup, its condition does."""
    return {
        key: GroupDegraded(key, degraded_text(failed))
        for key, failed in plan.degraded.items()
        if key not in observed.pod_groups
    }


def group_waits(key: str, reasons: Sequence[Reason], queues: Iterable[Queue]) -> GroupWaits:
    """What Events say about a group that waits, without what its users may not read."""
    reasons = for_tenant(reasons, key.partition("/")[0])
    return GroupWaits(
        key,
        waiting_word(reasons),
        waiting_text(reasons),
        what_helps(reasons[0], queues) if reasons else "",
        is_for_user=any(map(needs_its_user, reasons[:1])),
    )


def _figures(resources: Iterable[ResourceAmounts], groups: GroupCounts) -> QueueFigures:
    named = {describe(amounts.resource): amounts for amounts in resources}
    return QueueFigures(
        allocated={name: figure(of.resource, of.allocated) for name, of in named.items()},
        fair_share={name: figure(of.resource, of.fair_share) for name, of in named.items()},
        pending={name: figure(of.resource, of.pending) for name, of in named.items()},
        pending_groups=groups.pending,
    )


def _group_of(occupancy: Occupancy) -> Callable[[str], str | None]:
    def group_of(pod: str) -> str | None:
        known = occupancy.pods.get(pod)
        return None if known is None else known.group

    return group_of


def _pods(occupancy: Occupancy, key: str) -> tuple[Pod, ...]:
    members = occupancy.members.get(key)
    if members is None:
        return ()
    return tuple(occupancy.pods[pod] for pods in members.by_set.values() for pod in pods)
