"""What `nvml.mig_instance` reads, makes and destroys, on the simulated NVML."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlCallError
from kubelet_plugin.inventory.mig import MigLayout, MigPlacement, MigProfile, MigSite
from kubelet_plugin.nvml.mig import read_layout
from kubelet_plugin.nvml.mig_instance import (
    create_compute_instance,
    create_gpu_instance,
    destroy_instance,
    find_instance,
    handle_of,
    is_mig_mode_on,
    read_instances,
    switch_mig_mode,
)
from simulation.nvml import uninstall
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.mig.agreement import TwoGpus

SMALL, LARGE = MigSite(19, MigPlacement(6, 1)), MigSite(9, MigPlacement(0, 4))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    yield TwoGpus.create(tmp_path)
    uninstall()


@pytest.fixture
def gpu(node: TwoGpus) -> Any:
    """GPU 0 in MIG mode."""
    handle = node.handle(0)
    switch_mig_mode(handle, on=True)
    return handle


@pytest.fixture
def layout(gpu: Any) -> MigLayout:
    return read_layout(gpu)


def profile(layout: MigLayout, site: MigSite) -> MigProfile:
    found = layout.profile(site.profile_id)
    assert found is not None
    return found


def make(gpu: Any, layout: MigLayout, site: MigSite) -> None:
    create_gpu_instance(gpu, site)
    made = find_instance(gpu, site)
    assert made is not None
    create_compute_instance(gpu, made.id, profile(layout, site))


def test_an_instance_is_found_where_it_was_made_and_nowhere_else(
    gpu: Any, layout: MigLayout
) -> None:
    make(gpu, layout, LARGE)

    found = find_instance(gpu, LARGE)
    assert found is not None
    assert found.site == LARGE
    compute = found.undivided(profile(layout, LARGE))
    assert compute is not None
    assert compute.uuid.startswith("MIG-")
    assert find_instance(gpu, MigSite(9, MigPlacement(4, 4))) is None
    assert find_instance(gpu, MigSite(5, MigPlacement(0, 4))) is None


@pytest.mark.parametrize("handles", ["gpu", "mig device"])
def test_making_an_instance_lists_the_mig_devices_once_at_most(
    node: TwoGpus, gpu: Any, layout: MigLayout, handles: str
) -> None:
    if handles == "mig device":
        node.simulated.give_mig_device_handles()
    for start in range(3):
        make(gpu, layout, MigSite(19, MigPlacement(start, 1)))

    with nvml_calls(node.simulated.directory) as calls:
        pynvml.nvmlInit()
        handle = node.handle(0)
        make(handle, layout, SMALL)
        found = find_instance(handle, SMALL)

    assert found is not None
    assert [compute.uuid[:4] for compute in found.compute_instances] == ["MIG-"]
    walks = calls.symbols.count("nvmlDeviceGetMaxMigDeviceCount")
    assert walks == (1 if handles == "gpu" else 0)
    assert calls.symbols.count("nvmlDeviceGetMigDeviceHandleByIndex") == 7 * walks


@pytest.mark.parametrize("index", range(7))
def test_the_compute_instance_has_all_slices_of_every_profile(
    gpu: Any, layout: MigLayout, index: int
) -> None:
    """Two profiles of compute instances have one slice: 1 and 1_SLICE_REV1."""
    chosen = layout.profiles[index]
    site = MigSite(chosen.id, chosen.placements[-1])
    make(gpu, layout, site)

    found = find_instance(gpu, site)
    assert found is not None
    assert found.undivided(chosen) is not None


def test_devices_of_instances_are_told_apart_after_one_between_is_gone(
    gpu: Any, layout: MigLayout
) -> None:
    sites = [MigSite(19, MigPlacement(start, 1)) for start in (0, 1, 2)]
    for site in sites:
        make(gpu, layout, site)
    before = {one.site: one for one in read_instances(gpu, layout)}

    destroy_instance(gpu, sites[1])

    after = {one.site: one for one in read_instances(gpu, layout)}
    assert after == {site: before[site] for site in (sites[0], sites[2])}


def test_instances_of_all_profiles_are_read_in_the_order_of_their_ids(
    gpu: Any, layout: MigLayout
) -> None:
    make(gpu, layout, SMALL)
    make(gpu, layout, LARGE)

    found = read_instances(gpu, layout)

    assert {one.site for one in found} == {SMALL, LARGE}
    assert [one.id for one in found] == sorted(one.id for one in found)


def test_an_instance_without_a_compute_instance_has_none(gpu: Any, layout: MigLayout) -> None:
    create_gpu_instance(gpu, SMALL)

    found = find_instance(gpu, SMALL)

    assert found is not None
    assert found.compute_instances == ()
    assert found.undivided(profile(layout, SMALL)) is None


def test_a_divided_instance_is_not_whole_and_is_destroyed_with_all_its_parts(
    node: TwoGpus, gpu: Any, layout: MigLayout
) -> None:
    create_gpu_instance(gpu, LARGE)
    made = find_instance(gpu, LARGE)
    assert made is not None
    handle = pynvml.nvmlDeviceGetGpuInstanceById(gpu, made.id)
    for _ in range(3):
        pynvml.nvmlGpuInstanceCreateComputeInstance(handle, 0)

    divided = find_instance(gpu, LARGE)
    assert divided is not None
    assert len(divided.compute_instances) == 3
    assert divided.undivided(profile(layout, LARGE)) is None
    destroy_instance(gpu, LARGE)

    assert node.instances(0) == ()


def test_destroying_what_is_not_there_does_nothing(
    node: TwoGpus, gpu: Any, layout: MigLayout
) -> None:
    make(gpu, layout, SMALL)
    before = node.instances(0)

    destroy_instance(gpu, LARGE)
    destroy_instance(gpu, MigSite(19, MigPlacement(5, 1)))

    assert node.instances(0) == before


def test_out_of_mig_mode_there_are_no_instances(node: TwoGpus) -> None:
    gpu = node.handle(0)

    assert not is_mig_mode_on(gpu)
    assert read_instances(gpu, read_layout(gpu)) == ()
    destroy_instance(gpu, SMALL)


def test_an_instance_that_vanishes_while_it_is_read_is_left_out(
    node: TwoGpus, gpu: Any, layout: MigLayout
) -> None:
    make(gpu, layout, SMALL)
    make(gpu, layout, LARGE)
    small = next(one.id for one in node.instances(0) if one.size == 1)
    left = iter([small])

    def destroy_first(_number: int, symbol: str) -> None:
        if symbol == "nvmlGpuInstanceGetInfo":
            for instance_id in left:
                node.admin_destroys(0, instance_id)

    with nvml_calls(node.simulated.directory, destroy_first):
        found = read_instances(node.handle(0), layout)

    assert [one.site for one in found] == [LARGE]


def test_of_many_instances_only_the_wanted_one_is_read(
    node: TwoGpus, gpu: Any, layout: MigLayout
) -> None:
    for start in (6, 5, 4, 3):
        make(gpu, layout, MigSite(19, MigPlacement(start, 1)))

    numbers = []
    for start in (6, 3):
        with nvml_calls(node.simulated.directory) as calls:
            assert find_instance(node.handle(0), MigSite(19, MigPlacement(start, 1)))
        symbol = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        numbers.append(sum(one.startswith(symbol) for one in calls.symbols))
    assert numbers[0] == numbers[1] > 0


def test_an_error_is_not_taken_for_an_instance_that_is_not_there(
    node: TwoGpus, gpu: Any, layout: MigLayout
) -> None:
    make(gpu, layout, SMALL)
    for code in (
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
    ):
        for symbol in ("nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetInfo"):
            node.simulated.fail(symbol, code)
            with pytest.raises(NvmlCallError):
                find_instance(gpu, SMALL)
            with pytest.raises(NvmlCallError):
                destroy_instance(gpu, SMALL)
            node.simulated.heal()


def test_a_gpu_in_use_keeps_its_instance(node: TwoGpus, gpu: Any, layout: MigLayout) -> None:
    make(gpu, layout, SMALL)
    before = node.instances(0)
    node.simulated.run_process(0, 4711)

    with pytest.raises(NvmlCallError, match="IN_USE"):
        destroy_instance(gpu, SMALL)

    assert node.instances(0) == before


def test_a_gpu_is_found_at_its_address_only_if_it_is_the_same(node: TwoGpus) -> None:
    gpu = node.inventory().gpus[0].gpu
    other = node.inventory().gpus[1].gpu

    assert handle_of(gpu.uuid, gpu.pci_bus_id)
    with pytest.raises(NvmlCallError, match="NOT_FOUND"):
        handle_of(other.uuid, gpu.pci_bus_id)
    with pytest.raises(NvmlCallError, match="NOT_FOUND"):
        handle_of(gpu.uuid, "0000:ff:00.0")
