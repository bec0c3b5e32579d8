"""The folder of CDI specs."""

import os
import stat
from pathlib import Path

import pytest

from kubelet_plugin.cdi.directory import CdiDirectory

DRIVER = "gpu.carina.dev"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run/cdi"


@pytest.fixture
def specs(folder: Path) -> CdiDirectory:
    return CdiDirectory(folder, DRIVER)


def test_a_folder_that_is_not_there_is_empty(specs: CdiDirectory) -> None:
    assert specs.uids() == frozenset()
    assert specs.read("a") is None
    specs.remove("a")


def test_a_spec_is_a_file_that_runtimes_read(specs: CdiDirectory, folder: Path) -> None:
    specs.write("a-1", b"content")
    file = folder / "gpu.carina.dev-claim_a-1.json"
    assert file.read_bytes() == b"content"
    assert [entry.name for entry in folder.iterdir()] == [file.name]
    assert specs.read("a-1") == b"content"
    assert specs.uids() == {"a-1"}


def test_everybody_may_read_a_spec_whatever_the_umask(specs: CdiDirectory, folder: Path) -> None:
    before = os.umask(0o077)
    try:
        specs.write("a", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "gpu.carina.dev-claim_a.json").stat().st_mode) == 0o644


def test_the_same_content_is_not_written_again(specs: CdiDirectory, folder: Path) -> None:
    specs.write("a", b"content")
    file = folder / "gpu.carina.dev-claim_a.json"
    before = file.stat().st_ino
    specs.write("a", b"content")
    assert file.stat().st_ino == before
    specs.write("a", b"other")
    assert file.read_bytes() == b"other"


def test_what_a_killed_write_left_is_a_file_of_its_claim(specs: CdiDirectory, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "gpu.carina.dev-claim_a.json.new").write_bytes(b"con")
    assert specs.uids() == {"a"}
    assert specs.read("a") is None
    specs.remove("a")
    assert list(folder.iterdir()) == []


def test_what_a_killed_write_left_does_not_hinder_the_next(
    specs: CdiDirectory, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "gpu.carina.dev-claim_a.json.new").write_bytes(b"something longer")
    specs.write("a", b"content")
    assert specs.read("a") == b"content"
    assert len(list(folder.iterdir())) == 1


def test_files_of_others_are_left_alone(specs: CdiDirectory, folder: Path) -> None:
    folder.mkdir(parents=True)
    others = {"nvidia.yaml", "gpu.carina.dev-claim_a.yaml", "k8s.gpu.nvidia.com-claim_a.json"}
    for name in others:
        (folder / name).touch()
    assert specs.uids() == frozenset()
    specs.remove("a")
    assert {entry.name for entry in folder.iterdir()} == others


def test_removing_twice_is_removing(specs: CdiDirectory) -> None:
    specs.write("a", b"content")
    specs.write("b", b"content")
    specs.remove("a")
    specs.remove("a")
    assert specs.uids() == {"b"}
