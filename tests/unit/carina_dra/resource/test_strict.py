"""Strict reading: what people write has no member and no word that the API does not know."""

from typing import Any

import pytest

from carina_dra.resource import DecodeError, DeviceTaintRule, ResourceClaim, ResourceSlice, decode
from tests.samples.resources import EXAMPLES, KINDS, example, put
from tests.unit.carina_dra.resource.test_newer_api import objects_within

REQUEST = "spec.devices.requests.0.exactly"


def refusal(name: str, path: str, value: object) -> DecodeError:
    """The error for an example in which a value was replaced."""
    body = example(name)
    put(body, path, value)
    with pytest.raises(DecodeError) as caught:
        decode(KINDS[body["kind"]], body, strict=True)
    return caught.value


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_api_server_writes_is_read_as_without_strictness(name: str) -> None:
    body = example(name)
    kind = KINDS[body["kind"]]
    assert decode(kind, body, strict=True) == decode(kind, body)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_unknown_member_is_refused_at_every_level(name: str) -> None:
    for index in range(len(list(objects_within(example(name))))):
        body = example(name)
        list(objects_within(body))[index]["fromANewerApi"] = 1
        with pytest.raises(DecodeError, match="fromANewerApi: is not a field of"):
            decode(KINDS[body["kind"]], body, strict=True)


@pytest.mark.parametrize(
    ("path", "field", "problem"),
    [
        (
            f"{REQUEST}.selector",
            "spec.devices.requests[0].exactly.selector",
            "is not a field of ExactDeviceRequest; did you mean selectors?",
        ),
        (
            "spec.devices.requests.0.FirstAvailable",
            "spec.devices.requests[0].FirstAvailable",
            "is not a field of DeviceRequest; did you mean firstAvailable?",
        ),
        (
            "spec.devices.requests.0.deviceClassName",
            "spec.devices.requests[0].deviceClassName",
            "is not a field of DeviceRequest; write one of name, exactly, firstAvailable",
        ),
        ("metadata.label", "metadata.label", "is not a field of ObjectMeta; did you mean labels?"),
        ("spek", "spek", "is not a field of ResourceClaim; did you mean spec?"),
    ],
)
def test_an_unknown_member_is_named_with_the_remedy(path: str, field: str, problem: str) -> None:
    error = refusal("claim-pending", path, {})
    assert (error.path, error.problem) == (field, problem)


@pytest.mark.parametrize(
    ("found", "path", "problem"),
    [
        ({"strin": "H200"}, "model].strin", "did you mean string?"),
        ({"string": "H200", "unit": "GPU"}, "model].unit", "write one of int, bool, string"),
        ({}, "model]", "lacks one of int, bool, string, version"),
    ],
)
def test_a_value_of_an_unknown_kind_is_refused(
    found: dict[str, Any], path: str, problem: str
) -> None:
    error = refusal("slice-of-gpus", "spec.devices.0.attributes.model", found)
    assert error.path.endswith(path)
    assert problem in error.problem


@pytest.mark.parametrize(
    ("written", "path", "problem"),
    [
        ({"count": 0}, "count", "is 0, which means 1; write 1, or leave it out"),
        (
            {"allocationMode": "All", "count": 3},
            "count",
            "is 3, which has no effect beside allocationMode; remove it",
        ),
    ],
)
def test_a_member_that_would_not_count_as_it_is_written_is_refused(
    written: dict[str, Any], path: str, problem: str
) -> None:
    error = refusal("claim-pending", REQUEST, {"deviceClassName": "gpu", **written})
    assert (error.path, error.problem) == (f"spec.devices.requests[0].exactly.{path}", problem)


@pytest.mark.parametrize(
    ("name", "path", "word", "allowed"),
    [
        (
            "slice-of-gpus",
            "spec.devices.0.taints.0.effect",
            "NoScheduling",
            "not one of None, NoSchedule, NoExecute",
        ),
        (
            "slice-of-gpus",
            "spec.skipNodeOperations",
            ["NodeReset"],
            "not one of NodePrepareResources",
        ),
    ],
)
def test_a_word_that_an_enumeration_does_not_know_is_refused(
    name: str, path: str, word: object, allowed: str
) -> None:
    assert allowed in refusal(name, path, word).problem


def test_full_metadata_is_not_refused() -> None:
    body = example("claim-pending")
    body["metadata"] |= {
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "selfLink": "/apis/resource.k8s.io/v1",
        "deletionGracePeriodSeconds": 30,
        "creationTimestamp": None,
        "resourceVersion": "7",
        "annotations": {"any/thing": "free"},
    }
    assert decode(ResourceClaim, body, strict=True).metadata.resource_version == "7"


def test_opaque_parameters_are_free() -> None:
    body = example("device-class")
    body["spec"]["config"] = [{"opaque": {"driver": "x", "parameters": {"any": {"thing": 1}}}}]
    decode(KINDS["DeviceClass"], body, strict=True)


def test_reading_is_not_strict_unless_asked() -> None:
    slice_, rule = example("slice-of-gpus"), example("device-taint-rule")
    slice_["newer"] = rule["newer"] = 1
    assert decode(ResourceSlice, slice_).unknown == {"newer": 1}
    assert decode(DeviceTaintRule, rule).unknown == {"newer": 1}
