"""A library that is loaded as the real one is: from a file below a driver root."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.rooted_path import RootedPath
from kubelet_plugin.inventory.inventory import DriverMissing, DriverReady, DriverUnusable
from simulation.nvml import uninstall
from tests.contract.nvml.conftest import reader_below

# A driver with the minimum: it starts, stops and counts no GPUs.
SOURCE = """
int nvmlInitWithFlags(unsigned flags) { (void)flags; return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 0; return 0; }
"""
NO_PERMISSION = 4


@pytest.fixture(autouse=True)
def _forget_the_library() -> Iterator[None]:
    uninstall()
    yield
    uninstall()


def build(folder: Path, init: int) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = folder / "nvml.c"
    source.write_text(SOURCE.replace("INIT", str(init)))
    library = folder / f"libnvidia-ml.so.{init}"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library


def below(root: Path, *paths: str) -> list[RootedPath]:
    return [RootedPath(root, path) for path in paths]


def test_a_library_below_the_driver_root_is_loaded(tmp_path: Path) -> None:
    library = build(tmp_path, 0)
    reader = reader_below(tmp_path, below(tmp_path, "/not-here.so", f"/{library.name}"))
    assert reader.read() == DriverReady(())


def test_a_file_that_is_not_a_library_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_text("not a library")
    library = build(tmp_path, 0)
    reader = reader_below(tmp_path, below(tmp_path, "/broken.so", f"/{library.name}"))
    assert reader.read() == DriverReady(())


def test_a_library_behind_an_absolute_link_is_the_one_below_the_root(tmp_path: Path) -> None:
    library = build(tmp_path, 0)
    (tmp_path / "alternatives").mkdir()
    (tmp_path / "alternatives/libnvidia-ml.so.1").symlink_to(f"/{library.name}")
    (tmp_path / "libnvidia-ml.so.1").symlink_to("/alternatives/libnvidia-ml.so.1")
    reader = reader_below(tmp_path, below(tmp_path, "/libnvidia-ml.so.1"))
    assert reader.read() == DriverReady(())


def test_a_loop_of_links_is_logged_and_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "libnvidia-ml.so.1").symlink_to("/libnvidia-ml.so.1")
    monkeypatch.setattr("pynvml.CDLL", _no_library)
    reader = reader_below(tmp_path, below(tmp_path, "/libnvidia-ml.so.1"))
    assert isinstance(reader.read(), DriverMissing)
    errors = [str(vars(record)["error"]) for record in caplog.records]
    assert "Too many levels of symbolic links" in errors[0]


def test_an_error_of_the_library_is_reported(tmp_path: Path) -> None:
    reader = reader_below(tmp_path, below(tmp_path, f"/{build(tmp_path, NO_PERMISSION).name}"))
    failure = NvmlFailure("nvmlInit", "NVML_ERROR_NO_PERMISSION")
    assert reader.read() == DriverUnusable(failure)


def test_a_file_that_is_not_a_library_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_text("not a library")
    monkeypatch.setattr("pynvml.CDLL", _no_library)
    inventory = reader_below(tmp_path, below(tmp_path, "/libnvidia-ml.so.1")).read()
    assert isinstance(inventory, DriverMissing)
    assert str(broken) in inventory.reason


def _no_library(_name: str) -> None:
    raise OSError


def test_a_library_that_appears_late_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pynvml.CDLL", _no_library)
    reader = reader_below(tmp_path, below(tmp_path, "/libnvidia-ml.so.0"))
    assert isinstance(reader.read(), DriverMissing)
    build(tmp_path, 0)
    assert reader.read() == DriverReady(())
