"""Which files of a driver are found, and under which names."""

import os
import socket
from pathlib import Path, PurePosixPath

import pytest

from kubelet_plugin.cdi.driver_files import DriverFile, Library
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from simulation.nvml import DeviceNodes, SimulatedNode
from tests.samples.driver import installed_at

VERSION = "550.163.01"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A driver root with the two libraries that must be there."""
    folder = tmp_path / LIBRARIES
    folder.mkdir(parents=True)
    for stem in ("libcuda", "libnvidia-ml"):
        (folder / f"{stem}.so.{VERSION}").touch()
    return tmp_path


@pytest.fixture
def driver(root: Path) -> DriverRoot:
    return DriverRoot(installed_at(root, Path("/run/nvidia/driver")))


def add(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).touch()


def link(root: Path, path: str, target: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(target)


def test_an_installed_driver_is_found(tmp_path: Path) -> None:
    node = SimulatedNode.create(tmp_path / "node", "t4", device_nodes=DeviceNodes.REGULAR)
    version = node.hardware.driver_version
    files = DriverRoot(installed_at(node.root, Path("/"))).files(version)
    names = {PurePosixPath(library.container_path).name for library in files.libraries}
    assert {f"libcuda.so.{version}", f"libnvidia-ml.so.{version}"} <= names
    assert "/usr/bin/nvidia-smi" in {binary.container_path for binary in files.binaries}
    assert {Path(file.host_path).name for file in files.firmware} == {
        "gsp_ga10x.bin",
        "gsp_tu10x.bin",
    }
    assert files.hook is None


def test_files_are_named_as_the_container_runtime_sees_them(driver: DriverRoot) -> None:
    cuda = driver.files(VERSION).libraries[0]
    assert cuda == Library(
        host_path=f"/run/nvidia/driver/{LIBRARIES}/libcuda.so.{VERSION}",
        container_path=f"/{LIBRARIES}/libcuda.so.{VERSION}",
        links=("libcuda.so.1",),
    )


def test_links_are_recognised_by_their_names(root: Path, driver: DriverRoot) -> None:
    folder = root / LIBRARIES
    (folder / f"libnvidia-nvvm.so.{VERSION}").touch()
    (folder / "libnvidia-nvvm.so.4").symlink_to("/etc/alternatives/nvvm")
    (folder / "libnvidia-nvvm.so").symlink_to("libnvidia-nvvm.so.4")
    (folder / "libnvidia-nvvm70.so.4").symlink_to("another.so")
    nvvm = driver.files(VERSION).libraries[-1]
    assert nvvm.links == ("libnvidia-nvvm.so", "libnvidia-nvvm.so.4")


@pytest.mark.parametrize(
    "name",
    [
        "libcudart.so.12.4.127",
        f"libcudart.so.{VERSION}.1",
        "libnvidia-glcore.so.535.54.03",
        "libc.so.6",
        f"nvidia_drv.so.{VERSION}",
    ],
)
def test_files_of_other_drivers_are_left_out(root: Path, driver: DriverRoot, name: str) -> None:
    add(root, f"{LIBRARIES}/{name}")
    assert len(driver.files(VERSION).libraries) == 2


def test_a_folder_with_two_names_is_listed_once(root: Path, driver: DriverRoot) -> None:
    (root / "lib").symlink_to("usr/lib")
    assert len(driver.files(VERSION).libraries) == 2


def test_of_a_library_in_two_folders_the_first_is_used(root: Path, driver: DriverRoot) -> None:
    for folder in ("usr/lib", "usr/lib64"):
        add(root, f"{folder}/libcuda.so.{VERSION}")
    paths = [library.container_path for library in driver.files(VERSION).libraries]
    assert paths == [
        f"/{LIBRARIES}/libnvidia-ml.so.{VERSION}",
        f"/usr/lib64/libcuda.so.{VERSION}",
    ]


def test_firmware_in_a_folder_with_two_names_is_found_once(root: Path, driver: DriverRoot) -> None:
    add(root, f"usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
    (root / "lib").symlink_to("usr/lib")
    (firmware,) = driver.files(VERSION).firmware
    assert firmware.container_path == f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"


def test_a_file_in_the_place_of_a_folder_is_ignored(root: Path, driver: DriverRoot) -> None:
    add(root, "usr/bin")
    assert driver.files(VERSION).binaries == ()


def test_sockets_are_sockets(
    root: Path, driver: DriverRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "run/nvidia-persistenced"
    add(root, "run/nvidia-fabricmanager/socket")
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")  # relative: the absolute path may be too long
    assert [file.container_path for file in driver.files(VERSION).sockets] == [
        "/run/nvidia-persistenced/socket"
    ]


def test_the_hook_is_looked_for(root: Path, driver: DriverRoot) -> None:
    add(root, "usr/bin/nvidia-cdi-hook")
    assert driver.files(VERSION).hook is None
    (root / "usr/bin/nvidia-cdi-hook").unlink()
    add(root, "usr/local/nvidia/toolkit/nvidia-cdi-hook")
    (root / "usr/local/nvidia/toolkit/nvidia-cdi-hook").chmod(0o755)
    assert driver.files(VERSION).hook == (
        "/run/nvidia/driver/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    )


def test_a_hook_that_was_named_is_not_looked_for(root: Path) -> None:
    driver = DriverRoot(installed_at(root, Path("/")), Path("/opt/nvidia-cdi-hook"))
    assert driver.files(VERSION).hook == "/opt/nvidia-cdi-hook"


# --- links below a driver root, which this process does not have as its "/" ---


def test_an_absolute_link_leads_to_a_file_below_the_root(root: Path, driver: DriverRoot) -> None:
    """Debian's alternatives."""
    add(root, "usr/lib/nvidia/current/nvidia-smi")
    link(root, "etc/alternatives/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi")
    link(root, "usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi")
    assert driver.files(VERSION).binaries == (
        DriverFile(
            host_path="/run/nvidia/driver/usr/lib/nvidia/current/nvidia-smi",
            container_path="/usr/bin/nvidia-smi",
        ),
    )


def test_a_link_out_of_the_root_leads_to_nothing(tmp_path: Path) -> None:
    """Neither an absolute link nor "..": the files that they would reach are another system's."""
    (tmp_path / "outside").touch()
    root = tmp_path / "root"
    for stem in ("libcuda", "libnvidia-ml"):
        add(root, f"{LIBRARIES}/{stem}.so.{VERSION}")
    link(root, "usr/bin/nvidia-smi", str(tmp_path / "outside"))
    link(root, "usr/bin/nvidia-imex", "../../../outside")
    assert DriverRoot(installed_at(root, Path("/"))).files(VERSION).binaries == ()


def test_a_folder_may_be_an_absolute_link(tmp_path: Path) -> None:
    for stem in ("libcuda", "libnvidia-ml"):
        add(tmp_path, f"opt/nvidia/lib/{stem}.so.{VERSION}")
    link(tmp_path, LIBRARIES, "/opt/nvidia/lib")
    files = DriverRoot(installed_at(tmp_path, Path("/host"))).files(VERSION)
    assert [(library.host_path, library.container_path) for library in files.libraries] == [
        (f"/host/opt/nvidia/lib/{stem}.so.{VERSION}", f"/{LIBRARIES}/{stem}.so.{VERSION}")
        for stem in ("libcuda", "libnvidia-ml")
    ]


def test_a_change_behind_an_absolute_link_is_seen(tmp_path: Path) -> None:
    for stem in ("libcuda", "libnvidia-ml"):
        add(tmp_path, f"opt/nvidia/{stem}.so.{VERSION}")
    link(tmp_path, LIBRARIES, "/opt/nvidia")
    driver = DriverRoot(installed_at(tmp_path, Path("/")))
    before = driver.files(VERSION)
    assert driver.files(VERSION) is before
    add(tmp_path, f"opt/nvidia/libnvidia-nvvm.so.{VERSION}")
    folder = tmp_path / "opt/nvidia"
    os.utime(folder, ns=(1, folder.stat().st_mtime_ns + 1))
    assert len(driver.files(VERSION).libraries) == 3


def test_a_link_to_another_file_is_seen(root: Path, driver: DriverRoot) -> None:
    """update-alternatives changes neither /usr/bin nor the file that it leads to now."""
    for release in ("one", "two"):
        add(root, f"opt/{release}/nvidia-smi")
    link(root, "usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi")
    link(root, "etc/alternatives/nvidia-smi", "/opt/one/nvidia-smi")
    assert "/opt/one/" in driver.files(VERSION).binaries[0].host_path
    assert driver.files(VERSION) is driver.files(VERSION)
    (root / "etc/alternatives/nvidia-smi").unlink()
    link(root, "etc/alternatives/nvidia-smi", "/opt/two/nvidia-smi")
    assert "/opt/two/" in driver.files(VERSION).binaries[0].host_path


def test_a_link_to_another_folder_is_seen(tmp_path: Path) -> None:
    for release in ("one", "two"):
        for stem in ("libcuda", "libnvidia-ml"):
            add(tmp_path, f"opt/{release}/{stem}.so.{VERSION}")
    link(tmp_path, LIBRARIES, "/opt/one")
    driver = DriverRoot(installed_at(tmp_path, Path("/")))
    assert "/opt/one/" in driver.files(VERSION).libraries[0].host_path
    (tmp_path / LIBRARIES).unlink()
    link(tmp_path, LIBRARIES, "/opt/two")
    assert "/opt/two/" in driver.files(VERSION).libraries[0].host_path


@pytest.mark.parametrize(
    "path", [f"{LIBRARIES}/libcuda.so.{VERSION}", "usr/bin/nvidia-smi", "usr/lib64"]
)
def test_a_loop_of_links_is_an_error_that_names_it(
    root: Path, driver: DriverRoot, path: str
) -> None:
    (root / path).unlink(missing_ok=True)
    link(root, path, f"/{path}")
    with pytest.raises(DriverFilesError, match=rf"/{path} below .* symbolic links"):
        driver.files(VERSION)


@pytest.mark.parametrize("stem", ["libcuda", "libnvidia-ml"])
def test_without_its_main_libraries_the_error_says_where_they_should_be(
    root: Path, driver: DriverRoot, stem: str
) -> None:
    (root / LIBRARIES / f"{stem}.so.{VERSION}").unlink()
    with pytest.raises(DriverFilesError) as caught:
        driver.files(VERSION)
    for words in (f"{stem}.so.{VERSION} not found", str(root), f"/{LIBRARIES}", "set driver_root"):
        assert words in str(caught.value)


def test_nothing_is_listed_again_while_nothing_changes(driver: DriverRoot) -> None:
    assert driver.files(VERSION) is driver.files(VERSION)


@pytest.mark.parametrize(
    "path",
    [
        f"{LIBRARIES}/libnvidia-nvvm.so.{VERSION}",
        f"usr/lib64/libnvidia-nvvm.so.{VERSION}",
        "usr/bin/nvidia-smi",
        f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    ],
)
def test_a_change_is_seen(root: Path, driver: DriverRoot, path: str) -> None:
    before = driver.files(VERSION)
    add(root, path)
    folder = (root / path).parent
    os.utime(folder, ns=(1, folder.stat().st_mtime_ns + 1))  # however coarse the clock is
    assert driver.files(VERSION) != before


def test_another_driver_is_another_search(root: Path, driver: DriverRoot) -> None:
    driver.files(VERSION)
    with pytest.raises(DriverFilesError, match=r"libcuda\.so\.570"):
        driver.files("570.86.15")
