"""What the product relies on of any libnvidia-ml, through pynvml. Read-only."""

import ctypes
import re
from typing import Any

import pynvml
import pytest

from kubelet_plugin.host import HostPaths

ADDRESS = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0")
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def handles() -> list[Any]:
    return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]


def test_nothing_answers_before_init(host: HostPaths) -> None:
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_nothing_answers_after_the_last_shutdown(host: HostPaths) -> None:
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_gpus_are_identified(nvml: HostPaths) -> None:
    for handle in handles():
        assert UUID.fullmatch(pynvml.nvmlDeviceGetUUID(handle))
        assert ADDRESS.fullmatch(str(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    assert len({pynvml.nvmlDeviceGetUUID(handle) for handle in handles()}) == len(handles())
    assert len({pynvml.nvmlDeviceGetMinorNumber(handle) for handle in handles()}) == len(handles())


def test_a_gpu_is_found_by_uuid_and_by_either_form_of_its_address(nvml: HostPaths) -> None:
    for handle in handles():
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        info = pynvml.nvmlDeviceGetPciInfo(handle)
        kernel = f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
        for found in (
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId(str(info.busId)),
            pynvml.nvmlDeviceGetHandleByPciBusId(kernel),
        ):
            assert pynvml.nvmlDeviceGetUUID(found) == uuid


def test_gpus_are_in_order_of_their_address(nvml: HostPaths) -> None:
    infos = [pynvml.nvmlDeviceGetPciInfo(handle) for handle in handles()]
    addresses = [(info.domain, info.bus, info.device) for info in infos]
    assert addresses == sorted(addresses)


def test_a_gpu_that_does_not_exist_is_refused(nvml: HostPaths) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(pynvml.nvmlDeviceGetCount())
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByPciBusId("0000:fe:1f.0")


def test_the_driver_says_its_versions(nvml: HostPaths) -> None:
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", pynvml.nvmlSystemGetDriverVersion())
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() >= 10000


def test_a_link_that_does_not_exist_is_refused(nvml: HostPaths) -> None:
    for handle in handles():
        with pytest.raises((pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported)):
            pynvml.nvmlDeviceGetNvLinkState(handle, pynvml.NVML_NVLINK_MAX_LINKS)


def test_links_end_at_gpus_of_the_node_or_at_switches(nvml: HostPaths) -> None:
    own = {str(pynvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles()}
    for handle in handles():
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                active = pynvml.nvmlDeviceGetNvLinkState(handle, link)
            except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
                continue
            if not active:
                continue
            kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            remote = str(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
            assert (kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH) != (remote in own)


def test_topology_is_symmetric(nvml: HostPaths) -> None:
    for one in handles():
        for other in handles():
            assert pynvml.nvmlDeviceGetTopologyCommonAncestor(
                one, other
            ) == pynvml.nvmlDeviceGetTopologyCommonAncestor(other, one)


def test_mig_profiles_are_reported_in_either_mode_and_their_placements_fit(nvml: HostPaths) -> None:
    for handle in handles():
        try:
            pynvml.nvmlDeviceGetMigMode(handle)
        except pynvml.NVMLError_NotSupported:
            assert profiles_of(handle) == []
            continue
        found = profiles_of(handle)
        assert {info.id for info in found}
        slices = max(p.start + p.size for info in found for p in placements_of(handle, info.id))
        for info in found:
            places = placements_of(handle, info.id)
            assert len({place.size for place in places}) == 1
            assert len(places) >= info.instanceCount
            assert all(0 <= place.start < place.start + place.size <= slices for place in places)


def profiles_of(handle: Any) -> list[Any]:
    found = []
    for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found.append(pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, index, 1))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
    return found


def placements_of(handle: Any, profile_id: int) -> list[Any]:
    count = ctypes.c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    placements = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(
        handle, profile_id, placements, ctypes.byref(count)
    )
    return list(placements)


def test_waiting_for_events_ends_in_time_when_nothing_happens(nvml: HostPaths) -> None:
    events = pynvml.nvmlEventSetCreate()
    try:
        for handle in handles():
            types = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
            pynvml.nvmlDeviceRegisterEvents(
                handle, types & pynvml.nvmlEventTypeXidCriticalError, events
            )
        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(events, 1)
    finally:
        pynvml.nvmlEventSetFree(events)
