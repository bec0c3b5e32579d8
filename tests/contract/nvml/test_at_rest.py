"""What the plugin asks of NVML while nothing happens, and that it sees at once what happens."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import GpuInstance, MigLayout, MigPlacement, MigProfile, MigSite
from kubelet_plugin.nvml.mig import read_layout
from kubelet_plugin.nvml.mig_instance import (
    create_compute_instance,
    create_gpu_instance,
    destroy_instance,
    find_instance,
    switch_mig_mode,
)
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.nvml.usage import UsageReader
from kubelet_plugin.report.usage_cache import FRESH
from simulation.nvml import SimulatedNode
from tests.contract.nvml.conftest import NodeMaker
from tests.fakes.nvml_calls import nvml_calls

LOOK = 5
"""Seconds between two looks."""
SMALL, SMALL_WITH_MEDIA, HALF = 19, 20, 9


@dataclass
class Administrator:
    """Divides GPUs with a session of NVML of its own."""

    layout: MigLayout
    handles: dict[int, Any] = field(default_factory=dict)

    def make(self, minor: int, profile: int, start: int, *, compute_slices: int = 0) -> None:
        handle, found = self.handle(minor), self.layout.profile(profile)
        assert found is not None
        site = _site(found, start)
        create_gpu_instance(handle, site)
        self.divide(minor, site, compute_slices or found.slices)

    def divide(self, minor: int, site: MigSite, slices: int) -> None:
        made = find_instance(self.handle(minor), site)
        profile = next(profile for profile in self.layout.profiles if profile.slices == slices)
        assert made is not None
        create_compute_instance(self.handle(minor), made.id, profile)

    def destroy(self, minor: int, profile: int, start: int) -> None:
        found = self.layout.profile(profile)
        assert found is not None
        destroy_instance(self.handle(minor), _site(found, start))

    def handle(self, minor: int) -> Any:
        if minor not in self.handles:
            self.handles[minor] = pynvml.nvmlDeviceGetHandleByIndex(minor)
            switch_mig_mode(self.handles[minor], on=True)
        return self.handles[minor]


def _site(profile: MigProfile, start: int) -> MigSite:
    return MigSite(profile.id, MigPlacement(start, profile.placements[0].size))


@dataclass
class Looks:
    """A plugin that looks at its GPUs every few seconds."""

    host: HostPaths
    now: float = 0.0
    latest: DriverReady | None = None

    def __post_init__(self) -> None:
        self.library = NvmlLibrary(self.host.gpu_addresses)
        self.reader = NvmlReader(self.host, self.library, clock=lambda: self.now)

    def look(self, times: int = 1) -> DriverReady:
        for _ in range(times):
            read = self.reader.read(self.latest)
            assert isinstance(read, DriverReady)
            self.latest = read
            self.now += LOOK
        assert self.latest is not None
        return self.latest

    def instances(self, minor: int = 0) -> tuple[GpuInstance, ...]:
        return self.look().gpus[minor].state.instances


@pytest.fixture
def node(make_node: NodeMaker) -> SimulatedNode:
    return make_node("dgx-h100")


@pytest.fixture
def administrator(node: SimulatedNode) -> Administrator:
    pynvml.nvmlInit()
    return Administrator(read_layout(pynvml.nvmlDeviceGetHandleByIndex(0)))


@pytest.fixture
def looks(node: SimulatedNode) -> Looks:
    return Looks(HostPaths(node.root))


def _uuids(instances: tuple[GpuInstance, ...]) -> list[str]:
    return [compute.uuid for instance in instances for compute in instance.compute_instances]


@pytest.mark.parametrize("partitions", [None, 0, 7])
def test_at_rest_a_look_asks_for_little(
    node: SimulatedNode, administrator: Administrator, partitions: int | None
) -> None:
    """20 calls a second are 100 a look, with a call for events and scrapes of the metrics."""
    for minor in range(8 if partitions is not None else 0):
        administrator.handle(minor)
        for start in range(partitions or 0):
            administrator.make(minor, SMALL, start)
    with nvml_calls(node.directory) as calls:
        looks = Looks(HostPaths(node.root))
        usage = UsageReader(looks.library)
        inventory = looks.look(1200 // LOOK)
        calls.symbols.clear()
        for _ in range(int(600 // FRESH)):
            inventory = looks.look(int(FRESH) // LOOK)
            devices = [uuid for seen in inventory.gpus for uuid in _uuids(seen.state.instances)]
            found = usage.read([seen.gpu for seen in inventory.gpus], devices)
            assert len(found) == 8 * (1 + (partitions or 0))
    a_second = len(calls.symbols) / 600
    print(f"calls a second at rest: {a_second:.1f}, and one for events")
    assert 0 < a_second < 19


def test_an_instance_that_came_or_went_is_seen_at_the_next_look(
    administrator: Administrator, looks: Looks
) -> None:
    administrator.make(0, SMALL, 6)
    assert len(looks.instances()) == 1
    administrator.make(0, SMALL, 5)
    assert len(looks.instances()) == 2
    administrator.destroy(0, SMALL, 6)
    assert len(looks.instances()) == 1


def test_an_instance_of_another_profile_with_the_same_id_is_seen_at_the_next_look(
    administrator: Administrator, looks: Looks
) -> None:
    administrator.make(0, SMALL, 6)
    before = looks.instances()
    administrator.destroy(0, SMALL, 6)
    administrator.make(0, SMALL_WITH_MEDIA, 6)
    after = looks.instances()
    assert before[0].id == after[0].id
    assert after[0].site.profile_id == SMALL_WITH_MEDIA


def test_a_compute_instance_of_another_size_with_the_same_id_is_seen_at_the_next_look(
    administrator: Administrator, looks: Looks
) -> None:
    administrator.make(0, HALF, 0)
    before = looks.instances()
    administrator.destroy(0, HALF, 0)
    administrator.make(0, HALF, 0, compute_slices=1)
    after = looks.instances()
    assert _uuids(before) == _uuids(after)
    assert after[0].compute_instances[0].slices == 1


def test_an_instance_that_is_being_made_is_read_again_until_it_has_a_device(
    node: SimulatedNode, administrator: Administrator, looks: Looks
) -> None:
    administrator.make(0, SMALL, 6)
    node.fail("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_NOT_FOUND)
    assert _uuids(looks.instances()) == []
    node.heal()
    assert len(_uuids(looks.instances())) == 1


def test_where_the_kernel_shows_no_instances_they_are_read_at_each_look(
    administrator: Administrator, looks: Looks, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    looks.reader = NvmlReader(HostPaths(tmp_path / "empty"), looks.library, clock=lambda: looks.now)
    administrator.make(0, SMALL, 6)
    assert len(looks.instances()) == 1
    administrator.destroy(0, SMALL, 6)
    assert looks.instances() == ()


def test_instances_are_read_again_after_some_minutes_in_any_case(
    node: SimulatedNode, administrator: Administrator
) -> None:
    administrator.make(0, SMALL, 6)
    with nvml_calls(node.directory) as calls:
        looks = Looks(HostPaths(node.root))
        looks.look()
        calls.symbols.clear()
        looks.look(300 // LOOK)
    assert calls.symbols.count("nvmlGpuInstanceGetInfo") == 1


def test_the_use_of_an_instance_that_was_made_again_is_read_again(
    administrator: Administrator, looks: Looks
) -> None:
    administrator.make(0, SMALL, 6)
    usage, uuids = UsageReader(looks.library), _uuids(looks.instances())
    assert set(usage.read((), uuids)) == set(uuids)
    administrator.destroy(0, SMALL, 6)
    assert usage.read((), uuids) == {}
    administrator.make(0, SMALL, 6)
    assert set(usage.read((), uuids)) == set(uuids)
