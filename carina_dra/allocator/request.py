"""The requests of claims, checked once, before any device is considered.

Every error of a claim by itself is found here. The messages are those of upstream.
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
    """A selector, with its location for errors."""

    location: str
    """Such as `class gpu: selector #0`."""
    selector: Selector | CompileError
    """A compile error fails the attempt only if the selector is evaluated."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to satisfy a request: the only one, or an entry of firstAvailable."""

    claim: str
    """`namespace/name` of the claim, for errors."""
    request: str
    """The name of the request."""
    name: str
    """`req`, or `req/sub`, as in allocation results."""
    rank: int | None
    """Its index in firstAvailable; None if the request has no such list."""
    device_class: DeviceClass
    selectors: tuple[NamedSelector, ...]
    """The selectors of the class, then of the request; all must match."""
    mode: ExactCount | All
    admin_access: bool | None
    tolerations: tuple[DeviceToleration, ...]
    capacity: CapacityRequirements | None
    derived: Mapping[str, AttributeExpression | CompileError]
    """The derived attributes by name; only constraints use them."""

    def is_meant_by(self, names: Sequence[str]) -> bool:
        """Whether a list of request names in the claim includes this one; empty includes all."""
        return not names or self.request in names or self.name in names

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.name.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request: satisfied by the first possible alternative."""

    name: str
    alternatives: tuple[Alternative, ...]
    is_prioritized: bool
    """Whether it has firstAvailable, even with one alternative."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on the devices of some requests together."""

    requests: tuple[str, ...]
    """`req` or `req/sub`; empty for all requests."""
    rule: MatchAttribute | DistinctAttribute


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A checked claim."""

    source: ResourceClaim
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]


def check(claim: ResourceClaim, classes: Mapping[str, DeviceClass], features: Features) -> Claim:
    """Checks a claim, and compiles its expressions.

    Raises:
        AllocationError: no node can satisfy the claim: a class does not exist, a feature is
            disabled, or the claim uses a newer API.
    """
    return Claim(
        source=claim,
        requests=tuple(
            _request(claim, request, classes, features) for request in claim.spec.devices.requests
        ),
        constraints=tuple(
            _constraint(claim, index, constraint)
            for index, constraint in enumerate(claim.spec.devices.constraints)
        ),
    )


def selectors_of(device_class: DeviceClass) -> tuple[NamedSelector, ...]:
    """The selectors of a class, compiled; a device of the class is selected by all of them."""
    return tuple(_selectors(f"class {device_class.metadata.name}", device_class.spec.selectors))


def attributes_read(claims: Iterable[Claim]) -> frozenset[str] | None:
    """The attributes that the claims' expressions read by value; None if unknown."""
    read: set[str] = set()
    for alternative in _alternatives(claims):
        selectors = (named.selector for named in alternative.selectors)
        for expression in (*selectors, *alternative.derived.values()):
            if isinstance(expression, CompileError):
                continue
            if expression.reads is None:
                return None
            read |= expression.reads
    return frozenset(read)


def constrains_all(claims: Iterable[Claim]) -> bool:
    """Whether a constraint means a request for all devices.

    Such a request is an error if a device that the constraint refuses is met before one that is
    taken, so the outcome depends on which of equal devices are taken.
    """
    return any(
        isinstance(alternative.mode, All) and alternative.is_meant_by(constraint.requests)
        for claim in claims
        for constraint in claim.constraints
        for alternative in _alternatives([claim])
    )


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
    location = f"claim {claim.key}, request {request.name}"
    match request.wants:
        case Exactly(request=exact):
            return Request(
                name=request.name,
                alternatives=(_alternative(claim, request, None, exact, classes, features),),
                is_prioritized=False,
            )
        case FirstAvailable(alternatives=()) | None:
            raise AllocationError(
                f"{location}: missing device class name (unsupported request type?)"
            )
        case FirstAvailable(alternatives=alternatives):
            if not features.prioritized_list:
                raise AllocationError(
                    f"{location}: has subrequests, but the DRAPrioritizedList feature is disabled"
                )
            return Request(
                name=request.name,
                alternatives=tuple(
                    _alternative(claim, request, rank, alternative, classes, features)
                    for rank, alternative in enumerate(alternatives)
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
    location = f"claim {claim.key}, request {bare}"
    if wanted.capacity is not None and not features.consumable_capacity:
        raise AllocationError(
            f"{location}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
        )
    if wanted.derived_attributes and not features.derived_attributes:
        raise AllocationError(
            f"{location}: cannot handle request with derived attributes, the feature is disabled"
        )
    admin_access = wanted.admin_access if isinstance(wanted, ExactDeviceRequest) else None
    for index, selector in enumerate(wanted.selectors):
        if selector.cel is None:
            raise AllocationError(
                f"{location}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
    if admin_access is not None and not features.admin_access:
        raise AllocationError(f"{location}: admin access is requested, but the feature is disabled")
    if not wanted.device_class_name:
        raise AllocationError(f"{location}: missing device class name (unsupported request type?)")
    device_class = classes.get(wanted.device_class_name)
    if device_class is None:
        raise AllocationError(
            f"{location}: could not retrieve device class {wanted.device_class_name}: not found"
        )
    return Alternative(
        claim=claim.key,
        request=request.name,
        name=request.name if rank is None else f"{request.name}/{bare}",
        rank=rank,
        device_class=device_class,
        selectors=(
            *selectors_of(device_class),
            *_selectors(f"claim {claim.key}", wanted.selectors),
        ),
        mode=_mode(location, wanted.mode),
        admin_access=admin_access,
        tolerations=wanted.tolerations,
        capacity=wanted.capacity,
        derived={
            attribute.name: _compiled_attribute(attribute.expression)
            for attribute in wanted.derived_attributes
        },
    )


def _mode(location: str, mode: AllocationMode) -> ExactCount | All:
    if isinstance(mode, UnknownMode):
        raise AllocationError(f"{location}: unsupported count mode {mode.name}")
    return mode


def _selectors(location: str, selectors: Sequence[DeviceSelector]) -> list[NamedSelector]:
    return [
        NamedSelector(
            f"{location}: selector #{index}",
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
