"""What only a newer API knows is kept, and never taken for something that we do know."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import (
    DeviceClass,
    Exactly,
    IntAttribute,
    NodeOperation,
    ResourceClaim,
    ResourceSlice,
    UnknownAttribute,
    UnknownMode,
    Unrecognized,
    decode,
    encode,
)
from tests.samples.resources import EXAMPLES, KINDS, example, put

FROM_A_NEWER_API = {"a": [1, None]}
MAPS = {
    "annotations",
    "attributes",
    "capacity",
    "consumedCapacity",
    "counters",
    "labels",
    "nodeAllocatableResources",
    "requests",
}
PASSED_ON = {"parameters", "data", "managedFields"}


def objects_within(value: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """Every object of the API in another one, but not the maps of its own keys."""
    if name in PASSED_ON:
        return
    if isinstance(value, dict):
        if name not in MAPS or "requests" in value:  # `capacity` of a request is an object
            yield value
        for key, each in value.items():
            yield from objects_within(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from objects_within(each)


@pytest.mark.parametrize("name", EXAMPLES)
def test_new_members_survive_at_every_level(name: str) -> None:
    body = example(name)
    levels = list(objects_within(body))
    for each in levels:
        each["fromANewerApi"] = deepcopy(FROM_A_NEWER_API)
    assert encode(decode(KINDS[body["kind"]], body)) == body


def test_new_members_survive_a_change_beside_them() -> None:
    body = example("claim-allocated")
    body["spec"]["scoring"] = FROM_A_NEWER_API
    body["metadata"]["newer"] = "x"
    claim = decode(ResourceClaim, body)

    changed = replace(claim, metadata=replace(claim.metadata, finalizers=()))

    del body["metadata"]["finalizers"]
    assert encode(changed) == body


def test_new_members_do_not_clutter_what_is_shown() -> None:
    body = example("device-class")
    body["spec"]["newer"] = 1
    assert "newer" not in repr(decode(DeviceClass, body))


def test_an_attribute_of_a_new_kind_is_unknown() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.devices.0.attributes.index", {"float": 1.5})
    slice_ = decode(ResourceSlice, body)
    assert isinstance(slice_.spec.devices[0].attributes["index"], UnknownAttribute)
    assert encode(slice_) == body


def test_a_new_member_beside_an_attribute_of_a_known_kind_survives() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.devices.0.attributes.index", {"int": 1, "unit": "GPU"})
    slice_ = decode(ResourceSlice, body)
    index = slice_.spec.devices[0].attributes["index"]
    assert isinstance(index, IntAttribute)
    assert (index.value, index.unknown) == (1, {"unit": "GPU"})
    assert encode(slice_) == body


def test_a_taint_with_a_new_effect_is_unrecognized() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.devices.0.taints.0.effect", "Throttle")
    slice_ = decode(ResourceSlice, body)
    assert slice_.spec.devices[0].taints[0].effect == Unrecognized("Throttle")
    assert encode(slice_) == body


def test_a_new_node_operation_is_unrecognized() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.skipNodeOperations", ["NodeReset", "*"])
    slice_ = decode(ResourceSlice, body)
    assert slice_.spec.skip_node_operations == (Unrecognized("NodeReset"), NodeOperation.ALL)
    assert encode(slice_) == body


def test_a_toleration_with_a_new_operator_is_unrecognized() -> None:
    body = example("claim-allocated")
    put(body, "status.allocation.devices.results.0.tolerations.0.operator", "Like")
    claim = decode(ResourceClaim, body)
    assert claim.status.allocation is not None
    (toleration,) = claim.status.allocation.devices.results[0].tolerations
    assert toleration.operator == Unrecognized("Like")
    assert encode(claim) == body


def test_a_new_allocation_mode_is_refused_by_allocators() -> None:
    body = example("claim-allocated")
    put(body, "spec.devices.requests.0.exactly.allocationMode", "Half")
    claim = decode(ResourceClaim, body)
    wants = claim.spec.devices.requests[0].wants
    assert isinstance(wants, Exactly)
    assert wants.request.mode == UnknownMode("Half")
    assert encode(claim) == body


@pytest.mark.parametrize(
    ("name", "path", "old", "new", "field"),
    [
        ("slice-of-gpus", "spec", "nodeName", "rackName", "nodes"),
        ("claim-allocated", "spec.devices.requests.0", "exactly", "roughly", "wants"),
        ("claim-allocated", "spec.devices.constraints.0", "matchAttribute", "matchRegex", "rule"),
        ("device-class", "spec.selectors.0", "cel", "regex", "cel"),
        ("device-class", "spec.config.0", "opaque", "typed", "opaque"),
    ],
)
def test_an_alternative_of_a_new_kind_is_none_that_we_know(
    name: str, path: str, old: str, new: str, field: str
) -> None:
    body = example(name)
    target: Any = body
    for step in path.split("."):
        target = target[int(step) if step.isdigit() else step]
    target[new] = target.pop(old)

    read = decode(KINDS[body["kind"]], body)

    part: Any = read
    for step in path.split("."):
        part = part[int(step)] if step.isdigit() else getattr(part, step)
    assert getattr(part, field) is None
    assert encode(read) == body
