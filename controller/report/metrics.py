"""The controller's metrics, for Prometheus. Durations are in seconds.

The number of series is bounded: the values of a label are those of an enumeration, the Queues of
the cluster, or the resources that these name. The series of a Queue go with it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carina_dra.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
)
from controller.engine.decide.nodes.stranded import Lack
from controller.engine.model.plan import Action

_PHASE_BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WAIT_BUCKETS: Final = (
    *(0.1, 0.3, 1, 3, 10, 30),
    *(_MINUTE, 3 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 10 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY),
)
DEVICE_TAINT: Final = "device-taint"
"""The action of an eviction that no plan asks for: a device of the pod has a taint."""


class CyclePhase(StrEnum):
    """A part of a cycle."""

    OBSERVE = "observe"
    """What has changed is applied to the state."""
    DECIDE = "decide"
    ACT = "act"
    """What follows from the plan is written."""


class Undone(StrEnum):
    """Why a decision was undone."""

    CONFLICT = "conflict"
    """An object had changed since it was read."""
    REFUSED = "refused"
    """kube-scheduler refused the pod on its node."""
    TAKEN_BACK = "taken_back"
    """kube-scheduler cleared the allocation."""
    DOUBLE_ALLOCATION = "double_allocation"
    """Somebody else allocated a device at the same time."""


class SetAsideReason(StrEnum):
    """Why a group is not asked for a while."""

    FAILED = "failed"
    """An unexpected error; the log has it."""
    UNDECIDED = "undecided"
    """An attempt has cost more than it may."""


class Write(StrEnum):
    """What is written."""

    CLAIM = "claim"
    """The finalizer of a claim."""
    CLAIM_STATUS = "claim_status"
    """An allocation or a reservation."""
    POD = "pod"
    """A pod loses its gate."""
    EVICTION = "eviction"
    QUEUE = "queue"
    """The finalizer of a Queue."""
    QUEUE_STATUS = "queue_status"
    GROUP_STATUS = "group_status"
    TAINT_RULE = "taint_rule"


class WriteResult(StrEnum):
    """What became of a write."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """The object has changed, or is gone."""
    REFUSED = "refused"
    """The API server refused the write; for an eviction, a PodDisruptionBudget did."""
    FAILED = "failed"
    """The API server could not be reached, or failed."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What a queue has and wants, by resource (`describe`) in the units of the resource."""

    allocated: Mapping[str, float]
    fair_share: Mapping[str, float]
    pending: Mapping[str, float]
    """What its groups ask for and do not have."""
    pending_groups: int
    """How many groups have no place for their minimum."""


class ControllerMetrics:
    """Every metric of one controller process, in a registry of its own unless one is given.

    Figures of queues and waits come from one thread; everything else from any.
    """

    CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry = CollectorRegistry() if registry is None else registry
        self._queues = _QueueCollector()
        registry.register(self._queues)
        self._watches = _WatchCollector()
        registry.register(self._watches)
        self._objects_set_aside = _SetAsideCollector()
        registry.register(self._objects_set_aside)
        self._waits = Histogram(
            "carina_group_wait_seconds",
            "Time from the creation of a group to the start of the pods that it needs, by queue.",
            ("queue",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._started_in: set[str] = set()
        """The queues with a series of waits; used by one thread, that of the cycles."""
        self._cycles = Counter("carina_cycles", "Cycles that have ended.", registry=registry)
        self._phases = Histogram(
            "carina_cycle_phase_duration_seconds",
            f"Duration of the phases of a cycle ({_names(CyclePhase)}).",
            ("phase",),
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self._degraded = Gauge(
            "carina_degraded_groups",
            "Groups that run with a device that its driver has tainted.",
            registry=registry,
        )
        self._evictions = Counter(
            "carina_evictions",
            f"Pods that the API server has accepted to evict, by action ({_names(Action)}, "
            f"{DEVICE_TAINT}).",
            ("action",),
            registry=registry,
        )
        self._undone = Counter(
            "carina_decisions_undone",
            f"Starts of pods that were undone, by reason ({_names(Undone)}).",
            ("reason",),
            registry=registry,
        )
        self._set_aside = Counter(
            "carina_groups_set_aside",
            "Decisions on a group that were given up and are tried again later, by reason "
            f"({_names(SetAsideReason)}).",
            ("reason",),
            registry=registry,
        )
        self._writes = Counter(
            "carina_writes",
            f"Writes to the API server, by kind ({_names(Write)}) and outcome "
            f"({_names(WriteResult)}). Events and the Lease are not counted.",
            ("kind", "outcome"),
            registry=registry,
        )
        self._leading = Gauge(
            "carina_leading", "1 if this process leads, else 0.", registry=registry
        )
        self._stranded = Gauge(
            "carina_stranded_gpus",
            "Free GPUs that nothing that is typically asked for can use, by what is lacking "
            f"({_names(Lack)}).",
            ("lack",),
            registry=registry,
        )
        self._events_dropped = Gauge(
            "carina_events_dropped",
            "Events since the start that could not be sent to the API server.",
            registry=registry,
        )
        # From 0 on, so that the first occurrence is an increase.
        for phase in CyclePhase:
            self._phases.labels(phase)
        for lack in Lack:
            self._stranded.labels(lack)
        for action in (*Action, DEVICE_TAINT):
            self._evictions.labels(action)
        for reason in Undone:
            self._undone.labels(reason)
        for cause in SetAsideReason:
            self._set_aside.labels(cause)

    def queues(self, figures: Mapping[str, QueueFigures]) -> None:
        """Replaces the figures of all queues, by name."""
        for gone in self._started_in - figures.keys():
            self._waits.remove(gone)
        self._started_in &= figures.keys()
        self._queues.figures = dict(figures)

    def stranded(self, by_lack: Mapping[Lack, float]) -> None:
        """How many free GPUs nobody can use, by what is lacking."""
        for lack, gpus in by_lack.items():
            self._stranded.labels(lack).set(gpus)

    def group_started(self, queue: str, seconds: float) -> None:
        """A group of a queue has started, `seconds` after its creation."""
        self._started_in.add(queue)
        self._waits.labels(queue).observe(max(seconds, 0))  # clocks differ

    def cycle(self, seconds: Mapping[CyclePhase, float]) -> None:
        """A cycle has ended, whose phases took so long."""
        self._cycles.inc()
        for phase, duration in seconds.items():
            self._phases.labels(phase).observe(duration)

    def degraded(self, groups: int) -> None:
        """So many groups run with a device that has failed."""
        self._degraded.set(groups)

    def evicted(self, action: Action | Literal["device-taint"]) -> None:
        """A pod was evicted: by an action of a plan, or for a taint of a device."""
        self._evictions.labels(action).inc()

    def set_aside(self, reason: SetAsideReason) -> None:
        """A group was set aside."""
        self._set_aside.labels(reason).inc()

    def undone(self, reason: Undone) -> None:
        """The start of a pod was undone."""
        self._undone.labels(reason).inc()

    @contextmanager
    def writing(self, kind: Write) -> Iterator[None]:
        """Counts the write that is made inside the `with` block, by its outcome."""
        try:
            yield
        except ApiError as error:
            self._writes.labels(kind, _outcome(error)).inc()
            raise
        self._writes.labels(kind, WriteResult.WRITTEN).inc()

    def leading(self, *, leads: bool) -> None:
        """Whether this process leads now. Only the leader has figures of queues."""
        self._leading.set(leads)
        if not leads:
            self.queues({})

    def follow_watches(self, ages: Callable[[], Mapping[str, float]]) -> None:
        """Asks `ages`, at each scrape, how long ago each watched resource was last heard of."""
        self._watches.ages = ages

    def follow_set_aside(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Asks `counts`, at each scrape, how many objects of each resource are set aside."""
        self._objects_set_aside.counts = counts

    def follow_events(self, dropped: Callable[[], int]) -> None:
        """Asks `dropped`, at each scrape, how many Events were lost."""
        self._events_dropped.set_function(dropped)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _QueueCollector(Collector):
    """The figures of the queues, which a scrape sees all of the same cycle."""

    def __init__(self) -> None:
        self.figures: Mapping[str, QueueFigures] = {}

    def collect(self) -> Iterable[Metric]:
        queues = self.figures.items()
        yield _by_resource(
            "carina_queue_allocated",
            "What the groups of a queue have",
            {queue: figures.allocated for queue, figures in queues},
        )
        yield _by_resource(
            "carina_queue_fair_share",
            "What a queue may have at present",
            {queue: figures.fair_share for queue, figures in queues},
        )
        yield _by_resource(
            "carina_queue_pending",
            "What the groups of a queue ask for and do not have",
            {queue: figures.pending for queue, figures in queues},
        )
        pending_groups = GaugeMetricFamily(
            "carina_queue_pending_groups",
            "Groups of a queue whose minimum has no place.",
            labels=("queue",),
        )
        for queue, figures in queues:
            pending_groups.add_metric((queue,), figures.pending_groups)
        yield pending_groups


class _WatchCollector(Collector):
    def __init__(self) -> None:
        self.ages: Callable[[], Mapping[str, float]] = dict

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "carina_watch_age_seconds",
            "Time since the API server last said anything about a watched resource. It does so "
            "about every minute, whether or not objects change.",
            labels=("resource",),
        )
        for resource, age in self.ages().items():
            family.add_metric((resource,), age)
        yield family


class _SetAsideCollector(Collector):
    def __init__(self) -> None:
        self.counts: Callable[[], Mapping[str, int]] = dict

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "carina_objects_set_aside",
            "Objects that the controller cannot read or decide on, because of a defect. The log "
            "names each.",
            labels=("resource",),
        )
        for resource, number in self.counts().items():
            family.add_metric((resource,), number)
        yield family


def _by_resource(
    name: str, text: str, amounts: Mapping[str, Mapping[str, float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        name,
        f"{text}, by resource: devices, milli-CPU, bytes or pods.",
        labels=("queue", "resource"),
    )
    for queue, by_resource in amounts.items():
        for resource, amount in by_resource.items():
            family.add_metric((queue, resource), amount)
    return family


def _outcome(error: ApiError) -> WriteResult:
    match error:
        case Conflict() | NotFound():
            return WriteResult.CONFLICT
        case Forbidden() | Invalid() | TooManyRequests():
            return WriteResult.REFUSED
        case _:
            return WriteResult.FAILED


def _names(values: Iterable[StrEnum]) -> str:
    return ", ".join(values)
