"""Which devices of a node a claim gets: the first that fit, in the order that they are published.

It knows what the examples ask for: counts, all, alternatives, selectors, `matchAttribute`, admin
access. Every device is taken for a whole one, which nobody else can use while it is given away;
a tainted one is given to nobody.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import assert_never

from carina_dra.resource import (
    All,
    AllocationConfigSource,
    AllocationConfiguration,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    MatchAttribute,
    OnNode,
    ResourceSlice,
)
from carina_dra.resource.attribute import lookup
from simulation.demo.selector import selects


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that a driver offers on a node."""

    driver: str
    pool: str
    node: str
    device: Device

    @property
    def id(self) -> tuple[str, str, str]:
        """Driver, pool and name: unique in the cluster."""
        return self.driver, self.pool, self.device.name


@dataclass(frozen=True, slots=True)
class _Given:
    request: str
    """`req`, or `req/sub`."""
    candidate: Candidate
    admin_access: bool


class NotUnderstoodError(Exception):
    """A claim asks for what the demo's scheduler does not know."""


def candidates(slices: Iterable[ResourceSlice]) -> dict[str, tuple[Candidate, ...]]:
    """The devices of each node, from the newest generation of pools that are complete."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
    found: dict[str, tuple[Candidate, ...]] = {}
    for members in pools.values():
        newest = max(each.spec.pool.generation for each in members)
        current = [each for each in members if each.spec.pool.generation == newest]
        if len(current) != current[0].spec.pool.resource_slice_count:
            continue
        for each in sorted(current, key=lambda member: member.metadata.name):
            if isinstance(each.spec.nodes, OnNode):
                node, spec = each.spec.nodes.node_name, each.spec
                found[node] = found.get(node, ()) + tuple(
                    Candidate(spec.driver, spec.pool.name, node, device) for device in spec.devices
                )
    return found


def allocate(
    claim: DeviceClaim,
    classes: Mapping[str, DeviceClass],
    offered: Sequence[Candidate],
    taken: frozenset[tuple[str, str, str]],
) -> tuple[DeviceResult, ...] | None:
    """What a claim gets of the devices of one node, None if they do not suffice.

    Raises:
        NotUnderstoodError, SelectorError: it asks for something that is not known here.
    """
    free = [each for each in offered if not each.device.taints]
    chosen = next(_solutions(claim, claim.requests, classes, free, taken), None)
    if chosen is None:
        return None
    return tuple(
        DeviceResult(
            request=given.request,
            driver=given.candidate.driver,
            pool=given.candidate.pool,
            device=given.candidate.device.name,
            admin_access=given.admin_access or None,
        )
        for given in chosen
    )


def configurations(
    claim: DeviceClaim, classes: Mapping[str, DeviceClass], results: Iterable[DeviceResult]
) -> tuple[AllocationConfiguration, ...]:
    """The configurations in force for what a claim was given: the classes' first, as upstream."""
    used = {result.request for result in results}
    from_classes = (
        AllocationConfiguration(AllocationConfigSource.CLASS, (name,), each.opaque)
        for request in claim.requests
        for name, wanted in _alternatives(request)
        if name in used
        for each in classes[wanted.device_class_name].spec.config
    )
    from_claim = (
        AllocationConfiguration(AllocationConfigSource.CLAIM, each.requests, each.opaque)
        for each in claim.config
    )
    return tuple(chain(from_classes, from_claim))


def _solutions(
    claim: DeviceClaim,
    requests: Sequence[DeviceRequest],
    classes: Mapping[str, DeviceClass],
    free: Sequence[Candidate],
    taken: frozenset[tuple[str, str, str]],
) -> Iterator[tuple[_Given, ...]]:
    """All ways to satisfy the requests from the first on, the best one first."""
    if not requests:
        yield ()
        return
    for name, wanted in _alternatives(requests[0]):
        admin = isinstance(wanted, ExactDeviceRequest) and bool(wanted.admin_access)
        fitting = [
            each
            for each in free
            if (admin or each.id not in taken) and _fits(wanted, classes, each)
        ]
        for choice in _choices(wanted, fitting):
            here = tuple(_Given(name, each, admin) for each in choice)
            now_taken = taken if admin else taken | {each.id for each in choice}
            for rest in _solutions(claim, requests[1:], classes, free, now_taken):
                if all(_satisfied(rule, here + rest) for rule in claim.constraints):
                    yield here + rest


def _alternatives(
    request: DeviceRequest,
) -> tuple[tuple[str, ExactDeviceRequest | DeviceSubRequest], ...]:
    match request.wants:
        case Exactly(exact):
            return ((request.name, exact),)
        case FirstAvailable(alternatives):
            return tuple((f"{request.name}/{each.name}", each) for each in alternatives)
        case None:
            raise NotUnderstoodError(f"request {request.name} is of a kind that is not known")
    assert_never(request.wants)


def _fits(
    wanted: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    candidate: Candidate,
) -> bool:
    if wanted.capacity is not None or wanted.derived_attributes or wanted.unknown:
        raise NotUnderstoodError("the demo's scheduler knows no capacities of requests")
    if wanted.device_class_name not in classes:
        raise NotUnderstoodError(f"there is no DeviceClass {wanted.device_class_name}")
    selectors = (*classes[wanted.device_class_name].spec.selectors, *wanted.selectors)
    return all(selects(each, candidate.device, candidate.driver) for each in selectors)


def _choices(
    wanted: ExactDeviceRequest | DeviceSubRequest, fitting: Sequence[Candidate]
) -> Iterable[tuple[Candidate, ...]]:
    match wanted.mode:
        case ExactCount(count):
            return combinations(fitting, count)
        case All():
            return (tuple(fitting),) if fitting else ()
        case _:  # modes that only a newer API has
            raise NotUnderstoodError("the allocation mode is not known")


def _satisfied(constraint: DeviceConstraint, given: Sequence[_Given]) -> bool:
    """Whether a constraint holds; it is looked at again as more requests are added."""
    if not isinstance(constraint.rule, MatchAttribute):
        raise NotUnderstoodError("the demo's scheduler knows no constraint but matchAttribute")
    name = constraint.rule.name
    concerned = [
        each.candidate
        for each in given
        if not constraint.requests
        or each.request in constraint.requests
        or each.request.partition("/")[0] in constraint.requests
    ]
    values = [lookup(each.device.attributes, name, each.driver) for each in concerned]
    return all(value is not None and value == values[0] for value in values)
