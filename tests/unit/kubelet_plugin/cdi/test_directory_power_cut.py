"""What container runtimes find in the CDI folder after a power cut, at any moment of any call."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kubelet_plugin.cdi.directory import CdiDirectory
from tests.power_cut import Disk, KilledError, State, lay_out

UID, OTHER = "uid-1", "uid-2"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """/var/run, on a disk here."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def specs(run: Path) -> CdiDirectory:
    return CdiDirectory(run / "cdi", "gpu.example.com")


def found(states: Iterable[State], uid: str = UID) -> set[bytes | None]:
    """The claim's spec after each cut."""
    contents = set()
    for state in states:
        with TemporaryDirectory() as folder:
            lay_out(state, Path(folder))
            contents.add(specs(Path(folder)).read(uid))
    return contents


@pytest.mark.parametrize(
    "before", [None, b"the old spec"], ids=["the first one", "one that differs"]
)
def test_what_is_written_survives_and_until_then_what_was_before(
    run: Path, before: bytes | None
) -> None:
    specs(run).write(OTHER, b"another spec")
    if before is not None:
        specs(run).write(UID, before)
    disk = Disk(run)

    with disk.watched():
        specs(run).write(UID, b"the new spec")

    assert found(disk.after()) == {b"the new spec"}
    assert found(disk.during()) == {before, b"the new spec"}
    assert found([*disk.during(), *disk.after()], OTHER) == {b"another spec"}


def test_the_first_spec_of_a_node_survives_with_its_folder(run: Path) -> None:
    disk = Disk(run.parent)
    with disk.watched():
        specs(run / "containers").write(UID, b"the new spec")
    for state in disk.after():
        with TemporaryDirectory() as folder:
            lay_out(state, Path(folder))
            assert specs(Path(folder, "run/containers")).read(UID) == b"the new spec"


def test_what_is_removed_does_not_come_back(run: Path) -> None:
    specs(run).write(OTHER, b"another spec")
    specs(run).write(UID, b"the old spec")
    disk = Disk(run)

    with disk.watched():
        specs(run).remove(UID)

    assert found(disk.after()) == {None}
    assert found(disk.during()) == {b"the old spec", None}
    assert found([*disk.during(), *disk.after()], OTHER) == {b"another spec"}


def test_what_a_killed_process_wrote_survives_once_it_is_written_again(run: Path) -> None:
    for kill_before in count():
        specs(run).remove(UID)
        disk = Disk(run)
        with suppress(KilledError), disk.watched(kill_before):
            specs(run).write(UID, b"the new spec")
        ended = disk.operations < kill_before

        with disk.watched():
            specs(run).write(UID, b"the new spec")

        assert found(disk.after()) == {b"the new spec"}
        if ended:
            assert kill_before > 2, "the call does so little that nothing was tried"
            return


def test_what_a_killed_process_removed_does_not_come_back_once_it_is_removed_again(
    run: Path,
) -> None:
    for kill_before in count():
        specs(run).write(UID, b"the old spec")
        disk = Disk(run)
        with suppress(KilledError), disk.watched(kill_before):
            specs(run).remove(UID)
        ended = disk.operations < kill_before

        with disk.watched():
            specs(run).remove(UID)

        assert found(disk.after()) == {None}
        if ended:
            assert kill_before > 2, "the call does so little that nothing was tried"
            return
