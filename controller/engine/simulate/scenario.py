"""Scenario: a cluster, its queues and its work, as people write them.

    apiVersion: scheduling.carina.dev/v1alpha1
    kind: Scenario
    name: one-job
    nodes:
    - {name: h100, count: 2, cpu: 96, memory: 1Ti, gpus: 8, gpuMemory: 80Gi}
    queues:
    - {name: research}
    jobs:
    - {name: train, queue: research, duration: 2h, pods: 2, gpus: 8}

Times are durations since the start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.quantity import Quantity
from carina_dra.resource.errors import BadValueError, did_you_mean
from controller.engine.files.amount import Bytes, MilliCpu, Seconds
from controller.engine.files.queue import QueueSpec
from controller.engine.model.group import TopologyConstraint
from controller.engine.model.pod import Toleration
from controller.engine.model.snapshot import EngineSettings
from controller.engine.simulate.distribution import Arrivals, Distribution
from controller.engine.simulate.fleet import GPU_CLASS, NodeTemplate

KIND: Final = "Scenario"


@dataclass(frozen=True, slots=True)
class DeviceAlternative:
    """Devices of one class."""

    device_class: str
    count: int = 1
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """How much of a shared device, by name; how much a device has at least, otherwise."""
    selectors: tuple[str, ...] = ()
    """CEL expressions on the device."""


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """Devices of one class, or the first of several alternatives that can be had."""

    device_class: str | None = None
    count: int = 1
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    selectors: tuple[str, ...] = ()
    first_available: tuple[DeviceAlternative, ...] = ()

    def __post_init__(self) -> None:
        """Checks that it says one or the other."""
        if (self.device_class is None) == (not self.first_available):
            raise ValueError("write either deviceClass or firstAvailable")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that it names."""
        own = () if self.device_class is None else (self.device_class,)
        return (*own, *(each.device_class for each in self.first_available))


@dataclass(frozen=True, slots=True)
class JobShape:
    """The pods of a job, and what each of them needs."""

    pods: int = 1
    min_pods: int | None = None
    """How many must run together; all of them by default."""
    gpus: int = 0
    """Whole GPUs, short for devices of class gpu.carina.dev."""
    devices: tuple[RequestedDevices, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    """Devices without a claim: extended resources, such as nvidia.com/gpu, by name."""
    match_attribute: str | None = None
    """All devices of a pod have the same value of this attribute."""
    cpu: MilliCpu = 0
    memory: Bytes = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyConstraint | None = None

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.pods < 1:
            raise ValueError(f"pods is {self.pods}; it must be at least 1")
        if self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus}; it must not be negative")
        for name, amount in self.limits.items():
            if amount < 1:
                raise ValueError(f"limits[{name}] is {amount}; it must be at least 1")
        if self.min_pods is not None and not 0 <= self.min_pods <= self.pods:
            raise ValueError(f"minPods is {self.min_pods}; it must be from 0 to pods ({self.pods})")

    @property
    def requests(self) -> tuple[RequestedDevices, ...]:
        """The devices of a pod, with its whole GPUs."""
        whole = (RequestedDevices(device_class=GPU_CLASS, count=self.gpus),) if self.gpus else ()
        return (*whole, *self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplate(JobShape):
    """One or several jobs that are alike; their names end with their number if there are several.

    A job whose pods are taken away waits, and begins again; with checkpoints it goes on.
    """

    name: str
    queue: str
    arrival: Seconds = 0
    duration: Seconds | None = None
    """How long it runs with all of its pods; it does not end if absent."""
    count: int = 1
    every: Seconds = 0
    """The time between the arrivals of two of them."""
    priority: int = 0
    preemptible: bool = True
    checkpoints: bool = False
    run_time: Seconds | None = None
    """How long it says that it runs, for reservations."""
    placement: Policy | None = None

    def __post_init__(self) -> None:
        """Checks the numbers."""
        JobShape.__post_init__(self)
        if self.count < 1:
            raise ValueError(f"count is {self.count}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize(JobShape):
    """One of the shapes that generated jobs have."""

    weight: Fraction = Fraction(1)
    """How likely it is, compared with the others."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        JobShape.__post_init__(self)
        if self.weight <= 0:
            raise ValueError(f"weight is {self.weight}; it must be more than 0")


@dataclass(frozen=True, slots=True)
class Generator:
    """Jobs at random times, of random sizes and durations."""

    name: str
    queue: str
    arrivals: Arrivals
    duration: Distribution
    sizes: tuple[JobSize, ...]
    first: Seconds = 0
    """When it begins."""
    last: Seconds | None = None
    """When it ends; with the simulation if absent."""
    priority: int = 0
    preemptible: bool = True
    checkpoints: bool = False

    def __post_init__(self) -> None:
        """Checks that there is a size."""
        if not self.sizes:
            raise ValueError("sizes is empty; write at least one, such as gpus: 1")


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Nodes leave the cluster, or join it. A node that is first added is not there before."""

    at: Seconds
    gone: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQueue(QueueSpec):
    """A queue: its name, and the fields of a Queue's spec."""

    name: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster, and what happens to it."""

    name: str
    nodes: tuple[NodeTemplate, ...]
    queues: tuple[NamedQueue, ...]
    jobs: tuple[JobTemplate, ...] = ()
    generators: tuple[Generator, ...] = ()
    events: tuple[NodeChange, ...] = ()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name: keys of node labels, the widest level first."""
    settings: EngineSettings = field(default_factory=EngineSettings)
    until: Seconds | None = None
    """When the simulation ends; when nothing is left to do if absent."""
    seed: int = 0
    grace: Seconds = 30
    """How long an evicted pod holds what it has."""
    replaced_after: Seconds = 10
    """How long after a pod is gone its job makes the one that replaces it, as a Job does first."""
    period: Seconds = 1
    """The least time between two cycles of the engine."""


def check(scenario: Scenario, classes: Iterable[str], extended: Iterable[str]) -> None:
    """Checks that the parts of a scenario fit together.

    classes: the device classes; extended: the extended resources of which there is a class.

    Raises:
        BadValueError: a name is used twice, or is not known. It has the path of the field.
    """
    _check_different("nodes", [template.name for template in scenario.nodes])
    _check_different("queues", [queue.name for queue in scenario.queues])
    work: list[tuple[str, int, JobTemplate | Generator]] = [
        *(("jobs", index, job) for index, job in enumerate(scenario.jobs)),
        *(("generators", index, generator) for index, generator in enumerate(scenario.generators)),
    ]
    _check_different("jobs and generators", [workload.name for _, _, workload in work])
    queues = [queue.name for queue in scenario.queues]
    parents = {queue.parent for queue in scenario.queues if queue.parent is not None}
    for index, queue in enumerate(scenario.queues):
        if queue.parent is not None:
            _check_known(queue.parent, queues, "a queue", f"queues[{index}].parent")
    for kind, index, workload in work:
        path = f"{kind}[{index}]"
        _check_known(workload.queue, queues, "a queue", f"{path}.queue")
        if workload.queue in parents:
            raise _problem(f"{path}.queue", f"is {workload.queue!r}, which has queues below it")
        match workload:
            case JobTemplate():
                _check_shape(workload, scenario, classes, extended, path)
            case Generator():
                for number, size in enumerate(workload.sizes):
                    size_path = f"{path}.sizes[{number}]"
                    _check_shape(size, scenario, classes, extended, size_path)
                if scenario.until is None and workload.last is None:
                    raise _problem(path, "has no last, and the scenario no until; write one")
    _check_events(scenario)


def _check_shape(
    shape: JobShape,
    scenario: Scenario,
    classes: Iterable[str],
    extended: Iterable[str],
    path: str,
) -> None:
    for name in shape.limits:
        what = "an extended resource of a device class"
        _check_known(name, extended, what, f"{path}.limits")
    for index, devices in enumerate(shape.devices):
        for name in devices.classes:
            _check_known(name, classes, "a device class", f"{path}.devices[{index}]")
    if shape.topology is not None:
        topology = shape.topology
        _check_known(topology.topology, scenario.topologies, "a topology", f"{path}.topology")
        levels = scenario.topologies[topology.topology]
        for level in filter(None, (topology.required, topology.preferred)):
            _check_known(level, levels, "a level of the topology", f"{path}.topology")


def _check_events(scenario: Scenario) -> None:
    names = [node.name for template in scenario.nodes for node in template.nodes()]
    _check_different("nodes", names)
    present: dict[str, bool] = {}
    for index, event in sorted(enumerate(scenario.events), key=lambda pair: pair[1].at):
        changes = [*(("gone", name) for name in event.gone)]
        changes += [*(("added", name) for name in event.added)]
        for change, name in changes:
            path = f"events[{index}].{change}"
            _check_known(name, names, "a node", path)
            is_there = present.get(name, change == "gone")
            if is_there != (change == "gone"):
                state = "there already" if is_there else "gone already"
                raise _problem(path, f"is {name!r}, which is {state}")
            present[name] = change == "added"


def _check_different(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _problem("", f"has {what} with the same name {name}; rename one of them")
        seen.add(name)


def _check_known(name: str, known: Iterable[str], what: str, path: str) -> None:
    names = list(known)
    if name not in names:
        remedy = did_you_mean(name, names) if names else "the scenario has none"
        raise _problem(path, f"is {name!r:.80}, which is not {what} of the scenario; {remedy}")


def _problem(path: str, problem: str) -> BadValueError:
    error = BadValueError(problem)
    error.steps.append(path)
    return error
