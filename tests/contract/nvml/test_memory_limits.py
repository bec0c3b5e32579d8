"""Whether the driver limits the memory of cgroups is tried once, and what it needs is removed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.nvml import memory_limits
from kubelet_plugin.nvml.memory_limits import PROBE
from kubelet_plugin.nvml.reader import NvmlReader
from simulation.nvml import SimulatedNode, uninstall
from tests.fakes.nvml_calls import nvml_calls

SET, GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"


class Reading:
    """A node of one GPU, and what is read of it."""

    def __init__(self, folder: Path, driver_version: str, cleanup: ExitStack) -> None:
        self.simulated = SimulatedNode.create(
            folder / "node",
            "dgx-h100",
            unplugged=range(1, 8),
            driver_version=driver_version,
        )
        self._calls = cleanup.enter_context(nvml_calls(self.simulated.directory))
        self.cgroup_root = folder / "cgroup"
        self.cgroup_root.mkdir()
        host = HostPaths(self.simulated.root)
        self._reader = NvmlReader(
            host, NvmlLibrary(host.gpu_addresses), cgroup_root=self.cgroup_root
        )

    def read(self) -> tuple[bool, list[str]]:
        """Whether the GPU has limits, and the calls about limits that this took."""
        before = len(self._calls.symbols)
        inventory = self._reader.read()
        assert isinstance(inventory, DriverReady)
        (known,) = inventory.gpus
        calls = self._calls.symbols[before:]
        return known.gpu.memory_limits, [call for call in calls if "MemoryLimits" in call]

    def switch_mig_mode(self, *, on: bool) -> None:
        """An administrator switches MIG mode."""
        pynvml.nvmlInit()
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), int(on))


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[[str], Reading]]:
    with ExitStack() as cleanup:
        yield lambda version: Reading(tmp_path, version, cleanup)
    uninstall()


@pytest.fixture
def r615(new: Callable[[str], Reading]) -> Reading:
    return new("615.71.01")


def test_it_is_tried_once_in_a_session_on_a_cgroup_that_is_removed(r615: Reading) -> None:
    assert r615.read() == (True, [GET, SET, GET])
    assert list(r615.cgroup_root.iterdir()) == []
    assert r615.read() == (True, [])


def test_what_a_killed_plugin_left_is_removed(r615: Reading) -> None:
    (r615.cgroup_root / PROBE).mkdir()
    assert r615.read()[0]
    assert list(r615.cgroup_root.iterdir()) == []


def test_an_older_driver_has_none_and_no_cgroup_is_made(new: Callable[[str], Reading]) -> None:
    reading = new("580.65.06")
    assert reading.read() == (False, [GET])
    assert reading.read() == (False, [])


@pytest.mark.parametrize(
    "break_it",
    [
        lambda node: node.limit_memory(by_cgroup=False),
        lambda node: node.hold_limits_at(1),
        lambda node: node.fail(SET, pynvml.NVML_ERROR_NOT_FOUND),
        lambda node: node.fail(SET, pynvml.NVML_ERROR_NO_PERMISSION),
    ],
    ids=["not supported", "another limit is read back", "no controller", "no permission"],
)
def test_what_cannot_be_set_and_read_back_is_none(
    r615: Reading, break_it: Callable[[SimulatedNode], None]
) -> None:
    break_it(r615.simulated)
    assert not r615.read()[0]
    assert r615.read() == (False, [])
    assert list(r615.cgroup_root.iterdir()) == []


def test_without_writable_cgroups_there_are_none(
    r615: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    r615.cgroup_root.rmdir()
    assert not r615.read()[0]
    assert any("mount the host's cgroups" in record.message for record in caplog.records)


def test_another_error_is_tried_again(r615: Reading) -> None:
    r615.simulated.fail(SET, pynvml.NVML_ERROR_UNKNOWN, times=1)
    assert not r615.read()[0]
    assert r615.read()[0]


def test_a_cgroup_that_another_process_removes_meanwhile_is_tried_again(
    r615: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two plugins of a rolling update: neither may call the driver one without limits."""
    set_limit = memory_limits.set_limit

    def removed(handle: object, cgroup: Path, limit: int | None) -> None:
        monkeypatch.undo()
        cgroup.rmdir()
        r615.simulated.fail(SET, pynvml.NVML_ERROR_NOT_FOUND, times=1)
        set_limit(handle, cgroup, limit)

    monkeypatch.setattr(memory_limits, "set_limit", removed)
    assert not r615.read()[0]
    assert r615.read()[0]


def test_a_root_that_has_no_limits_itself_says_nothing(r615: Reading) -> None:
    r615.simulated.fail(GET, pynvml.NVML_ERROR_NOT_SUPPORTED, times=1)
    assert r615.read()[0]


def test_in_mig_mode_it_is_not_tried_and_what_was_found_stays(r615: Reading) -> None:
    r615.read()
    r615.switch_mig_mode(on=True)
    assert r615.read() == (True, [])
    r615.switch_mig_mode(on=False)
    assert r615.read() == (True, [])


def test_a_gpu_in_mig_mode_from_the_start_has_none_until_it_is_out_of_it(r615: Reading) -> None:
    r615.switch_mig_mode(on=True)
    assert r615.read() == (False, [])
    r615.switch_mig_mode(on=False)
    assert r615.read()[0]
