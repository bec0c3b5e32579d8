"""What the API server writes is read into types and written again as it was."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    AllocationConfigSource,
    BoolAttribute,
    BoolsAttribute,
    CapacityMultiplier,
    CapacityRange,
    DeviceMultiplier,
    DeviceTaintRule,
    DeviceTaintSelector,
    DistinctAttribute,
    ExactCount,
    Exactly,
    FirstAvailable,
    IntAttribute,
    IntsAttribute,
    MatchAttribute,
    NodeOperation,
    OnAllNodes,
    OnMatchingNodes,
    OnNode,
    PerDevice,
    ResourceClaim,
    ResourceSlice,
    StringAttribute,
    StringsAttribute,
    TaintEffect,
    ValidRange,
    ValidValues,
    VersionAttribute,
    VersionsAttribute,
    decode,
    encode,
)
from tests.samples.resources import EXAMPLES, KINDS, example


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_read_is_written_again(name: str) -> None:
    body = example(name)
    assert encode(decode(KINDS[body["kind"]], body)) == body


@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_can_be_pickled(name: str) -> None:
    body = example(name)
    value = decode(KINDS[body["kind"]], body)
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_item_of_a_list_says_no_kind(name: str) -> None:
    body = example(name)
    kind = KINDS[body.pop("kind")]
    del body["apiVersion"]
    assert decode(kind, body) == decode(kind, example(name))


def test_null_is_what_is_absent() -> None:
    """As in `status.devices[].conditions`, which the API server writes even if there are none."""
    body, without = example("claim-allocated"), example("claim-allocated")
    body["status"]["devices"][0]["conditions"] = None
    body["spec"]["devices"]["requests"][0]["firstAvailable"] = None
    del without["status"]["devices"][0]["conditions"]
    assert encode(decode(ResourceClaim, body)) == without


def test_a_slice_says_where_its_devices_are() -> None:
    assert decode(ResourceSlice, example("slice-of-gpus")).spec.nodes == OnNode("node-1")

    shared = decode(ResourceSlice, example("slice-of-shared-devices")).spec
    assert shared.nodes == PerDevice()
    everywhere, near, here = (device.nodes for device in shared.devices)
    assert everywhere == OnAllNodes()
    assert isinstance(near, OnMatchingNodes)
    assert here == OnNode("node-2")


def test_attributes_are_what_they_say_they_are() -> None:
    gpu, plain = decode(ResourceSlice, example("slice-of-gpus")).spec.devices
    assert gpu.attributes == {
        "type": StringAttribute("gpu"),
        "index": IntAttribute(0),
        "ecc": BoolAttribute(value=False),
        "driverVersion": VersionAttribute("550.163.1"),
        "resource.kubernetes.io/pcieRoot": StringAttribute("pci0000:00"),
        "links": IntsAttribute((1, 2, 4)),
        "lanes": BoolsAttribute((True, False)),
        "peers": StringsAttribute(("gpu-1", "gpu-2")),
        "firmwares": VersionsAttribute(("1.2.3", "1.2.4-rc.1")),
    }
    assert plain.attributes == {}


def test_attribute_values_can_be_members_of_a_set() -> None:
    assert len({StringAttribute("a"), StringAttribute("a"), VersionAttribute("a")}) == 2


def test_request_policies_are_a_range_or_values() -> None:
    nic = decode(ResourceSlice, example("slice-of-shared-devices")).spec.devices[0]
    valid = {
        name: capacity.request_policy.valid if capacity.request_policy else None
        for name, capacity in nic.capacity.items()
    }
    assert valid == {
        "bandwidth": ValidRange(
            CapacityRange(Quantity.parse("1G"), Quantity.parse("50G"), Quantity.parse("500M"))
        ),
        "queues": ValidValues((Quantity.parse("1"), Quantity.parse("8"), Quantity.parse("64"))),
        "buffers": None,
    }


def test_node_resources_are_by_capacity_or_by_device() -> None:
    nic = decode(ResourceSlice, example("slice-of-shared-devices")).spec.devices[0]
    mappings = {name: each.mapping for name, each in nic.node_allocatable_resources.items()}
    assert {name: each.multiplier if each else None for name, each in mappings.items()} == {
        "memory": CapacityMultiplier("buffers", Quantity.parse("2")),
        "cpu": DeviceMultiplier(Quantity.parse("500m")),
    }


def test_taints_say_what_they_do_and_since_when() -> None:
    taint, _ = decode(ResourceSlice, example("slice-of-gpus")).spec.devices[0].taints
    assert taint.effect is TaintEffect.NO_EXECUTE
    assert taint.time_added == datetime(2026, 11, 20, 12, 0, 1, tzinfo=UTC)


def test_requests_are_exact_or_alternatives() -> None:
    every, one, _ = decode(ResourceClaim, example("claim-allocated")).spec.devices.requests
    assert isinstance(every.wants, Exactly)
    assert every.wants.request.mode == All()
    assert isinstance(one.wants, FirstAvailable)
    assert [each.mode for each in one.wants.alternatives] == [ExactCount(2), ExactCount(1)]


def test_constraints_are_of_equality_or_difference() -> None:
    constraints = decode(ResourceClaim, example("claim-allocated")).spec.devices.constraints
    assert [each.rule for each in constraints] == [
        MatchAttribute("resource.kubernetes.io/numaNode"),
        DistinctAttribute("example.com/even"),
    ]


def test_allocations_say_what_is_given_and_how_it_is_set_up() -> None:
    claim = decode(ResourceClaim, example("claim-allocated"))
    assert claim.key == "team-a/train"
    assert claim.status.allocation is not None
    devices = claim.status.allocation.devices
    assert [(each.request, each.device, each.admin_access) for each in devices.results] == [
        ("every", "gpu-0", True),
        ("one/big", "nic-everywhere", None),
    ]
    assert devices.results[1].skip_node_operations == (NodeOperation.ALL,)
    assert [each.source for each in devices.config] == [
        AllocationConfigSource.CLASS,
        AllocationConfigSource.CLAIM,
    ]


def test_a_selector_of_all_devices_is_not_no_selector() -> None:
    rule = decode(DeviceTaintRule, example("device-taint-rule-for-all"))
    assert rule.spec.device_selector == DeviceTaintSelector()


@pytest.mark.parametrize("mode", [{}, {"allocationMode": "ExactCount"}, {"count": 1}])
def test_a_request_for_no_count_is_for_one(mode: dict[str, Any]) -> None:
    body = example("claim-pending")
    body["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "c"} | mode
    (request,) = decode(ResourceClaim, body).spec.devices.requests
    assert isinstance(request.wants, Exactly)
    assert request.wants.request.mode == ExactCount(1)


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-20T12:00:03Z",
        "2026-11-20T12:00:03.9Z",
        "2026-11-20T14:30:03+02:30",
        "2026-11-20t12:00:03z",
    ],
)
def test_times_are_written_in_utc_to_the_second(written: str) -> None:
    body = example("claim-allocated")
    body["status"]["allocation"]["allocationTimestamp"] = written
    assert encode(decode(ResourceClaim, body)) == example("claim-allocated")


def test_a_time_is_written_with_four_digits_of_its_year() -> None:
    claim = decode(ResourceClaim, example("claim-pending"))
    early = replace(claim.metadata, creation_timestamp=datetime(1, 1, 1, tzinfo=UTC))
    body = encode(replace(claim, metadata=early))
    assert body["metadata"]["creationTimestamp"] == "0001-01-01T00:00:00Z"


def test_quantities_are_written_canonically_numbers_too() -> None:
    body = example("slice-of-gpus")
    capacity = body["spec"]["devices"][0]["capacity"]
    capacity.update({"a": {"value": "1024Mi"}, "b": {"value": 5}, "c": {"value": 0.5}})
    written = encode(decode(ResourceSlice, body))["spec"]["devices"][0]["capacity"]
    assert [written[name]["value"] for name in "abc"] == ["1Gi", "5", "500m"]
