"""Values that the API server refuses, in objects that people write.

The codec has checked fields and types. The rules here are those of ValidateResourceClaim,
ValidateDeviceClass and ValidateResourceSlice in pkg/apis/resource/validation/validation.go of
kubernetes v1.37.0, as far as an allocation depends on them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from carina_dra.cel import CompileError, compile_attribute, compile_selector
from carina_dra.resource import (
    ClaimConfiguration,
    ClassConfiguration,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaintRule,
    DeviceToleration,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    TolerationOperator,
    UnknownMode,
    limits,
)
from carina_dra.resource.errors import did_you_mean

FieldProblem: TypeAlias = tuple[str, str]
"""The path of a field, and what is wrong with it."""
_OPAQUE_DEPTH: Final = 100
"""Nested maps and lists in opaque parameters: Carina's own limit, that of YAML."""


def problems(
    written: ResourceClaim | ResourceClaimTemplate | DeviceClass | ResourceSlice | DeviceTaintRule,
) -> Iterator[FieldProblem]:
    """What the API server would refuse in an object, in the order of its fields."""
    if not written.metadata.name:
        yield "metadata.name", "is missing; results and errors name the object by it"
    match written:
        case ResourceClaim(spec=spec):
            yield from _claim(spec.devices, "spec.devices")
        case ResourceClaimTemplate(spec=template):
            yield from _claim(template.spec.devices, "spec.spec.devices")
        case DeviceClass(spec=spec):
            yield from _selectors(spec.selectors, "spec.selectors")
            yield from _configurations(spec.config, "spec.config")
        case ResourceSlice():
            yield from _slice(written)
        case DeviceTaintRule():
            pass


# Claims ----------------------------------------------------------------------------------------


def _claim(claim: DeviceClaim, path: str) -> Iterator[FieldProblem]:
    names = _request_names(claim)
    yield from _size(claim.requests, limits.REQUESTS_PER_CLAIM, f"{path}.requests")
    yield from _unique([request.name for request in claim.requests], f"{path}.requests")
    for index, request in enumerate(claim.requests):
        yield from _request(request, f"{path}.requests[{index}]")
    yield from _size(claim.constraints, limits.CONSTRAINTS_PER_CLAIM, f"{path}.constraints")
    for index, constraint in enumerate(claim.constraints):
        yield from _constraint(constraint, names, f"{path}.constraints[{index}]")
    for index, configuration in enumerate(claim.config):
        yield from _references(configuration.requests, names, f"{path}.config[{index}].requests")
    yield from _configurations(claim.config, f"{path}.config")


def _request_names(claim: DeviceClaim) -> set[str]:
    """`request`, and `request/subrequest` for each alternative."""
    names: set[str] = set()
    for request in claim.requests:
        names.add(request.name)
        if isinstance(request.wants, FirstAvailable):
            names |= {f"{request.name}/{each.name}" for each in request.wants.alternatives}
    return names


def _request(request: DeviceRequest, path: str) -> Iterator[FieldProblem]:
    yield from _required(request.name, f"{path}.name")
    match request.wants:
        case None | FirstAvailable(alternatives=()):
            yield path, "has neither exactly nor firstAvailable; write one of them"
        case Exactly(request=exact):
            yield from _wanted(exact, f"{path}.exactly")
        case FirstAvailable(alternatives=alternatives):
            path = f"{path}.firstAvailable"
            yield from _size(alternatives, limits.ALTERNATIVES_PER_REQUEST, path)
            yield from _unique([alternative.name for alternative in alternatives], path)
            for index, alternative in enumerate(alternatives):
                yield from _required(alternative.name, f"{path}[{index}].name")
                yield from _wanted(alternative, f"{path}[{index}]")


def _wanted(wanted: ExactDeviceRequest | DeviceSubRequest, path: str) -> Iterator[FieldProblem]:
    yield from _required(wanted.device_class_name, f"{path}.deviceClassName")
    yield from _selectors(wanted.selectors, f"{path}.selectors")
    match wanted.mode:
        case UnknownMode(name=name):
            yield f"{path}.allocationMode", f"is {name!r:.80}, not one of ExactCount, All"
        case ExactCount(count=count) if count < 1:
            yield f"{path}.count", f"is {count}; it must be greater than zero"
        case _:
            pass
    for index, toleration in enumerate(wanted.tolerations):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    for index, attribute in enumerate(wanted.derived_attributes):
        where = f"{path}.derivedAttributes[{index}].expression"
        yield from _expression(attribute.expression, compile_attribute, where)


def _toleration(toleration: DeviceToleration, path: str) -> Iterator[FieldProblem]:
    if toleration.operator is TolerationOperator.EXISTS and toleration.value:
        yield f"{path}.value", f"is {toleration.value!r:.80}; it must be empty for operator Exists"


def _constraint(constraint: DeviceConstraint, names: set[str], path: str) -> Iterator[FieldProblem]:
    yield from _references(constraint.requests, names, f"{path}.requests")
    if constraint.rule is None:
        yield path, "has neither matchAttribute nor distinctAttribute; write one of them"
        return
    domain, _, identifier = constraint.rule.name.partition("/")
    if not domain or not identifier:
        problem = "not a name with its domain, such as gpu.carina.dev/model"
        yield f"{path}.{constraint.rule.json_key}", f"is {constraint.rule.name!r:.80}, {problem}"


def _references(requests: Iterable[str], names: set[str], path: str) -> Iterator[FieldProblem]:
    for index, name in enumerate(requests):
        if name not in names:
            remedy = f"; {did_you_mean(name, sorted(names))}" if names else ""
            yield f"{path}[{index}]", f"is {name!r:.80}, not a request of the claim{remedy}"


# What claims and classes share -----------------------------------------------------------------


def _selectors(selectors: Sequence[DeviceSelector], path: str) -> Iterator[FieldProblem]:
    yield from _size(selectors, limits.SELECTORS_PER_REQUEST, path)
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            yield f"{path}[{index}]", "lacks cel"
        else:
            where = f"{path}[{index}].cel.expression"
            yield from _expression(selector.cel.expression, compile_selector, where)


def _expression(text: str, compile_: Callable[[str], object], path: str) -> Iterator[FieldProblem]:
    if len(text.encode()) > limits.CEL_EXPRESSION_BYTES:
        yield path, f"has more than {limits.CEL_EXPRESSION_BYTES} bytes"
        return
    try:
        compile_(text)
    except CompileError as error:
        yield path, f"is not valid CEL: {error}"


def _configurations(
    configurations: Sequence[ClaimConfiguration | ClassConfiguration], path: str
) -> Iterator[FieldProblem]:
    yield from _size(configurations, limits.CONFIGURATIONS_PER_CLAIM, path)
    for index, configuration in enumerate(configurations):
        where = f"{path}[{index}]"
        if configuration.opaque is None:
            yield where, "lacks opaque"
            continue
        parameters = configuration.opaque.parameters
        yield from _required(configuration.opaque.driver, f"{where}.opaque.driver")
        where = f"{where}.opaque.parameters"
        if _is_deeper(parameters, _OPAQUE_DEPTH):
            yield where, f"is nested more than {_OPAQUE_DEPTH} levels deep"
        elif _json_bytes(parameters) > limits.OPAQUE_PARAMETERS_BYTES:
            yield where, f"has more than {limits.OPAQUE_PARAMETERS_BYTES} bytes"


def _is_deeper(value: object, levels: int) -> bool:
    if not levels:
        return isinstance(value, dict | list)
    if isinstance(value, dict):
        return any(_is_deeper(each, levels - 1) for each in value.values())
    return isinstance(value, list) and any(_is_deeper(each, levels - 1) for each in value)


def _json_bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


# Slices ----------------------------------------------------------------------------------------


def _slice(published: ResourceSlice) -> Iterator[FieldProblem]:
    spec = published.spec
    yield from _required(spec.driver, "spec.driver")
    yield from _required(spec.pool.name, "spec.pool.name")
    if spec.pool.generation < 0:
        yield "spec.pool.generation", f"is {spec.pool.generation}; it must not be negative"
    if spec.pool.resource_slice_count < 1:
        count = spec.pool.resource_slice_count
        yield "spec.pool.resourceSliceCount", f"is {count}; it must be greater than zero"
    if spec.nodes is None:
        yield "spec", "lacks one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection"
    if spec.devices and spec.shared_counters:
        yield "spec", "has devices and sharedCounters; publish counters in a slice of their own"
    yield from _size(spec.devices, limits.DEVICES_PER_SLICE, "spec.devices")
    yield from _unique([device.name for device in spec.devices], "spec.devices")


# Values ----------------------------------------------------------------------------------------


def _required(text: str, path: str) -> Iterator[FieldProblem]:
    if not text:
        yield path, "is empty"


def _size(entries: Sequence[object], most: int, path: str) -> Iterator[FieldProblem]:
    if len(entries) > most:
        yield path, f"has {len(entries)} entries; at most {most} are allowed"


def _unique(names: Sequence[str], path: str) -> Iterator[FieldProblem]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            yield f"{path}[{index}].name", f"is {name!r:.80}, as is {path}[{first[name]}].name"
