"""Errors that a driver reports as events. On the simulation."""

from typing import Any

import pynvml
import pytest

from simulation.nvml import SimulatedNode
from tests.contract.nvml.conftest import NodeMaker

WHOLE_GPU = 0xFFFFFFFF
XID = pynvml.nvmlEventTypeXidCriticalError
PATIENCE_MS = 10_000


@pytest.fixture
def node(make_node: NodeMaker) -> SimulatedNode:
    made = make_node("dgx-h100")
    pynvml.nvmlInit()
    return made


@pytest.fixture
def events(node: SimulatedNode) -> Any:
    """An event set that waits for XID errors of the first two GPUs."""
    event_set = pynvml.nvmlEventSetCreate()
    for index in (0, 1):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceRegisterEvents(gpu, XID, event_set)
    return event_set


def next_event(event_set: Any) -> tuple[int, int, int, int, int]:
    data = pynvml.nvmlEventSetWait_v2(event_set, PATIENCE_MS)
    minor = pynvml.nvmlDeviceGetMinorNumber(data.device)
    instances = data.gpuInstanceId, data.computeInstanceId
    return minor, data.eventType, data.eventData, *instances


def test_an_xid_names_its_gpu_and_no_instance(node: SimulatedNode, events: Any) -> None:
    node.xid(1, 48)
    assert next_event(events) == (1, XID, 48, WHOLE_GPU, WHOLE_GPU)


def test_an_xid_of_a_mig_device_names_its_instances(node: SimulatedNode, events: Any) -> None:
    node.xid(0, 31, gpu_instance=7, compute_instance=0)
    assert next_event(events) == (0, XID, 31, 7, 0)


def test_events_come_in_order_each_once(node: SimulatedNode, events: Any) -> None:
    for number in (13, 31, 43):
        node.xid(0, number)
    assert [next_event(events)[2] for _ in range(3)] == [13, 31, 43]
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 1)


def test_only_registered_events_are_reported(node: SimulatedNode, events: Any) -> None:
    node.xid(2, 48)
    node.ecc_error(0)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 1)


def test_ecc_errors_are_reported_by_kind(node: SimulatedNode) -> None:
    event_set = pynvml.nvmlEventSetCreate()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    kinds = pynvml.nvmlEventTypeSingleBitEccError, pynvml.nvmlEventTypeDoubleBitEccError
    pynvml.nvmlDeviceRegisterEvents(gpu, kinds[0] | kinds[1], event_set)
    node.ecc_error(0, double_bit=False)
    node.ecc_error(0)
    assert (next_event(event_set)[1], next_event(event_set)[1]) == kinds


def test_events_before_the_registration_are_not_reported(node: SimulatedNode) -> None:
    node.xid(0, 48)
    event_set = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(0), XID, event_set)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(event_set, 1)


def test_a_gpu_that_falls_off_the_bus_says_so_once_and_then_nothing_waits(
    node: SimulatedNode, events: Any
) -> None:
    node.lose_gpu(0)
    assert pynvml.nvmlEventSetWait_v2(events, PATIENCE_MS).eventData == 79
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlEventSetWait_v2(events, PATIENCE_MS)


def test_a_freed_event_set_is_refused(node: SimulatedNode, events: Any) -> None:
    pynvml.nvmlEventSetFree(events)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlEventSetWait_v2(events, 1)
