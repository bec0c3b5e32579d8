"""What is watched, on disk."""

from pathlib import Path

import pytest

from carina_dra.sharing.files import DAMAGED, FILES, WANTED
from sharing.wanted_file import WantedFile
from tests.power_cut import Disk, KilledError, lay_out
from tests.unit.sharing.samples import share, wanted

BEFORE, AFTER = wanted(share("a", "p")), wanted(share("a", "p"), share("b", "q"), generation=2)


def test_without_a_file_it_is_not_known_what_is_watched(tmp_path: Path) -> None:
    assert WantedFile(tmp_path).load() is None


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    WantedFile(tmp_path).save(AFTER)
    assert WantedFile(tmp_path).load() == AFTER


@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 40, b'{"version": 2}', b"[]"])
def test_a_damaged_file_is_set_aside_with_a_word(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / WANTED).write_bytes(content)
    assert WantedFile(tmp_path).load() is None
    assert (tmp_path / DAMAGED).read_bytes() == content
    assert not (tmp_path / WANTED).exists()
    (record,) = caplog.records
    assert "set aside" in record.getMessage()


def _killed_saves(folder: Path) -> list[Disk]:
    """The disk after saves that were killed before each of their operations, and a whole one."""
    disks, number = [], 0
    while True:
        own = folder / str(number)
        own.mkdir()
        WantedFile(own).save(BEFORE)
        disk = Disk(own)
        try:
            with disk.watched(kill_before=number):
                WantedFile(own).save(AFTER)
        except KilledError:
            disks.append(disk)
            number += 1
            continue
        disks.append(disk)
        return disks


def test_a_kill_or_a_power_cut_at_any_moment_leaves_the_last_or_the_new_one(
    tmp_path: Path,
) -> None:
    disks = _killed_saves(tmp_path)
    assert len(disks) > 3
    for disk_number, disk in enumerate(disks):
        killed = WantedFile(tmp_path / str(disk_number)).load()
        assert killed in (BEFORE, AFTER)
        for number, state in enumerate(disk.during()):
            left = tmp_path / f"{disk_number}-{number}"
            left.mkdir()
            lay_out(state, left)
            assert WantedFile(left).load() in (BEFORE, AFTER)
            assert {file.name for file in left.iterdir()} <= FILES


def test_after_a_whole_save_a_power_cut_leaves_the_new_one(tmp_path: Path) -> None:
    WantedFile(tmp_path).save(BEFORE)
    disk = Disk(tmp_path)
    with disk.watched():
        WantedFile(tmp_path).save(AFTER)
    for number, state in enumerate(disk.after()):
        left = tmp_path.parent / f"left-{number}"
        left.mkdir()
        lay_out(state, left)
        assert WantedFile(left).load() == AFTER
