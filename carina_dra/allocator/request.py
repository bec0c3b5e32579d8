"""What claims ask for, checked once, before any device is looked at.

Whatever is wrong with a claim in itself is found here; the texts name it as upstream's do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.features import Features
from carina_dra.cel import (
    AttributeExpression,
    CompileError,
    Selector,
    compile_attribute,
    compile_selector,
)
from carina_dra.resource import (
    All,
    AllocationMode,
    CapacityRequirements,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    DistinctAttribute,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    MatchAttribute,
    ResourceClaim,
    UnknownMode,
)


@dataclass(frozen=True, slots=True)
class NamedSelector:
    """A selector, with the words that tell whose it is."""

    place: str
    """Such as `class gpu: selector #0`."""
    selector: Selector | CompileError
    """The error is one of the attempt only if the selector is needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to satisfy a request: the only one, or one of firstAvailable."""

    claim: str
    """The claim, as messages name it."""
    request: str
    """The request it belongs to."""
    name: str
    """`req`, or `req/sub`: as results name it."""
    rank: int | None
    """Its place in firstAvailable, from 0; None of a request that is no such list."""
    device_class: DeviceClass
    selectors: tuple[NamedSelector, ...]
    """The class's, then the request's; all must hold."""
    mode: ExactCount | All
    admin_access: bool | None
    tolerations: tuple[DeviceToleration, ...]
    capacity: CapacityRequirements | None
    derived: Mapping[str, AttributeExpression | CompileError]
    """Attributes that are computed for constraints, by their names."""

    def is_meant_by(self, names: Sequence[str]) -> bool:
        """Whether a list of requests in the claim, empty for all of them, means this one."""
        return not names or self.request in names or self.name in names

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.name.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request: to be satisfied in one of these ways, the first possible one."""

    name: str
    alternatives: tuple[Alternative, ...]
    is_prioritized: bool
    """Whether it is a list of alternatives, if only of one."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What must hold of the devices of some requests together."""

    requests: tuple[str, ...]
    """`req` or `req/sub`; empty for all."""
    rule: MatchAttribute | DistinctAttribute


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A claim, ready to be matched with devices."""

    source: ResourceClaim
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]


def check(claim: ResourceClaim, classes: Mapping[str, DeviceClass], features: Features) -> Claim:
    """Reads what a claim asks for.

    Raises:
        AllocationError: the claim can be satisfied nowhere: a class that is not there, a feature
            that is off, something that only a newer API knows.
    """
    return Claim(
        source=claim,
        requests=tuple(
            _request(claim, each, classes, features) for each in claim.spec.devices.requests
        ),
        constraints=tuple(
            _constraint(claim, index, each)
            for index, each in enumerate(claim.spec.devices.constraints)
        ),
    )


def attributes_read(claims: Iterable[Claim]) -> frozenset[str] | None:
    """The attributes that the claims' expressions read by value; None if that cannot be told."""
    read: set[str] = set()
    for alternative in _alternatives(claims):
        selectors = (each.selector for each in alternative.selectors)
        for expression in (*selectors, *alternative.derived.values()):
            if isinstance(expression, CompileError):
                continue
            if expression.reads is None:
                return None
            read |= expression.reads
    return frozenset(read)


def _alternatives(claims: Iterable[Claim]) -> Iterator[Alternative]:
    for claim in claims:
        for request in claim.requests:
            yield from request.alternatives


def _constraint(claim: ResourceClaim, index: int, constraint: DeviceConstraint) -> Constraint:
    if constraint.rule is None:
        raise AllocationError(
            f"claim {claim.key}, constraint #{index}: empty constraint "
            "(unsupported constraint type?)"
        )
    return Constraint(constraint.requests, constraint.rule)


def _request(
    claim: ResourceClaim,
    request: DeviceRequest,
    classes: Mapping[str, DeviceClass],
    features: Features,
) -> Request:
    place = f"claim {claim.key}, request {request.name}"
    match request.wants:
        case Exactly(request=exact):
            return Request(
                name=request.name,
                alternatives=(_alternative(claim, request, None, exact, classes, features),),
                is_prioritized=False,
            )
        case FirstAvailable(alternatives=()) | None:
            raise AllocationError(f"{place}: missing device class name (unsupported request type?)")
        case FirstAvailable(alternatives=alternatives):
            if not features.prioritized_list:
                raise AllocationError(
                    f"{place}: has subrequests, but the DRAPrioritizedList feature is disabled"
                )
            return Request(
                name=request.name,
                alternatives=tuple(
                    _alternative(claim, request, rank, each, classes, features)
                    for rank, each in enumerate(alternatives)
                ),
                is_prioritized=True,
            )
    assert_never(request.wants)


def _alternative(
    claim: ResourceClaim,
    request: DeviceRequest,
    rank: int | None,
    wanted: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    features: Features,
) -> Alternative:
    bare = wanted.name if isinstance(wanted, DeviceSubRequest) else request.name
    place = f"claim {claim.key}, request {bare}"
    if wanted.capacity is not None and not features.consumable_capacity:
        raise AllocationError(
            f"{place}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
        )
    if wanted.derived_attributes and not features.derived_attributes:
        raise AllocationError(
            f"{place}: cannot handle request with derived attributes, the feature is disabled"
        )
    admin_access = wanted.admin_access if isinstance(wanted, ExactDeviceRequest) else None
    for index, selector in enumerate(wanted.selectors):
        if selector.cel is None:
            raise AllocationError(
                f"{place}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
    if admin_access is not None and not features.admin_access:
        raise AllocationError(f"{place}: admin access is requested, but the feature is disabled")
    if not wanted.device_class_name:
        raise AllocationError(f"{place}: missing device class name (unsupported request type?)")
    device_class = classes.get(wanted.device_class_name)
    if device_class is None:
        raise AllocationError(
            f"{place}: could not retrieve device class {wanted.device_class_name}: not found"
        )
    class_place = f"class {device_class.metadata.name}"
    return Alternative(
        claim=claim.key,
        request=request.name,
        name=request.name if rank is None else f"{request.name}/{bare}",
        rank=rank,
        device_class=device_class,
        selectors=(
            *_selectors(class_place, device_class.spec.selectors),
            *_selectors(f"claim {claim.key}", wanted.selectors),
        ),
        mode=_mode(place, wanted.mode),
        admin_access=admin_access,
        tolerations=wanted.tolerations,
        capacity=wanted.capacity,
        derived={
            each.name: _compiled_attribute(each.expression) for each in wanted.derived_attributes
        },
    )


def _mode(place: str, mode: AllocationMode) -> ExactCount | All:
    if isinstance(mode, UnknownMode):
        raise AllocationError(f"{place}: unsupported count mode {mode.name}")
    return mode


def _selectors(place: str, selectors: Sequence[DeviceSelector]) -> list[NamedSelector]:
    return [
        NamedSelector(
            f"{place}: selector #{index}",
            _compiled_selector(selector),
        )
        for index, selector in enumerate(selectors)
    ]


def _compiled_selector(selector: DeviceSelector) -> Selector | CompileError:
    if selector.cel is None:
        return CompileError("CEL expression empty (unsupported selector type?)")
    try:
        return compile_selector(selector.cel.expression)
    except CompileError as error:
        return error


def _compiled_attribute(expression: str) -> AttributeExpression | CompileError:
    try:
        return compile_attribute(expression)
    except CompileError as error:
        return error
