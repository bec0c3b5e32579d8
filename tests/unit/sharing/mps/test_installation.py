"""Whether a node has MPS: its driver, programs, cgroups and mounts."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from carina_dra.nvidia.driver_location import DriverLocation
from carina_dra.nvidia.driver_search import DriverSearch
from sharing.mps import mounts
from sharing.mps.installation import MpsSearch
from simulation.nvml import SimulatedNode


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return SimulatedNode.create(tmp_path / "node", "dgx-h100", name="node-1")


@pytest.fixture
def plugin_directory() -> Iterator[Path]:
    """A short path, wherever the other files of the tests are: sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def search(
    node: SimulatedNode, tmp_path: Path, plugin_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], MpsSearch]:
    monkeypatch.setattr(mounts, "problem", lambda folder: None)
    cgroups = tmp_path / "cgroup"
    cgroups.mkdir()
    for name in ("cgroup.procs", "cgroup.controllers"):
        (cgroups / name).touch()

    def made() -> MpsSearch:
        location = DriverLocation(node.root, PurePosixPath(node.root))
        return MpsSearch(
            DriverSearch([location]),
            host_root=node.root,
            cgroup_root=cgroups,
            plugin_directory=plugin_directory,
            links=tmp_path / "links",
        )

    return made


def test_a_daemon_gets_the_driver_s_libraries_and_nothing_beside_them(
    node: SimulatedNode, search: Callable[[], MpsSearch]
) -> None:
    (node.root / "usr/lib/x86_64-linux-gnu/libc.so.6").touch()
    found = search().installation()
    assert found.control.is_file()
    libraries = Path(found.environment["LD_LIBRARY_PATH"])
    names = {path.name for path in libraries.iterdir()}
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= names
    assert "libc.so.6" not in names
    assert all(path.exists() for path in libraries.iterdir())


def test_links_of_an_earlier_driver_are_replaced(
    node: SimulatedNode, search: Callable[[], MpsSearch]
) -> None:
    search().installation()
    node.replace_driver("580.65.06")
    libraries = Path(search().installation().environment["LD_LIBRARY_PATH"])
    names = {path.name for path in libraries.iterdir()}
    assert "libcuda.so.580.65.06" in names
    assert all(path.exists() for path in libraries.iterdir())


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("535.183.01", "the NVIDIA driver is 535.183.01; limits of MPS need 550 or later"),
        ("550.54.14", None),
        ("580.65.06", None),
    ],
)
def test_the_driver_is_550_or_later(
    node: SimulatedNode, search: Callable[[], MpsSearch], version: str, problem: str | None
) -> None:
    node.replace_driver(version)
    assert search().problem() == problem


def test_a_driver_without_its_programs_has_no_mps(
    node: SimulatedNode, search: Callable[[], MpsSearch]
) -> None:
    (node.root / "usr/bin/nvidia-cuda-mps-server").unlink()
    assert search().problem() == (
        f"the driver's program nvidia-cuda-mps-server is missing below {node.root}"
    )


def test_a_driver_that_is_being_replaced_has_no_mps(
    node: SimulatedNode, search: Callable[[], MpsSearch]
) -> None:
    node.replace_driver("550.54.14")
    for library in (node.root / "usr/lib/x86_64-linux-gnu").glob("libcuda.so*"):
        library.unlink()
    problem = search().problem() or ""
    assert problem.startswith("the driver 550.54.14 is loaded, and its libcuda is missing")


def test_without_a_loaded_driver_there_is_no_mps(
    node: SimulatedNode, search: Callable[[], MpsSearch]
) -> None:
    node.driver(available=False)
    assert search().problem() == "no NVIDIA driver is loaded"


def test_the_problem_of_mounts_is_said(
    search: Callable[[], MpsSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "problem", lambda folder: "no mounts here")
    assert search().problem() == "no mounts here"
