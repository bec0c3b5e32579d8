"""What contradicts the API is refused, by the names of the object and the field."""

from typing import Any

import pytest

from carina_dra.resource import DecodeError, ResourceClaim, ResourceSlice, decode
from carina_dra.resource.schema import Struct
from tests.samples.resources import example, put

ONE = "but only one of them may be present"


def refusal(kind: type[Struct], body: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(kind, body)
    return caught.value


def test_the_message_names_object_field_and_what_is_wrong() -> None:
    body = example("claim-allocated")
    put(body, "spec.devices.requests.1.name", 7)
    error = refusal(ResourceClaim, body)
    assert (error.kind, error.key) == ("ResourceClaim", "team-a/train")
    assert (error.path, error.problem) == ("spec.devices.requests[1].name", "is 7, not a string")
    assert str(error) == (
        "ResourceClaim team-a/train: spec.devices.requests[1].name: is 7, not a string"
    )


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_what_is_no_object_at_all_is_refused(body: object) -> None:
    assert str(refusal(ResourceSlice, body)) == f"ResourceSlice: is {body!r}, not an object"


@pytest.mark.parametrize(
    ("member", "found", "problem"),
    [
        ("kind", "Pod", "kind is 'Pod', not ResourceSlice"),
        ("apiVersion", "v1", "apiVersion is 'v1', not resource.k8s.io/v1"),
        ("spec", None, "lacks spec"),
    ],
)
def test_another_object_is_refused(member: str, found: object, problem: str) -> None:
    body = example("slice-of-counters")
    put(body, member, found)
    assert (
        str(refusal(ResourceSlice, body)) == f"ResourceSlice {body['metadata']['name']}: {problem}"
    )


@pytest.mark.parametrize(
    ("member", "found", "path", "problem"),
    [
        ("spec", [], "spec", "is [], not an object"),
        ("spec.driver", 5, "spec.driver", "is 5, not a string"),
        ("spec.pool", {"name": "p"}, "spec.pool", "lacks generation, resourceSliceCount"),
        ("spec.pool.generation", "1", "spec.pool.generation", "is '1', not an integer"),
        ("spec.pool.generation", 1.0, "spec.pool.generation", "is 1.0, not an integer"),
        ("spec.pool.generation", True, "spec.pool.generation", "is True, not an integer"),
        ("spec.devices", {}, "spec.devices", "is {}, not a list"),
        ("spec.devices.1.name", None, "spec.devices[1]", "lacks name"),
        (
            "spec.devices.0.bindsToNode",
            1,
            "spec.devices[0].bindsToNode",
            "is 1, not true or false",
        ),
        (
            "spec.devices.0.attributes.index.int",
            "0",
            "spec.devices[0].attributes[index].int",
            "is '0', not an integer",
        ),
        (
            "spec.devices.0.attributes.links.ints",
            [1, "2"],
            "spec.devices[0].attributes[links].ints[1]",
            "is '2', not an integer",
        ),
        (
            "spec.devices.0.taints.0.effect",
            ["NoExecute"],
            "spec.devices[0].taints[0].effect",
            "is ['NoExecute'], not one of None, NoSchedule, NoExecute",
        ),
        (
            "spec.devices.0.taints.1.timeAdded",
            "2026-11-20",
            "spec.devices[0].taints[1].timeAdded",
            "is '2026-11-20', not a time such as 2026-01-31T12:00:00Z",
        ),
        (
            "spec.devices.0.taints.1.timeAdded",
            "2026-13-20T12:00:00Z",
            "spec.devices[0].taints[1].timeAdded",
            "is '2026-13-20T12:00:00Z', not a time such as 2026-01-31T12:00:00Z",
        ),
        ("metadata.labels.team", 1, "metadata.labels[team]", "is 1, not a string"),
    ],
)
def test_a_value_of_another_type_is_refused(
    member: str, found: object, path: str, problem: str
) -> None:
    body = example("slice-of-gpus")
    put(body, member, found)
    error = refusal(ResourceSlice, body)
    assert (error.path, error.problem) == (path, problem)


def test_what_is_no_quantity_is_refused() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.devices.0.capacity.memory.value", "80GB")
    error = refusal(ResourceSlice, body)
    assert error.path == "spec.devices[0].capacity[memory].value"
    assert error.problem.startswith("'80GB' is not a quantity; write a number")


@pytest.mark.parametrize(
    ("member", "path", "words"),
    [
        (
            "status.allocation.devices.config.0.source",
            "status.allocation.devices.config[0].source",
            "FromClass, FromClaim",
        ),
        (
            "status.allocation.nodeSelector.nodeSelectorTerms.0.matchFields.0.operator",
            "status.allocation.nodeSelector.nodeSelectorTerms[0].matchFields[0].operator",
            "In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (
            "status.devices.0.conditions.0.status",
            "status.devices[0].conditions[0].status",
            "True, False, Unknown",
        ),
    ],
)
def test_a_word_outside_a_closed_enumeration_is_refused(member: str, path: str, words: str) -> None:
    body = example("claim-allocated")
    put(body, member, "Maybe")
    error = refusal(ResourceClaim, body)
    assert (error.path, error.problem) == (path, f"is 'Maybe', not one of {words}")


@pytest.mark.parametrize(
    ("member", "found", "path", "both"),
    [
        ("requests.0.firstAvailable", [], "requests[0]", "exactly and firstAvailable"),
        (
            "constraints.0.distinctAttribute",
            "a/b",
            "constraints[0]",
            "matchAttribute and distinctAttribute",
        ),
    ],
)
def test_two_alternatives_at_once_are_refused(
    member: str, found: object, path: str, both: str
) -> None:
    body = example("claim-allocated")
    put(body, f"spec.devices.{member}", found)
    error = refusal(ResourceClaim, body)
    assert (error.path, error.problem) == (f"spec.devices.{path}", f"has {both}, {ONE}")


def test_two_values_of_one_attribute_are_refused() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.devices.0.attributes.index.string", "0")
    error = refusal(ResourceSlice, body)
    assert error.path == "spec.devices[0].attributes[index]"
    assert error.problem == f"has int and string, {ONE}"


def test_two_kinds_of_nodes_are_refused() -> None:
    body = example("slice-of-gpus")
    put(body, "spec.allNodes", True)
    assert str(refusal(ResourceSlice, body)).endswith(f"spec: has nodeName and allNodes, {ONE}")


def test_an_alternative_without_a_value_is_true_or_absent() -> None:
    body = example("slice-of-shared-devices")
    put(body, "spec.perDeviceNodeSelection", False)
    error = refusal(ResourceSlice, body)
    assert (error.path, error.problem) == ("spec.perDeviceNodeSelection", "is False, not true")


@pytest.mark.parametrize("mode", [{"count": "2"}, {"count": True}])
def test_a_count_is_an_integer(mode: dict[str, object]) -> None:
    body = example("claim-pending")
    put(body, "spec.devices.requests.0.exactly.count", mode["count"])
    error = refusal(ResourceClaim, body)
    assert error.path == "spec.devices.requests[0].exactly.count"


@pytest.mark.parametrize(
    ("mapping", "found"),
    [
        ({"capacityKey": "a"}, "capacityKey"),
        ({"capacityMultiplier": "1"}, "capacityMultiplier"),
        ({"capacityKey": "a", "deviceMultiplier": "1"}, "capacityKey and deviceMultiplier"),
    ],
)
def test_a_mapping_to_node_resources_is_of_one_kind(mapping: dict[str, str], found: str) -> None:
    body = example("slice-of-shared-devices")
    put(body, "spec.devices.0.nodeAllocatableResources.cpu.mapping", mapping)
    error = refusal(ResourceSlice, body)
    assert error.path == "spec.devices[0].nodeAllocatableResources[cpu].mapping"
    assert error.problem == (
        f"has {found}, not capacityKey and capacityMultiplier, or deviceMultiplier"
    )


_NESTED: Any = []
for _ in range(10_000):
    _NESTED = [_NESTED]


@pytest.mark.parametrize(
    ("member", "found", "problem"),
    [
        (
            "spec.devices.requests.0.exactly.capacity",
            {"requests": {"memory": "1" * 5000}},
            "is too long for a quantity: it has 5000 characters, and 100 are allowed",
        ),
        (
            "spec.devices.requests.0.exactly.capacity",
            {"requests": {"memory": 10**5000}},
            "is an integer of 16610 bits, not a quantity",
        ),
        (
            "spec.devices.requests.0.exactly.capacity",
            {"requests": {"memory": _NESTED}},
            "is [[[[...]]]], not a quantity",
        ),
        (
            "spec.devices.requests.0.exactly.count",
            10**5000,
            "is an integer of 16610 bits, not an integer of 64 bits",
        ),
        ("spec.devices.requests.0.exactly.count", _NESTED, "is [[[[...]]]], not an integer"),
        ("spec.devices.requests.0.name", 10**5000, "is an integer of 16610 bits, not a string"),
        ("spec.devices.requests.0.name", _NESTED, "is [[[[...]]]], not a string"),
        ("metadata.name", 10**5000, "is an integer of 16610 bits, not a string"),
        ("kind", 10**5000, "kind is an integer of 16610 bits, not ResourceClaim"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
def test_value_of_any_size_and_depth_is_refused_with_a_short_message(
    member: str, found: object, problem: str
) -> None:
    body = example("claim-allocated")
    put(body, member, found)
    error = refusal(ResourceClaim, body)
    assert error.problem.endswith(problem)
    assert len(str(error)) < 300
