"""The demo's stand-in for kube-scheduler: it may know little, but must not be wrong."""

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    CelSelector,
    Device,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DistinctAttribute,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    IntAttribute,
    MatchAttribute,
    StringAttribute,
)
from simulation.demo.allocator import Candidate, NotUnderstoodError, allocate
from simulation.demo.selector import SelectorError, selects

DRIVER = "gpu.carina.dev"
OURS = f"device.driver == '{DRIVER}'"
CLASSES = {"gpu": DeviceClass(spec=DeviceClassSpec((DeviceSelector(CelSelector(OURS)),)))}
NUMA = "resource.kubernetes.io/numaNode"


def gpu(number: int, numa_node: int = 0) -> Candidate:
    device = Device(
        f"gpu-{number}",
        attributes={"productName": StringAttribute("NVIDIA H200"), NUMA: IntAttribute(numa_node)},
        capacity={"memory": DeviceCapacity(Quantity.parse("141Gi"))},
    )
    return Candidate(DRIVER, "node", "node", device)


def request(name: str, mode: ExactCount | All, *, admin: bool | None = None) -> DeviceRequest:
    return DeviceRequest(name, Exactly(ExactDeviceRequest("gpu", mode=mode, admin_access=admin)))


def given(
    claim: DeviceClaim, offered: list[Candidate], taken: list[Candidate]
) -> list[tuple[str, str]] | None:
    results = allocate(claim, CLASSES, offered, frozenset(each.id for each in taken))
    return None if results is None else [(each.request, each.device) for each in results]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (OURS, True),
        ("device.driver == 'other.example.com'", False),
        (f"device.attributes['{DRIVER}'].productName.contains('H200')", True),
        (f"device.attributes['{DRIVER}'].productName == 'NVIDIA L40S'", False),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) >= 0", True),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('142Gi')) >= 0", False),
        (f"device.driver == 'no' && device.attributes['{DRIVER}'].absent == 'x'", False),
    ],
)
def test_the_expressions_of_the_examples_are_known(expression: str, expected: bool) -> None:
    assert selects(DeviceSelector(CelSelector(expression)), gpu(0).device, DRIVER) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        f"{OURS} || true",
        f"device.attributes['{DRIVER}'].absent == 'x'",
        f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) > 0",
    ],
)
def test_any_other_expression_is_refused(expression: str) -> None:
    with pytest.raises(SelectorError):
        selects(DeviceSelector(CelSelector(expression)), gpu(0).device, DRIVER)


def test_the_first_free_devices_are_given_each_once() -> None:
    claim = DeviceClaim((request("a", ExactCount(1)), request("b", ExactCount(2))))
    offered = [gpu(number) for number in range(4)]
    assert given(claim, offered, [gpu(0)]) == [("a", "gpu-1"), ("b", "gpu-2"), ("b", "gpu-3")]
    assert given(claim, offered, [gpu(0), gpu(1)]) is None


def test_matching_devices_are_looked_for_beyond_the_first() -> None:
    rule = DeviceConstraint(rule=MatchAttribute(NUMA))
    claim = DeviceClaim((request("pair", ExactCount(2)),), (rule,))
    offered = [gpu(0, 0), gpu(1, 1), gpu(2, 1)]
    assert given(claim, offered, []) == [("pair", "gpu-1"), ("pair", "gpu-2")]


def test_admin_access_sees_what_is_taken() -> None:
    claim = DeviceClaim((request("all", All(), admin=True),))
    assert given(claim, [gpu(0), gpu(1)], [gpu(1)]) == [("all", "gpu-0"), ("all", "gpu-1")]


def test_a_constraint_that_is_not_known_is_refused() -> None:
    claim = DeviceClaim(
        (request("a", ExactCount(1)),), (DeviceConstraint(rule=DistinctAttribute(NUMA)),)
    )
    with pytest.raises(NotUnderstoodError):
        given(claim, [gpu(0)], [])
