"""What claims and pods count in a queue's account: as asked, and as given."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.placement.bounds.tally import Tally
from carina_dra.price import LEAST, LEAST_OF_CLAIM
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    All,
    Allocation,
    CelSelector,
    DeviceAllocation,
    DeviceClaim,
    DeviceRequest,
    DeviceResult,
    DeviceSelector,
    DeviceSubRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    ResourceClaimStatus,
)
from controller.engine.model.pod import PodNeeds
from controller.engine.model.resource import CapacityOf, Cpu, Memory, Pods, Resource
from controller.engine.state.asking import base_units, qualified, replaceable
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import DRIVER, GIB, GPU, Scene, gpu_claim, gpus_of

MEMORY = CapacityOf(f"{DRIVER}/memory")


def _state(*resources: Resource) -> State:
    """Queues that count these resources, and two GPUs of 80 GiB."""
    scene = Scene().node("n", 2)
    scene.classes.append("other")
    for index, resource in enumerate(resources):
        scene.queue(f"q{index}", resource=resource)
    return scene.state()


def _claim(*requests: DeviceRequest) -> ResourceClaim:
    claim = gpu_claim("c")
    return replace(claim, spec=replace(claim.spec, devices=DeviceClaim(requests)))


def _wants(name: str = "gpus", device_class: str = "gpu", **fields: Any) -> DeviceRequest:
    return DeviceRequest(name, Exactly(ExactDeviceRequest(device_class, **fields)))


ALTERNATIVES = DeviceRequest(
    "r",
    FirstAvailable(
        (
            DeviceSubRequest("big", "gpu", mode=ExactCount(1)),
            DeviceSubRequest("small", "other", mode=ExactCount(4)),
        )
    ),
)


class TestAsked:
    @pytest.mark.parametrize(
        ("requests", "count"),
        [
            ([_wants(mode=ExactCount(2))], 2),
            ([_wants("a"), _wants("b", mode=ExactCount(2))], 3),
            ([_wants(mode=All())], 1),
            ([_wants(admin_access=True)], 0),
            ([ALTERNATIVES], 1),
            ([_wants(device_class="gone")], 0),
            ([], 0),
        ],
    )
    def test_devices(self, requests: list[DeviceRequest], count: int) -> None:
        assert _state(GPU).occupancy.asking.asked(_claim(*requests)) == (count,)

    def test_devices_that_another_class_selects_too_count(self) -> None:
        state = _state(replace(GPU, device_class="other"))
        assert state.occupancy.asking.asked(_claim(_wants())) == (1,)

    def test_a_whole_device_counts_with_its_capacity(self) -> None:
        asked = _state(MEMORY).occupancy.asking.asked(_claim(_wants(mode=ExactCount(2))))
        assert asked == (160 * GIB,)

    def test_cpu_memory_and_pods_are_not_asked_for_by_claims(self) -> None:
        state = _state(Cpu(), GPU, Memory(), Pods())
        counted = dict(
            zip(
                state.occupancy.tree.resources,
                state.occupancy.asking.asked(_claim(_wants())),
                strict=True,
            )
        )
        assert counted == {Cpu(): 0, GPU: 1, Memory(): 0, Pods(): 0}

    def test_a_claim_with_very_long_expressions_is_not_looked_at(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = _state(GPU)
        long = [_selector(" && ".join([f"device.driver != '{n}'"] * 400)) for n in range(5)]
        monkeypatch.setattr("controller.engine.state.asking.check", None)
        assert state.occupancy.asking.asked(_claim(_wants(selectors=tuple(long)))) == (0,)

    def test_all_requests_of_a_claim_have_one_budget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_at = []
        answer = Tally._measured

        def measured(tally: Tally[Any, Any], *rest: Any) -> Any:
            found = answer(tally, *rest)
            looked_at.append(found[1])
            return found

        monkeypatch.setattr(Tally, "_measured", measured)
        requests = [_wants(f"r{n}", selectors=(_selector(_costly(str(n))),)) for n in range(32)]
        state = _state(MEMORY)
        (asked,) = state.occupancy.asking.asked(_claim(*requests))
        assert 0 < asked < 32 * 80 * GIB
        assert sum(looked_at) <= LEAST_OF_CLAIM + LEAST


def _selector(expression: str) -> DeviceSelector:
    return DeviceSelector(CelSelector(expression))


def _costly(text: str) -> str:
    """An expression that takes hundreds of steps for two devices, and selects all."""
    body = f"device.driver != '{text}'"
    for number in range(3):
        body = f"[0,1,2,3,4,5,6,7,8,9].all(x{number}, {body})"
    return body


class TestGiven:
    def test_every_device_of_the_class_counts(self) -> None:
        given = _state(GPU).occupancy.asking.given(_claim(_wants(mode=All())), gpus_of("n", 0, 1))
        assert given.amounts == (2,)

    def test_devices_count_in_every_class_that_selects_them(self) -> None:
        small = [DeviceResult("r/small", DRIVER, "n", f"gpu-{index}") for index in (0, 1)]
        allocation = Allocation(DeviceAllocation(tuple(small)))
        assert _state(GPU).occupancy.asking.given(_claim(ALTERNATIVES), allocation).amounts == (2,)
        other = replace(GPU, device_class="other")
        assert _state(other).occupancy.asking.given(_claim(ALTERNATIVES), allocation).amounts == (
            2,
        )

    def test_admin_access_counts_nothing(self) -> None:
        result = DeviceResult("gpus", DRIVER, "n", "gpu-0", admin_access=True)
        allocation = Allocation(DeviceAllocation((result,)))
        assert _state(GPU).occupancy.asking.given(_claim(_wants()), allocation).amounts == (0,)

    def test_a_whole_device_counts_with_its_capacity(self) -> None:
        given = _state(MEMORY).occupancy.asking.given(_claim(_wants()), gpus_of("n", 0))
        assert given.amounts == (80 * GIB,)

    def test_a_share_counts_what_it_consumes(self) -> None:
        consumed = {"memory": Quantity.of(3 * GIB)}
        share = DeviceResult("gpus", DRIVER, "n", "gpu-0", share_id="s", consumed_capacity=consumed)
        allocation = Allocation(DeviceAllocation((share,)))
        assert _state(MEMORY).occupancy.asking.given(_claim(_wants()), allocation).amounts == (
            3 * GIB,
        )

    def test_a_device_that_is_no_longer_published_counts_no_capacity(self) -> None:
        given = _state(MEMORY).occupancy.asking.given(_claim(_wants()), gpus_of("gone", 0))
        assert given.amounts == (0,)


def test_a_pod_counts_its_cpu_its_memory_and_itself() -> None:
    state = _state(Cpu(), GPU, Memory(), Pods())
    amounts = state.occupancy.asking.of_pod(PodNeeds(cpu=7, memory=9))
    counted = dict(zip(state.occupancy.tree.resources, amounts, strict=True))
    assert counted == {Cpu(): 7, GPU: 0, Memory(): 9, Pods(): 1}


@pytest.mark.parametrize(
    ("name", "expected"), [("memory", f"{DRIVER}/memory"), ("x.io/memory", "x.io/memory")]
)
def test_a_capacity_has_the_domain_of_its_driver(name: str, expected: str) -> None:
    assert qualified(DRIVER, name) == expected


@pytest.mark.parametrize(("nanos", "units"), [(0, 0), (1, 1), (10**9, 1), (10**9 + 1, 2)])
def test_parts_of_a_base_unit_count_as_one(nanos: int, units: int) -> None:
    assert base_units(nanos) == units


@pytest.mark.parametrize(
    ("request_", "count"), [(_wants(), 0), (_wants(mode=All()), 2), (ALTERNATIVES, 2)]
)
def test_devices_of_claims_that_might_do_with_fewer(request_: DeviceRequest, count: int) -> None:
    status = ResourceClaimStatus(gpus_of("n", 0, 1))
    assert replaceable(replace(_claim(request_), status=status)) == count
    assert replaceable(_claim(request_)) == 0
