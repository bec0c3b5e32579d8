"""The folder of device metadata."""

import errno
import os
import stat
from pathlib import Path

import pytest

from kubelet_plugin.device_metadata.directory import MetadataDirectory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plugin/device-metadata"


@pytest.fixture
def files(folder: Path) -> MetadataDirectory:
    return MetadataDirectory(folder)


def test_a_folder_that_is_not_there_is_empty(files: MetadataDirectory) -> None:
    assert files.uids() == frozenset()
    assert files.read("a", "gpu") is None
    files.remove("a")


def test_each_request_of_a_claim_has_a_file(files: MetadataDirectory, folder: Path) -> None:
    files.write("a-1", "gpu", b"one")
    files.write("a-1", "other-gpu", b"two")

    assert Path(files.file("a-1", "gpu")) == folder / "a-1_gpu.json"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "a-1_gpu.json": b"one",
        "a-1_other-gpu.json": b"two",
    }
    assert files.uids() == {"a-1"}


def test_everybody_may_read_a_file_whatever_the_umask(files: MetadataDirectory) -> None:
    before = os.umask(0o077)
    try:
        files.write("a", "gpu", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(files.file("a", "gpu")).stat().st_mode) == 0o644


def test_the_same_content_is_not_written_again(files: MetadataDirectory) -> None:
    files.write("a", "gpu", b"content")
    file = Path(files.file("a", "gpu"))
    before = file.stat().st_ino
    files.write("a", "gpu", b"content")
    assert file.stat().st_ino == before
    files.write("a", "gpu", b"other")
    assert file.read_bytes() == b"other"


def test_what_a_killed_write_left_is_a_file_of_its_claim(
    files: MetadataDirectory, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "a_gpu.json.new").write_bytes(b"con")
    assert files.uids() == {"a"}
    assert files.read("a", "gpu") is None
    files.remove("a")
    assert list(folder.iterdir()) == []


def test_content_that_cannot_be_synced_does_not_replace_the_file(
    files: MetadataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "no sync")

    files.write("a", "gpu", b"old")
    monkeypatch.setattr(os, "fsync", broken)

    with pytest.raises(OSError, match="no sync"):
        files.write("a", "gpu", b"new")
    assert files.read("a", "gpu") == b"old"


def test_a_write_that_fails_leaves_nothing_that_is_not_removed_with_the_claim(
    files: MetadataDirectory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: str, new: str) -> None:
        raise OSError(errno.ENOSPC, "no space", new)

    with monkeypatch.context() as failing:
        failing.setattr(os, "rename", full)
        with pytest.raises(OSError, match="no space"):
            files.write("a", "gpu", b"content")

    assert files.uids() == {"a"}
    files.remove("a")
    assert list(folder.iterdir()) == []


def test_a_file_that_another_process_removes_first_keeps_none_of_the_others(
    files: MetadataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a", "gpu", b"content")
    monkeypatch.setattr(os, "listdir", lambda _: ["a_gone.json", "a_gpu.json"])

    files.remove("a")

    assert not Path(files.file("a", "gpu")).exists()


def test_the_files_of_one_claim_are_removed(files: MetadataDirectory, folder: Path) -> None:
    for uid in ("a", "a-1", "b"):
        for request in ("gpu", "other"):
            files.write(uid, request, b"content")

    for _ in range(2):
        files.remove("a")

    assert {file.name for file in folder.iterdir()} == {
        f"{uid}_{request}.json" for uid in ("a-1", "b") for request in ("gpu", "other")
    }


def test_requests_that_are_kept_stay(files: MetadataDirectory, folder: Path) -> None:
    for request in ("gpu", "other"):
        files.write("a", request, b"content")
    (folder / "a_gpu.json.new").write_bytes(b"con")

    files.remove("a", keep={"gpu"})

    assert [file.name for file in folder.iterdir()] == ["a_gpu.json"]


def test_files_of_others_are_left_alone(files: MetadataDirectory, folder: Path) -> None:
    folder.mkdir(parents=True)
    others = {"a.json", "_gpu.json", "a_gpu.yaml", "README"}
    for name in others:
        (folder / name).touch()
    assert files.uids() == frozenset()
    files.remove("a")
    assert {entry.name for entry in folder.iterdir()} == others
