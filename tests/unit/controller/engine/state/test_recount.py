"""What queues have of GPUs follows the devices, in whatever order objects come and change."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceClaim,
    DeviceRequest,
    DeviceResult,
    ExactDeviceRequest,
    Exactly,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
)
from controller.engine.model.group import Group, PodSet
from controller.engine.model.plan import CarriedOver
from controller.engine.model.pod import Placed, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.reason import NoRoom
from controller.engine.model.resource import CapacityOf, DevicesOf, Gpus, Resource
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.fleet import DRIVER, GpuUse, NodeTemplate, device_classes
from controller.engine.state.recount import Recount
from controller.engine.state.state import State

_TEMPLATE = NodeTemplate(
    "n", cpu=96_000, memory=2**40, gpus=2, devices=tuple(GpuUse), product="H100"
)
_COUNTERS, _DEVICES = _TEMPLATE.slices("n")
_CLASS, _MIG_CLASS, _ = device_classes()
_SEVENTH = "gpu-0-mig-1g10gb-19-0"
_HALF = "gpu-0-mig-3g40gb-9-0"
_GIB = 2**30


def _holding(device: str, *resources: Resource, **fields: Any) -> Snapshot:
    """A pod of the queue `a` that has a device; the queue names the resources."""
    request = DeviceRequest("r", Exactly(ExactDeviceRequest("mig.gpu.carina.dev")))
    allocation = Allocation(DeviceAllocation((DeviceResult("r", DRIVER, "n", device),)))
    claim = ResourceClaim(
        ObjectMeta(name="c", namespace="t", uid="c"),
        spec=ResourceClaimSpec(DeviceClaim((request,))),
        status=ResourceClaimStatus(allocation),
    )
    named = resources or (Gpus(),)
    present = Snapshot(
        now=1000,
        nodes=tuple(_TEMPLATE.nodes()),
        slices=(_COUNTERS, _DEVICES),
        classes=device_classes(),
        queues=(Queue("a", entitlements={one: Entitlement() for one in named}),),
        groups=(Group("t/g", "a", PodSet("", 1)),),
        claims=(claim,),
        pods=(Pod("t/p", PodNeeds(), Placed("n"), "t/g", claims=("t/c",)),),
    )
    return replace(present, **fields)


def _has(state: State) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    state.refresh()
    accounts = state.occupancy.accounts
    assert accounts.firm["a"] == (0,) * len(accounts.zero)
    return accounts.allocated["a"], accounts.requested["a"], accounts.uncounted["a"]


def test_a_device_that_is_published_late_counts_as_the_part_that_it_is() -> None:
    state = State(_holding(_SEVENTH, slices=()))
    assert _has(state) == ((GPU,), (GPU,), 0)
    for one in (_COUNTERS, _DEVICES):
        state.put_devices(one)
    assert _has(state) == ((GPU // 7,), (GPU // 7,), 0)


def test_counters_that_are_published_late_are_part_of_the_count() -> None:
    state = State(_holding(_SEVENTH, slices=(_DEVICES,)))
    state.put_devices(_COUNTERS)
    assert _has(state) == _has(State(_holding(_SEVENTH)))


def test_a_device_that_is_published_no_more_counts_as_a_whole_gpu() -> None:
    state = State(_holding(_SEVENTH))
    assert _has(state) == ((GPU // 7,), (GPU // 7,), 0)
    state.remove_devices(_DEVICES)
    assert _has(state) == ((GPU,), (GPU,), 0)


def test_a_capacity_that_changes_is_counted_as_it_is() -> None:
    memory = CapacityOf(f"{DRIVER}/memory")
    state = State(_holding(_HALF, memory))
    assert _has(state)[0] == (40 * _GIB,)
    state.put_devices(_with_memory(_HALF, 41 * _GIB))
    assert _has(state) == ((41 * _GIB,), (41 * _GIB,), 0)


def test_a_class_counts_what_it_selects_now() -> None:
    mig = DevicesOf("mig.gpu.carina.dev")
    renamed = replace(_MIG_CLASS, spec=_CLASS.spec)  # which selects whole GPUs
    state = State(_holding(_HALF, mig))
    assert _has(state) == ((1,), (1,), 0)
    state.put_devices(renamed)
    assert _has(state) == ((0,), (0,), 1)
    state.remove_devices(renamed)  # what is known of the device is the class of its request
    assert _has(state) == _has(State(_holding(_HALF, mig, classes=(_CLASS,))))


def test_a_class_that_comes_late_makes_its_queue_one_that_counts_gpus() -> None:
    whole = DevicesOf("gpu.carina.dev")
    state = State(_holding(_HALF, whole, classes=()))
    assert _has(state) == ((0,), (0,), 0)
    state.put_devices(_CLASS)
    assert _has(state) == ((0,), (0,), 1)


def test_gpus_of_a_device_plugin_are_uncounted_once_a_class_of_gpus_is_known() -> None:
    needs = PodNeeds(extended=(("nvidia.com/gpu", 1),))
    pod = Pod("t/p", needs, Placed("n"), "t/g")
    whole = DevicesOf("gpu.carina.dev")
    state = State(_holding(_HALF, whole, classes=(), pods=(pod,)))
    assert _has(state)[2] == 0
    kept = state.memory = CarriedOver(outdated={"t/g": (NoRoom("pod", 1, ()),)})
    state.put_devices(_CLASS)
    assert _has(state)[2] == 1
    assert state.memory == kept
    state.remove_pod("t/p")
    assert _has(state)[2] == 0


@pytest.mark.parametrize("slices", [(), (_COUNTERS, _DEVICES)])
def test_what_is_tried_after_a_recount_is_undone_exactly(slices: tuple[ResourceSlice, ...]) -> None:
    state = State(_holding(_SEVENTH, slices=slices))
    for one in (_COUNTERS, _DEVICES):
        state.put_devices(one)
    before, mark = _has(state), state.occupancy.mark()
    state.occupancy.evict("t/p", here=True)
    assert state.occupancy.accounts.allocated["a"] == (0,)
    state.occupancy.rollback(mark)
    assert _has(state) == before


def test_a_slice_that_is_written_again_as_it_was_changes_nothing() -> None:
    state = State(_holding(_SEVENTH))
    state.refresh()
    state.memory = CarriedOver(refusals={"t/g": (NoRoom("pod", 1, ()),)})
    moment = state.occupancy.accounts.moment
    again = replace(_DEVICES, metadata=replace(_DEVICES.metadata, resource_version="2"))
    state.put_devices(again)
    state.refresh()
    assert state.occupancy.accounts.moment == moment
    assert state.memory.refusals


def test_slices_of_other_nodes_leave_the_accounts_alone() -> None:
    state = State(_holding(_SEVENTH))
    state.refresh()
    moment = state.occupancy.accounts.moment
    for one in replace(_TEMPLATE, name="other").slices("other"):
        state.put_devices(one)
    state.refresh()
    assert state.occupancy.accounts.moment == moment


def test_a_claim_that_has_no_devices_any_more_is_not_counted_again() -> None:
    (claim,) = _holding(_SEVENTH).claims
    recount = Recount()
    for key in ("t/c", "t/other"):
        recount.follow(key, None, claim)
    recount.follow("t/c", claim, None)
    recount.note(_CLASS)
    assert recount.take([DevicesOf(_CLASS.metadata.name)]) == ["t/other"]
    recount.note(_DEVICES)
    assert recount.take([]) == ["t/other"]
    assert recount.take([DevicesOf(_CLASS.metadata.name)]) == []


def _with_memory(name: str, amount: int) -> ResourceSlice:
    devices = tuple(
        replace(
            device,
            capacity={
                **device.capacity,
                "memory": replace(device.capacity["memory"], value=Quantity.of(amount)),
            },
        )
        if device.name == name
        else device
        for device in _DEVICES.spec.devices
    )
    return replace(_DEVICES, spec=replace(_DEVICES.spec, devices=devices))
