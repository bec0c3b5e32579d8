"""What containers get as device metadata after a power cut, at any moment of any call."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kubelet_plugin.device_metadata.directory import MetadataDirectory
from tests.power_cut import Disk, KilledError, State, lay_out

UID, OTHER, REQUEST = "uid-1", "uid-2", "gpu"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The plugin's folder, on a disk here."""
    (tmp_path / "plugin").mkdir()
    return tmp_path / "plugin"


def files(plugin: Path) -> MetadataDirectory:
    return MetadataDirectory(plugin / "device-metadata")


def found(states: Iterable[State], uid: str = UID) -> set[bytes | None]:
    """The claim's metadata after each cut."""
    contents = set()
    for state in states:
        with TemporaryDirectory() as folder:
            lay_out(state, Path(folder))
            contents.add(files(Path(folder)).read(uid, REQUEST))
    return contents


@pytest.mark.parametrize("before", [None, b"old"], ids=["the first", "one that differs"])
def test_what_is_written_survives_and_until_then_what_was_before(
    plugin: Path, before: bytes | None
) -> None:
    files(plugin).write(OTHER, REQUEST, b"another")
    if before is not None:
        files(plugin).write(UID, REQUEST, before)
    disk = Disk(plugin)

    with disk.watched():
        files(plugin).write(UID, REQUEST, b"new")

    assert found(disk.after()) == {b"new"}
    assert found(disk.during()) == {before, b"new"}
    assert found([*disk.during(), *disk.after()], OTHER) == {b"another"}


def test_what_is_removed_does_not_come_back(plugin: Path) -> None:
    files(plugin).write(OTHER, REQUEST, b"another")
    files(plugin).write(UID, REQUEST, b"old")
    disk = Disk(plugin)

    with disk.watched():
        files(plugin).remove(UID)

    assert found(disk.after()) == {None}
    assert found(disk.during()) == {b"old", None}
    assert found([*disk.during(), *disk.after()], OTHER) == {b"another"}


def test_what_a_killed_process_wrote_survives_once_it_is_written_again(plugin: Path) -> None:
    for kill_before in count():
        files(plugin).remove(UID)
        disk = Disk(plugin)
        with suppress(KilledError), disk.watched(kill_before):
            files(plugin).write(UID, REQUEST, b"new")
        ended = disk.operations < kill_before

        with disk.watched():
            files(plugin).write(UID, REQUEST, b"new")

        assert found(disk.after()) == {b"new"}
        if ended:
            assert kill_before > 2, "the call does so little that nothing was tried"
            return


def test_what_a_killed_process_removed_does_not_come_back_once_it_is_removed_again(
    plugin: Path,
) -> None:
    for kill_before in count():
        files(plugin).write(UID, REQUEST, b"old")
        disk = Disk(plugin)
        with suppress(KilledError), disk.watched(kill_before):
            files(plugin).remove(UID)
        ended = disk.operations < kill_before

        with disk.watched():
            files(plugin).remove(UID)

        assert found(disk.after()) == {None}
        if ended:
            assert kill_before > 2, "the call does so little that nothing was tried"
            return
