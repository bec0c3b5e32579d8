"""The image of the Containerfile, without a container."""

import json
import tarfile
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import pytest

from release.archive import unpacked
from release.parts import image
from release.project import Project
from simulation.kubernetes import plugin_image as images

pytestmark = pytest.mark.node

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_LABEL = "org.opencontainers.image"
_NEVER_COMPARED = (0b01).to_bytes(4, "little")  # PEP 552: the source's hash, unchecked


@pytest.fixture
def archive(plugin_image: Path) -> Iterator[tarfile.TarFile]:
    """The docker archive."""
    with tarfile.open(plugin_image) as opened:
        yield opened


def _read(archive: tarfile.TarFile, name: str) -> Any:
    member = archive.extractfile(name)
    assert member is not None
    return json.load(member)


def _layers(archive: tarfile.TarFile) -> Iterator[tarfile.TarFile]:
    for name in _read(archive, "manifest.json")[0]["Layers"]:
        with tarfile.open(fileobj=archive.extractfile(name)) as layer:
            yield layer


def test_image_built_again_is_the_same(plugin_image: Path) -> None:
    assert images.identity_of_another_build() == images.identity()


def test_archive_of_a_release_names_the_revision_and_its_blobs(tmp_path: Path) -> None:
    image(tmp_path, Project("carina-dra", "1.2.3"), "0123abcd")

    (archive,) = tmp_path.glob("carina-dra_v1.2.3_image.oci.tar")
    files = {member.name: member.content for member in unpacked(archive)}
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/")}
    assert {f"blobs/sha256/{sha256(content).hexdigest()}" for content in blobs.values()} == {*blobs}
    config = next(json.loads(text) for text in blobs.values() if text.startswith(b'{"created'))
    assert config["config"]["Labels"][f"{_LABEL}.revision"] == "0123abcd"


def test_image_says_what_it_is_and_is_run_by_nobody(archive: tarfile.TarFile) -> None:
    config = _read(archive, _read(archive, "manifest.json")[0]["Config"])["config"]

    assert config["Labels"].items() >= {
        (f"{_LABEL}.title", "Carina"),
        (f"{_LABEL}.licenses", "Apache-2.0"),
        (f"{_LABEL}.version", tomllib.loads(_PROJECT.read_text())["project"]["version"]),
    }
    assert config["User"] == "65532:65532"


def test_no_module_is_compiled_at_a_start(archive: tarfile.TarFile) -> None:
    modules, compiled = set(), {}
    for layer in _layers(archive):
        for entry in layer:
            path = Path("/", entry.name)
            if entry.isfile() and path.match("/opt/carina/lib/*/site-packages/*/**/*.py"):
                modules.add(path)
            if path.suffixes[-2:] == [".opt-2", ".pyc"] and (content := layer.extractfile(entry)):
                source = path.parents[1] / f"{path.name.partition('.')[0]}.py"
                compiled[source] = content.read(len(MAGIC_NUMBER) + 4)[len(MAGIC_NUMBER) :]

    assert modules
    assert modules - compiled.keys() == set()
    assert set(compiled.values()) == {_NEVER_COMPARED}
    assert any(source.match("/usr/lib/python3*/argparse.py") for source in compiled)


def test_change_of_the_code_changes_a_small_layer(archive: tarfile.TarFile) -> None:
    *_, dependencies, code = ({entry.name for entry in layer} for layer in _layers(archive))

    ours = ("carina_dra", "controller", "kubelet_plugin", "sharing")
    assert not [name for name in dependencies if any(f"/{package}/" in name for package in ours)]
    assert [name for name in code if any(f"/{package}/" in name for package in ours)]
    assert not [name for name in code if "/pydantic/" in name]
