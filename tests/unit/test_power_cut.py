"""The model of power cuts: what it lets survive."""

import os
from pathlib import Path

import pytest

from tests.power_cut import Disk, KilledError, lay_out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/old").write_bytes(b"old")
    return tmp_path / "disk"


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_what_was_there_before_survives(folder: Path) -> None:
    assert list(Disk(folder).after()) == [(("old", b"old"),)]


def test_a_file_that_is_not_synced_may_be_whole_torn_zeros_empty_or_missing(folder: Path) -> None:
    disk = Disk(folder)
    with disk.watched():
        (folder / "new").write_bytes(b"content!")
    assert set(disk.after()) == {
        (("old", b"old"),),
        *((("new", content), ("old", b"old")) for content in (b"", b"cont", bytes(8), b"content!")),
    }


def test_a_file_is_certain_once_it_and_its_folder_are_synced(folder: Path) -> None:
    disk = Disk(folder)
    with disk.watched():
        (folder / "new").write_bytes(b"content!")
        sync(folder / "new")
    assert set(disk.after()) == {(("old", b"old"),), (("new", b"content!"), ("old", b"old"))}
    with disk.watched():
        sync(folder)
    assert set(disk.after()) == {(("new", b"content!"), ("old", b"old"))}


def test_an_append_that_is_not_synced_leaves_what_was_synced(folder: Path) -> None:
    disk = Disk(folder)
    with disk.watched(), (folder / "old").open("ab") as file:
        file.write(b"more")
    contents = (b"old", b"oldmo", b"old\0\0\0\0", b"oldmore")
    assert set(disk.after()) == {(("old", content),) for content in contents}


def test_a_rename_is_one_change(folder: Path) -> None:
    (folder / "new").write_bytes(b"new")
    disk = Disk(folder)
    with disk.watched():
        (folder / "new").rename(folder / "old")
    assert set(disk.after()) == {(("new", b"new"), ("old", b"old")), (("old", b"new"),)}


def test_changes_of_a_folder_survive_one_without_the_other(folder: Path) -> None:
    (folder / "other").write_bytes(b"")
    disk = Disk(folder)
    with disk.watched():
        (folder / "old").unlink()
        (folder / "other").unlink()
    assert {frozenset(dict(state)) for state in disk.after()} == {
        frozenset(names) for names in ((), ("old",), ("other",), ("old", "other"))
    }


def test_a_new_folder_is_certain_once_the_one_above_it_is_synced(folder: Path) -> None:
    disk = Disk(folder)
    with disk.watched():
        (folder / "below").mkdir()
        (folder / "below/file").write_bytes(b"")
        sync(folder / "below/file")
        sync(folder / "below")
    below = ("below", (("file", b""),))
    assert set(disk.after()) == {(("old", b"old"),), (below, ("old", b"old"))}
    with disk.watched():
        sync(folder)
    assert set(disk.after()) == {(below, ("old", b"old"))}


def test_a_cut_may_be_before_each_operation(folder: Path) -> None:
    disk = Disk(folder)
    with disk.watched():
        (folder / "old").unlink()
        sync(folder)
    assert set(disk.during()) == {(), (("old", b"old"),)}
    assert set(disk.after()) == {()}


def test_a_kill_leaves_what_was_done_before(folder: Path) -> None:
    disk = Disk(folder)

    def call() -> None:
        (folder / "old").unlink()
        (folder / "new").mkdir()

    with pytest.raises(KilledError), disk.watched(kill_before=1):
        call()
    assert disk.operations == 1
    assert set(disk.after()) == {(), (("old", b"old"),)}


def test_a_state_can_be_laid_out(folder: Path, tmp_path: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below/file").write_bytes(b"content")
    [state] = Disk(folder).after()
    (tmp_path / "copy").mkdir()
    lay_out(state, tmp_path / "copy")
    assert list(Disk(tmp_path / "copy").after()) == [state]
