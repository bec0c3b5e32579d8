"""From a scenario to the trace that is simulated."""

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Final

from carina_dra.manifests.validation import problems
from carina_dra.resource import (
    CapacityRequirements,
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    MatchAttribute,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
)
from carina_dra.resource.errors import BadValueError
from controller.engine.model.extended_resource import classes_by_resource
from controller.engine.model.group import Group, PodSet
from controller.engine.model.planned_claim import planned_name
from controller.engine.model.pod import Pending, Pod, PodNeeds
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.distribution import draw
from controller.engine.simulate.fleet import device_classes
from controller.engine.simulate.scenario import (
    DeviceAlternative,
    Generator,
    JobShape,
    JobTemplate,
    RequestedDevices,
    Scenario,
    check,
)
from controller.engine.simulate.trace import Job, NodeAdded, NodeEvent, NodeGone, Trace

_CLAIM: Final = "devices"


def expand(scenario: Scenario, classes: Iterable[DeviceClass] = ()) -> Trace:
    """The trace of a scenario, which begins at 0; `classes` are beside those of the kinds of GPUs.

    Raises:
        BadValueError: the parts of the scenario do not fit together. It has the path of the field.
    """
    own = {
        device_class.metadata.name: device_class for device_class in (*device_classes(), *classes)
    }
    class_of = classes_by_resource(own.values())
    check(scenario, own, class_of)
    nodes = {
        node.name: (node, template) for template in scenario.nodes for node in template.nodes()
    }
    late = {name for name in nodes if _is_added_first(scenario, name)}
    there = [(node, template) for name, (node, template) in nodes.items() if name not in late]
    events: list[NodeEvent] = []
    for event in scenario.events:
        events += [NodeGone(event.at, n, nodes[n][1].slices(n)) for n in event.gone]
        events += [NodeAdded(event.at, nodes[n][0], nodes[n][1].slices(n)) for n in event.added]
    start = Snapshot(
        now=0,
        nodes=tuple(node for node, _ in there),
        slices=tuple(
            published for node, template in there for published in template.slices(node.name)
        ),
        classes=tuple(own.values()),
        queues=tuple(_queues(scenario)),
        topologies=scenario.topologies,
        settings=scenario.settings,
    )
    jobs = sorted(_jobs(scenario, class_of), key=lambda job: job.arrival)
    return Trace(
        name=scenario.name,
        start=start,
        jobs=tuple(jobs),
        node_events=tuple(events),
        until=scenario.until,
        grace=scenario.grace,
        replaced_after=scenario.replaced_after,
        period=scenario.period,
    )


def _queues(scenario: Scenario) -> Iterator[Queue]:
    for index, each in enumerate(scenario.queues):
        try:
            yield each.queue(each.name)
        except BadValueError as error:
            error.steps.append(f"queues[{index}]")
            raise


def _is_added_first(scenario: Scenario, node: str) -> bool:
    for event in sorted(scenario.events, key=lambda event: event.at):
        if node in event.gone:
            return False
        if node in event.added:
            return True
    return False


def _jobs(scenario: Scenario, class_of: Mapping[str, str]) -> Iterator[Job]:
    for index, template in enumerate(scenario.jobs):
        spec = _claim_spec(template, f"jobs[{index}]")
        for number in range(template.count):
            name = f"{template.name}-{number}" if template.count > 1 else template.name
            arrival = template.arrival + number * template.every
            maker = _Maker(template, template, spec, class_of)
            yield maker.job(name, arrival, template.duration)
    for index, generator in enumerate(scenario.generators):
        yield from _generated(scenario, generator, class_of, f"generators[{index}]")


def _generated(
    scenario: Scenario, generator: Generator, class_of: Mapping[str, str], path: str
) -> Iterator[Job]:
    random = Random(f"{scenario.seed}/{generator.name}")  # noqa: S311 - of a simulation
    specs = [
        _claim_spec(size, f"{path}.sizes[{index}]") for index, size in enumerate(generator.sizes)
    ]
    bounds = list(accumulate(size.weight for size in generator.sizes))
    last = generator.last if generator.last is not None else scenario.until or 0
    for number, at in enumerate(generator.arrivals.times(generator.first, last, random)):
        chosen = bisect(bounds, random.random() * float(bounds[-1]), hi=len(bounds) - 1)
        duration = draw(generator.duration, random)
        maker = _Maker(generator, generator.sizes[chosen], specs[chosen], class_of)
        yield maker.job(f"{generator.name}-{number}", at, duration)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes jobs of one shape."""

    workload: JobTemplate | Generator
    shape: JobShape
    claim: ResourceClaimSpec | None
    class_of: Mapping[str, str]
    """The device class by extended resource."""

    def job(self, name: str, arrival: float, duration: float | None) -> Job:
        """A job; its name is that of its queue and its own, as namespace and name."""
        workload, shape = self.workload, self.shape
        key = f"{workload.queue}/{name}"
        least = shape.pods if shape.min_pods is None else shape.min_pods
        group = Group(
            key=key,
            queue=workload.queue,
            root=PodSet("", least, shape.topology),
            priority=workload.priority,
            preemptible=workload.preemptible,
            created=arrival,
        )
        if isinstance(workload, JobTemplate):
            group = replace(group, run_time=workload.run_time, placement=workload.placement)
        pods = tuple(self._pod(key, index, arrival) for index in range(shape.pods))
        claims = tuple(self._claims(pods))
        return Job(group, pods, claims, arrival, duration, workload.checkpoints)

    def _pod(self, group: str, index: int, arrival: float) -> Pod:
        key = f"{group}-{index}"
        limits = tuple(sorted(self.shape.limits.items()))
        planned = tuple((name, planned_name(key, name)) for name, _ in limits)
        own = () if self.claim is None else (f"{key}-{_CLAIM}",)
        return Pod(
            key=key,
            needs=PodNeeds(
                cpu=self.shape.cpu,
                memory=self.shape.memory,
                mapped=limits,
                node_selector=tuple(self.shape.node_selector.items()),
                tolerations=self.shape.tolerations,
            ),
            state=Pending(),
            group=group,
            line=group,
            claims=(*own, *(claim for _, claim in planned)),
            planned=planned,
            rank=index,
            created=arrival,
        )

    def _claims(self, pods: Iterable[Pod]) -> Iterator[ResourceClaim]:
        for pod in pods:
            specs = {key: self._planned_spec(name) for name, key in pod.planned}
            for key in pod.claims:
                spec = specs.get(key, self.claim)
                if spec is not None:
                    namespace, _, name = key.partition("/")
                    metadata = ObjectMeta(name=name, namespace=namespace, uid=key)
                    yield ResourceClaim(metadata=metadata, spec=spec)

    def _planned_spec(self, resource: str) -> ResourceClaimSpec:
        """The claim that kube-scheduler makes for a limit of a pod with one container."""
        mode = ExactCount(self.shape.limits[resource])
        wanted = Exactly(ExactDeviceRequest(self.class_of[resource], mode=mode))
        return ResourceClaimSpec(DeviceClaim((DeviceRequest("container-0-request-0", wanted),)))


def _claim_spec(shape: JobShape, path: str) -> ResourceClaimSpec | None:
    """The claim of each pod; None if it needs no devices.

    Raises:
        BadValueError: the API server would refuse it.
    """
    if not shape.requests:
        return None
    requests = tuple(
        DeviceRequest(f"request-{index}", _wants(devices))
        for index, devices in enumerate(shape.requests)
    )
    rule = shape.match_attribute
    constraints = () if rule is None else (DeviceConstraint(rule=MatchAttribute(rule)),)
    spec = ResourceClaimSpec(DeviceClaim(requests, constraints))
    claim = ResourceClaim(metadata=ObjectMeta(name="claim"), spec=spec)
    for where, problem in problems(claim):
        error = BadValueError(f"makes a claim that is not valid: {where}: {problem}")
        error.steps.append(path)
        raise error
    return spec


def _wants(devices: RequestedDevices) -> Exactly | FirstAvailable:
    if devices.device_class is not None:
        return Exactly(
            ExactDeviceRequest(
                device_class_name=devices.device_class,
                selectors=_selectors(devices),
                mode=ExactCount(devices.count),
                capacity=_capacity(devices),
            )
        )
    return FirstAvailable(
        tuple(
            DeviceSubRequest(
                name=f"alternative-{index}",
                device_class_name=alternative.device_class,
                selectors=_selectors(alternative),
                mode=ExactCount(alternative.count),
                capacity=_capacity(alternative),
            )
            for index, alternative in enumerate(devices.first_available)
        )
    )


def _selectors(asked: RequestedDevices | DeviceAlternative) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(CelSelector(each)) for each in asked.selectors)


def _capacity(asked: RequestedDevices | DeviceAlternative) -> CapacityRequirements | None:
    return CapacityRequirements(asked.capacity) if asked.capacity else None
