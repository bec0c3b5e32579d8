"""Where a driver is found, and which files containers then get."""

import json
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from carina_dra.nvidia.driver_location import PLACES, LocationChoice, choose, locations
from carina_dra.nvidia.driver_search import DriverSearch
from kubelet_plugin.cdi.claim_spec import InjectedDevice, claim_spec, driver_edits
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from kubelet_plugin.cdi.spec import DeviceNode, render_spec
from tests.samples.claims import claim
from tests.samples.gpus import whole

VERSION = "550.163.01"
GOLDEN = Path(__file__).parents[1] / "golden"
HOST, OPERATOR, GKE, TALOS, OLD_TALOS = PLACES
LAYOUTS = {
    "debian": (HOST, "usr/lib/x86_64-linux-gnu", "usr/bin"),
    "gpu-operator": ("/run/nvidia/driver", "usr/lib/x86_64-linux-gnu", "usr/bin"),
    "gke": ("/home/kubernetes/bin/nvidia", "lib64", "bin"),
    "talos": ("/usr/local/glibc", "usr/lib", "usr/bin"),
    "talos-1.8": ("/usr/local/glibc", "lib", "bin"),
    "usr-local": ("/usr/local", "lib", "bin"),
}


def install(host: Path, layout: str) -> Path:
    """Installs a driver on a host, and returns its root."""
    place, libraries, binaries = LAYOUTS[layout]
    root = host / place.lstrip("/")
    for folder in (libraries, binaries):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("libcuda", "libnvidia-ml"):
        (root / libraries / f"{name}.so.{VERSION}").touch()
        (root / libraries / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (root / binaries / "nvidia-smi").touch()
    return root


def remove(root: Path) -> None:
    """Removes the libraries below a root, as unmounting the root does."""
    for library in [*root.rglob("lib*.so.*")]:
        library.unlink()


@pytest.fixture
def search(tmp_path: Path) -> DriverSearch:
    return DriverSearch(locations(tmp_path))


def found(search: DriverSearch) -> str | None:
    location = search.location()
    return None if location is None else str(location.host_path)


@pytest.mark.parametrize(
    ("with_driver", "chosen", "not_used"),
    [
        ([], None, []),
        ([HOST], HOST, []),
        ([OPERATOR], OPERATOR, []),
        ([GKE], GKE, []),
        ([OLD_TALOS], OLD_TALOS, []),
        ([OPERATOR, HOST], HOST, [OPERATOR]),
        ([OLD_TALOS, TALOS, GKE], GKE, [TALOS, OLD_TALOS]),
        (PLACES, HOST, PLACES[1:]),
    ],
)
def test_the_first_place_with_a_driver_is_chosen(
    with_driver: Collection[str], chosen: str | None, not_used: Sequence[str]
) -> None:
    known = {str(location.host_path): location for location in locations(Path("/host"))}
    choice = choose(tuple(known.values()), {known[place] for place in with_driver})
    assert choice == LocationChoice(
        chosen=None if chosen is None else known[chosen],
        without_driver=tuple(known[place] for place in PLACES if place not in with_driver),
        not_used=tuple(known[place] for place in not_used),
    )


def test_places_are_below_the_hosts_root_for_this_process() -> None:
    assert [str(location.path) for location in locations(Path("/host"))][:2] == [
        "/host",
        "/host/run/nvidia/driver",
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_containers_get_the_files_of_each_layout(
    tmp_path: Path, search: DriverSearch, layout: str
) -> None:
    install(tmp_path, layout)
    edits = driver_edits(DriverRoot(search).files(VERSION), ())
    device = InjectedDevice("GPU-0", (DeviceNode("/dev/nvidia0", "/dev/nvidia0"),))
    spec = claim_spec("gpu.carina.dev", claim(), {"gpu-0": whole(0)}, {"gpu-0": device}, edits)
    content: dict[str, Any] = json.loads(render_spec(spec))
    file = GOLDEN / f"cdi-layout-{layout}.json"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(json.dumps(content, indent=2) + "\n")
    assert content == json.loads(file.read_bytes())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nvml_is_loaded_from_the_place_that_is_chosen(
    tmp_path: Path, search: DriverSearch, layout: str
) -> None:
    root = install(tmp_path, layout)
    libraries = list(search.nvml_libraries())
    assert {library.root for library in libraries} == {root}
    assert any(library.locate().exists() for library in libraries)


def test_a_driver_that_appears_later_is_found(tmp_path: Path, search: DriverSearch) -> None:
    assert search.location() is None
    assert list(search.nvml_libraries()) == []
    install(tmp_path, "gpu-operator")
    assert found(search) == OPERATOR


def test_a_place_is_kept_while_it_has_the_driver(tmp_path: Path, search: DriverSearch) -> None:
    root = install(tmp_path, "gpu-operator")
    assert found(search) == OPERATOR
    install(tmp_path, "debian")
    assert found(search) == OPERATOR
    remove(root)
    assert found(search) == HOST


def test_files_are_those_of_the_place_in_use(tmp_path: Path, search: DriverSearch) -> None:
    files = DriverRoot(search)
    root = install(tmp_path, "gpu-operator")
    before = files.files(VERSION).libraries[0].host_path
    assert before.startswith(OPERATOR)
    install(tmp_path, "gke")
    remove(root)
    after = files.files(VERSION).libraries[0].host_path
    assert after.startswith(GKE)


def test_without_a_driver_the_error_names_all_places(tmp_path: Path, search: DriverSearch) -> None:
    with pytest.raises(DriverFilesError) as caught:
        DriverRoot(search).files(VERSION)
    for place in PLACES:
        assert str(tmp_path / place.lstrip("/")) in str(caught.value)


def test_a_loop_of_links_is_no_driver(tmp_path: Path, search: DriverSearch) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/lib64").symlink_to("/usr/lib64")
    assert search.location() is None


def test_the_log_says_once_which_place_is_used_and_why_not_the_others(
    tmp_path: Path, search: DriverSearch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "gpu-operator")
    install(tmp_path, "gke")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            search.location()
    (record,) = caplog.records
    assert vars(record)["driver_root"] == OPERATOR
    assert vars(record)["not_used"] == {
        HOST: "has no libnvidia-ml.so.1",
        GKE: "comes later in the order",
        TALOS: "has no libnvidia-ml.so.1",
        OLD_TALOS: "has no libnvidia-ml.so.1",
    }


def test_a_place_that_is_set_is_used_whatever_it_has(tmp_path: Path) -> None:
    (gke,) = (known for known in locations(tmp_path) if known.host_path == PurePosixPath(GKE))
    install(tmp_path, "debian")
    assert DriverSearch([gke]).location() == gke
