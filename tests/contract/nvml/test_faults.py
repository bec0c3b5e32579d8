"""A fault affects what it happens to and nothing else."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pynvml
import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import NvmlLibrary, call
from kubelet_plugin.devices.device import devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import (
    GpuLost,
    GpuProblem,
    GpuUnreadable,
)
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    UnknownGpu,
)
from kubelet_plugin.inventory.mig import MigUnsupported
from kubelet_plugin.nvml.reader import NvmlReader
from simulation.nvml import SimulatedNode, installed
from tests.contract.nvml.conftest import NodeMaker, reader_below
from tests.samples.driver import nvml_libraries
from tests.samples.gpus import NOTICED

DEADLINE = 30.0


@pytest.fixture
def node(make_node: NodeMaker) -> SimulatedNode:
    return make_node("dgx-h100")


@pytest.fixture
def reader(node: SimulatedNode) -> NvmlReader:
    return reader_below(node.root)


def ready(inventory: Inventory) -> DriverReady:
    assert isinstance(inventory, DriverReady)
    return inventory


def minors(inventory: DriverReady) -> list[int]:
    """GPUs without a problem."""
    return [seen.gpu.minor for seen in inventory.gpus if not seen.state.problems]


def problems(inventory: DriverReady) -> dict[int, list[GpuProblem]]:
    return {
        seen.gpu.minor: list(seen.state.problems) for seen in inventory.gpus if seen.state.problems
    }


# --- the driver as a whole ---


def test_without_a_library_there_is_no_driver(node: SimulatedNode, reader: NvmlReader) -> None:
    node.uninstall_driver()
    inventory = reader.read()
    assert isinstance(inventory, DriverMissing)
    assert "libnvidia-ml.so.1" in inventory.reason


def test_without_the_kernel_module_there_is_no_driver(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    node.driver(available=False)
    assert reader.read() == DriverMissing("the NVIDIA kernel module is not loaded")


def test_a_driver_that_appears_late_is_seen(node: SimulatedNode, reader: NvmlReader) -> None:
    node.driver(available=False)
    before = reader.read()
    node.driver(available=True)
    assert len(ready(reader.read(before)).gpus) == 8


def test_a_driver_that_goes_is_seen_and_so_is_its_return(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = reader.read()
    node.driver(available=False)
    assert isinstance(reader.read(first), DriverMissing)
    node.driver(available=True)
    assert reader.read() == first


def test_a_driver_that_is_reloaded_between_readings_goes_unnoticed(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = reader.read()
    node.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNINITIALIZED, times=1)
    assert reader.read(first) == first


def test_a_driver_that_refuses_says_why(node: SimulatedNode, reader: NvmlReader) -> None:
    node.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    failure = NvmlFailure("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
    assert reader.read() == DriverUnusable(failure)


def test_a_driver_that_is_replaced_needs_a_process_that_loads_it(node: SimulatedNode) -> None:
    libraries = nvml_libraries(node.root)
    reader = reader_below(node.root, libraries)
    first = ready(reader.read())
    node.driver(available=False)
    assert reader.read(first) == DriverMissing("the NVIDIA kernel module is not loaded")

    node.replace_driver("570.86.15")

    replaced = DriverReplaced(str(node.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.15"))
    assert reader.read() == replaced
    assert reader.read() == replaced
    with installed(node.directory):
        again = ready(reader_below(node.root, libraries).read())
    assert [seen.gpu.driver_version for seen in again.gpus] == ["570.86.15"] * len(first.gpus)


def test_a_library_that_does_not_match_the_driver_is_unusable_if_it_is_the_only_one(
    node: SimulatedNode,
) -> None:
    reader = reader_below(node.root, nvml_libraries(node.root))
    node.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert isinstance(reader.read(), DriverUnusable)


def test_a_node_without_gpus_has_a_driver_and_none(make_node: NodeMaker) -> None:
    node = make_node("t4", name="empty", unplugged=(0, 1, 2, 3))
    assert reader_below(node.root).read() == DriverReady(())


# --- functions that a driver lacks ---

OPTIONAL = {
    "nvmlDeviceGetName": "product_name",
    "nvmlDeviceGetBrand": "brand",
    "nvmlDeviceGetArchitecture": "architecture",
    "nvmlDeviceGetCudaComputeCapability": "cuda_compute_capability",
    "nvmlDeviceGetMemoryInfo": "memory_bytes",
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlSystemGetCudaDriverVersion_v2": "cuda_driver_version",
    "nvmlDeviceGetAddressingMode": "addressing_mode",
}


@pytest.mark.parametrize(("symbol", "attribute"), OPTIONAL.items())
def test_a_missing_function_costs_its_attribute_only(
    node: SimulatedNode, reader: NvmlReader, symbol: str, attribute: str
) -> None:
    node.remove_symbol(symbol)
    gpus = ready(reader.read()).gpus
    assert len(gpus) == 8
    assert {getattr(seen.gpu, attribute) for seen in gpus} == {None}


@pytest.mark.parametrize(
    ("symbol", "attribute"),
    [
        (symbol, attribute)
        for symbol, attribute in OPTIONAL.items()
        if symbol.startswith("nvmlDevice")
    ],
)
def test_a_function_that_is_not_supported_on_one_gpu_costs_that_gpu_its_attribute(
    make_node: NodeMaker, symbol: str, attribute: str
) -> None:
    node = make_node("hgx-h200-nvl", name="node-2")
    node.fail(symbol, pynvml.NVML_ERROR_NOT_SUPPORTED, minor=3)
    gpus = ready(reader_below(node.root).read()).gpus
    assert [seen.gpu.minor for seen in gpus if getattr(seen.gpu, attribute) is None] == [3]


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
    ],
)
def test_links_and_names_need_no_function_in_particular(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    node.remove_symbol(symbol)
    assert len(ready(reader.read()).gpus) == 8


def test_switches_that_cannot_be_distinguished_still_connect_gpus(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    node.remove_symbol("nvmlDeviceGetNvLinkRemotePciInfo_v2")
    nvlink = ready(reader.read()).gpus[0].state.nvlink
    assert nvlink is not None
    assert nvlink.peers == (1, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("profile", ["dgx-h100", "hgx-h200-nvl"])
def test_peers_are_found_without_the_type_of_a_links_remote_end(
    make_node: NodeMaker, profile: str
) -> None:
    node = make_node(profile, name="node-2")
    expected = ready(reader_below(node.root).read())
    node.remove_symbol("nvmlDeviceGetNvLinkRemoteDeviceType")
    assert reader_below(node.root).read() == expected


def test_a_driver_without_mig_makes_gpus_without_mig(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    node.remove_symbol("nvmlDeviceGetMigMode")
    assert {seen.gpu.mig for seen in ready(reader.read()).gpus} == {MigUnsupported()}


# --- calls that feed an attribute ---

_ATTRIBUTES = (
    *OPTIONAL,
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetGpuFabricInfoV",
)
_CODES = tuple(
    f"NVML_ERROR_{word}"
    for word in (
        *("NO_PERMISSION", "UNKNOWN", "TIMEOUT", "NO_DATA", "NOT_FOUND", "INVALID_ARGUMENT"),
        *("IN_USE", "RESET_REQUIRED"),
    )
)


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        (symbol, code)
        for symbol in _ATTRIBUTES
        for code in _CODES
        # Drivers say so of a link that a GPU does not have.
        if (symbol, code) != ("nvmlDeviceGetNvLinkState", "NVML_ERROR_INVALID_ARGUMENT")
    ],
)
def test_a_failing_attribute_is_as_it_was(
    node: SimulatedNode, reader: NvmlReader, symbol: str, code: str
) -> None:
    first = reader.read()
    node.fail(symbol, getattr(pynvml, code))
    assert reader.read(first) == first


@pytest.mark.parametrize("symbol", _ATTRIBUTES)
@pytest.mark.parametrize("code", _CODES)
def test_an_attribute_that_fails_from_the_start_costs_no_gpu(
    node: SimulatedNode, symbol: str, code: str
) -> None:
    node.fail(symbol, getattr(pynvml, code))
    inventory = ready(reader_below(node.root).read())
    assert minors(inventory) == list(range(8))
    assert inventory.unknown == ()


@pytest.mark.parametrize("symbol", _ATTRIBUTES)
def test_what_failed_is_there_when_the_driver_says_it(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    complete = reader_below(node.root).read()
    node.fail(symbol, pynvml.NVML_ERROR_UNKNOWN)
    first = reader.read()
    node.heal()
    assert reader.read(first) == complete


def test_a_gpu_is_lost_whichever_call_says_so(node: SimulatedNode, reader: NvmlReader) -> None:
    first = reader.read()
    node.fail("nvmlDeviceGetGpuFabricInfoV", pynvml.NVML_ERROR_GPU_IS_LOST, minor=4)
    (problem,) = problems(ready(reader.read(first)))[4]
    assert isinstance(problem, GpuLost)


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetNvLinkState", "nvmlDeviceGetMinorNumber"])
def test_a_gpu_that_the_kernel_lists_is_not_unplugged(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    first = ready(reader.read())
    node.fail(symbol, pynvml.NVML_ERROR_NOT_FOUND, minor=2)
    second = ready(reader.read(first))
    assert [seen.gpu for seen in second.gpus] == [seen.gpu for seen in first.gpus]


@pytest.mark.parametrize(
    "symbol", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByPciBusId_v2"]
)
def test_a_handle_that_is_not_found_makes_no_gpu_vanish(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    first = ready(reader.read())
    node.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_UNKNOWN, minor=2)
    node.fail(symbol, pynvml.NVML_ERROR_NOT_FOUND, minor=2)
    second = ready(reader.read(first))
    assert list(problems(second)) == [2]
    assert len(second.gpus) == 8


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNKNOWN),
        ("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_TIMEOUT),
        ("nvmlInitWithFlags", pynvml.NVML_ERROR_UNKNOWN),
    ],
)
def test_a_driver_that_does_not_answer_keeps_its_gpus_with_a_problem(
    node: SimulatedNode, reader: NvmlReader, symbol: str, code: int
) -> None:
    first = ready(reader.read())
    node.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNINITIALIZED, times=1)
    node.fail(symbol, code)
    second = ready(reader.read(first))
    assert [seen.gpu for seen in second.gpus] == [seen.gpu for seen in first.gpus]
    assert list(problems(second)) == list(range(8))
    node.heal()
    assert reader.read(second) == first


def test_a_link_that_comes_up_late_is_seen(make_node: NodeMaker) -> None:
    """A fabric manager trains links some time after the driver was loaded."""
    node = make_node("dgx-h100", name="node-2")
    node.fail("nvmlDeviceGetNvLinkState", pynvml.NVML_ERROR_NOT_SUPPORTED)
    now, host = [0.0], HostPaths(node.root)
    reader = NvmlReader(host, NvmlLibrary(host.gpu_addresses), clock=lambda: now[0])
    inventory = ready(reader.read())
    assert inventory.gpus[0].state.nvlink is None
    now[0] = 40
    inventory = ready(reader.read(inventory))
    node.heal()
    now[0] = 80
    assert ready(reader.read(inventory)).gpus[0].state.nvlink is not None


# --- one GPU ---


def test_a_gpu_that_falls_off_the_bus_is_lost_as_it_was(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = ready(reader.read())
    node.lose_gpu(5)
    reader = reader_below(node.root, now=lambda: NOTICED)
    second = ready(reader.read(first))
    assert minors(second) == [0, 1, 2, 3, 4, 6, 7]
    failure = NvmlFailure("nvmlDeviceGetHandleByPciBusId", "NVML_ERROR_GPU_IS_LOST")
    assert problems(second) == {5: [GpuLost(failure, NOTICED)]}
    assert second.gpus[5].gpu == first.gpus[5].gpu
    assert second.gpus[5].state.nvlink == first.gpus[5].state.nvlink


def test_a_problem_that_lasts_keeps_its_time(node: SimulatedNode) -> None:
    times = iter([NOTICED, NOTICED + timedelta(hours=1)])
    reader = reader_below(node.root, now=lambda: next(times))
    first = reader.read()
    node.lose_gpu(5)
    second = reader.read(first)
    assert reader.read(second) == second


def test_a_lost_gpu_stays_known_and_comes_back_after_a_reset(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = ready(reader.read())
    node.lose_gpu(5)
    lost = reader.read(reader.read(first))
    assert list(problems(ready(lost))) == [5]
    node.reset_gpu(5)
    assert reader.read(lost) == first


def test_losing_the_gpu_that_names_the_domain_does_not_rename_it(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = ready(reader.read())
    node.lose_gpu(0)
    second = ready(reader.read(first))
    answering = [seen.state.nvlink for seen in second.gpus if not seen.state.problems]
    assert {nvlink.domain for nvlink in answering if nvlink} == {first.gpus[0].gpu.uuid}
    assert all(0 in nvlink.peers for nvlink in answering if nvlink)


def test_a_lost_gpu_gives_its_number_to_another_that_has_it_after_a_reboot(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    known = ready(reader.read())
    node.lose_gpu(7)
    numbered = tuple(
        replace(seen, gpu=replace(seen.gpu, minor={3: 7, 7: 3}.get(seen.gpu.minor, seen.gpu.minor)))
        for seen in known.gpus
    )

    inventory = ready(reader_below(node.root).read(DriverReady(numbered)))

    names = [device.name for device in devices(inventory)]
    assert len(names) == len(set(names))
    assert minors(inventory) == [0, 1, 2, 3, 4, 5, 6]


def test_a_gpu_lost_before_it_was_ever_seen_is_unknown(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    node.lose_gpu(5)
    inventory = ready(reader.read())
    failure = NvmlFailure("nvmlDeviceGetHandleByIndex", "NVML_ERROR_GPU_IS_LOST")
    assert inventory == DriverReady(inventory.gpus, unknown=(UnknownGpu(5, failure),))
    assert len(inventory.gpus) == 7


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMinorNumber"])
def test_a_gpu_that_fails_is_unreadable_and_the_others_are_not(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    first = ready(reader.read())
    node.fail(symbol, pynvml.NVML_ERROR_UNKNOWN, minor=2)
    second = ready(reader_below(node.root, now=lambda: NOTICED).read(first))
    failure = NvmlFailure(symbol, "NVML_ERROR_UNKNOWN")
    assert problems(second) == {2: [GpuUnreadable(failure, NOTICED)]}
    assert second.gpus[2].gpu == first.gpus[2].gpu
    assert minors(second) == [0, 1, 3, 4, 5, 6, 7]


def test_a_gpu_that_fails_from_the_start_is_unknown(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    node.fail("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_UNKNOWN, minor=2)
    failure = NvmlFailure("nvmlDeviceGetMinorNumber", "NVML_ERROR_UNKNOWN")
    assert ready(reader.read()).unknown == (UnknownGpu(2, failure),)


@pytest.mark.parametrize(
    "symbol", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName"]
)
def test_a_call_that_fails_once_costs_nothing_once_the_gpu_is_known(
    node: SimulatedNode, reader: NvmlReader, symbol: str
) -> None:
    first = reader.read()
    node.fail(symbol, pynvml.NVML_ERROR_TIMEOUT, times=1)
    assert reader.read(first) == first


def test_an_unreadable_gpu_that_answers_again_is_as_before(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = reader.read()
    node.fail("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_UNKNOWN, minor=2)
    second = reader.read(first)
    node.heal()
    assert reader.read(second) == first


# --- GPUs come and go ---


def test_a_gpu_that_is_unplugged_is_gone(node: SimulatedNode, reader: NvmlReader) -> None:
    first = ready(reader.read())
    node.unplug(3)
    second = ready(reader.read(first))
    assert second == DriverReady(second.gpus)
    assert minors(second) == [0, 1, 2, 4, 5, 6, 7]
    assert problems(second) == {}


def test_a_gpu_that_is_plugged_in_is_there(make_node: NodeMaker) -> None:
    node = make_node("dgx-h100", name="node-2", unplugged=(0, 3))
    reader = reader_below(node.root)
    first = reader.read()
    assert minors(ready(first)) == [1, 2, 4, 5, 6, 7]
    node.plug(3)
    assert minors(ready(reader.read(first))) == [1, 2, 3, 4, 5, 6, 7]


def test_another_gpu_in_the_same_slot_is_another_gpu(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = ready(reader.read())
    node.unplug(3)
    node.plug(3, replacement="spare")
    node.reset_gpu(3)
    second = ready(reader.read(first))
    assert minors(second) == minors(first)
    assert second.gpus[3].gpu.uuid != first.gpus[3].gpu.uuid
    assert second == DriverReady(second.gpus)
    assert problems(second) == {}


def test_plugging_in_does_not_bring_a_lost_gpu_back(make_node: NodeMaker) -> None:
    node = make_node("dgx-h100", name="node-2", unplugged=(0,))
    reader = reader_below(node.root)
    first = reader.read()
    node.lose_gpu(5)
    second = reader.read(first)
    node.plug(0)
    third = ready(reader.read(second))
    assert minors(third) == [0, 1, 2, 3, 4, 6, 7]
    assert list(problems(third)) == [5]
    assert third.unknown == ()


def test_without_the_kernels_list_changes_are_seen_all_the_same(node: SimulatedNode) -> None:
    reader = reader_below(node.root / "nowhere")
    first = reader.read()
    node.unplug(3)
    assert minors(ready(reader.read(first))) == [0, 1, 2, 4, 5, 6, 7]


# --- calls that hang ---


def test_a_call_that_hangs_returns_when_it_is_released(
    node: SimulatedNode, reader: NvmlReader
) -> None:
    first = reader.read()
    node.hang("nvmlDeviceGetMinorNumber")
    done = in_thread(lambda: reader.read(first))
    assert not done.wait(0.05)
    node.release("nvmlDeviceGetMinorNumber")
    assert done.wait(DEADLINE)


def test_a_call_of_another_user_that_hangs_leaves_the_reader_the_gpus_that_it_knows(
    make_node: NodeMaker,
) -> None:
    node = make_node("dgx-h100", name="node-2", unplugged=(3,))
    host = HostPaths(node.root)
    library = NvmlLibrary(host.gpu_addresses, patience=0.05)
    reader = NvmlReader(host, library)
    first = reader.read()

    def wait_for_events() -> None:
        with library.lease():
            call(pynvml.nvmlEventSetCreate)

    node.hang("nvmlEventSetCreate")
    done = in_thread(wait_for_events)
    assert not done.wait(0.05)
    node.plug(3)
    assert reader.read(first) == first

    node.release("nvmlEventSetCreate")
    assert done.wait(DEADLINE)
    assert len(ready(reader.read(first)).gpus) == 8


def in_thread(action: Callable[[], object]) -> threading.Event:
    done = threading.Event()

    def run() -> None:
        action()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done
