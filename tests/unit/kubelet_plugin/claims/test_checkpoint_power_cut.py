"""What the checkpoint's file says after a power cut, at any moment of any call."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kubelet_plugin.claims.checkpoint import Checkpoint
from kubelet_plugin.claims.checkpoint_file import CHANGES_KEPT, CheckpointFile
from tests.power_cut import Disk, KilledError, State, lay_out
from tests.samples.claims import allocated, claim

EMPTY = Checkpoint("boot-1", {})
ONE = EMPTY.with_claim(claim(allocated("gpu-0")))
TWO = ONE.with_claim(replace(claim(allocated("gpu-1")), uid="uid-1"))
REBOOTED = Checkpoint("boot-2", {})


def store(path: Path, *stored: Checkpoint) -> None:
    """As one process does it, one after the other."""
    file = CheckpointFile(path)
    for state in stored:
        file.load()
        file.store(state)


def loaded(states: Iterable[State]) -> list[Checkpoint | None]:
    """What a process that starts after the cut finds: each answer once."""
    answers: list[Checkpoint | None] = []
    for state in states:
        with TemporaryDirectory() as folder:
            lay_out(state, Path(folder))
            answer = CheckpointFile(Path(folder, "checkpoint.jsonl")).load()
        if answer not in answers:
            answers.append(answer)
    return answers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.jsonl"


@pytest.mark.parametrize(
    ("before", "stored"),
    [
        pytest.param((), EMPTY, id="the first one"),
        pytest.param((EMPTY,), ONE, id="a claim more"),
        pytest.param((EMPTY, TWO), ONE, id="a claim less"),
        pytest.param((EMPTY, ONE), replace(TWO, boot_id="boot-2"), id="everything"),
        pytest.param((EMPTY, *(ONE, EMPTY) * (CHANGES_KEPT // 2)), ONE, id="many changes"),
    ],
)
def test_what_is_stored_survives_and_until_then_what_was_before(
    path: Path, before: tuple[Checkpoint, ...], stored: Checkpoint
) -> None:
    store(path, *before)
    disk = Disk(path.parent)
    file = CheckpointFile(path)
    old = file.load()

    with disk.watched():
        file.store(stored)

    assert loaded(disk.after()) == [stored]
    assert all(found in (old, stored) for found in loaded(disk.during()))


@pytest.mark.parametrize("replacing", [ONE, REBOOTED], ids=["added to", "replaced"])
def test_what_was_found_after_a_kill_survives(path: Path, replacing: Checkpoint) -> None:
    """The killed process may not have put it on disk; the process that loads it trusts it."""
    for kill_before in count():
        path.unlink(missing_ok=True)
        store(path, EMPTY)
        disk = Disk(path.parent)
        file = CheckpointFile(path)
        file.load()
        with suppress(KilledError), disk.watched(kill_before):
            file.store(replacing)
        ended = disk.operations < kill_before

        with disk.watched():
            found = CheckpointFile(path).load()

        assert found in (EMPTY, replacing)
        assert loaded(disk.after()) == [found]
        if ended:
            assert kill_before > 2, "the call does so little that nothing was tried"
            return


@pytest.mark.parametrize("content", [b"", b"{", bytes(100)])
def test_an_unreadable_file_that_was_kept_survives_its_replacement(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    disk = Disk(path.parent)
    file = CheckpointFile(path)

    with disk.watched():
        kept = file.keep_copy()
    copied = list(disk.after())
    with disk.watched():
        file.store(ONE)

    for state in (*copied, *disk.during(), *disk.after()):
        assert dict(state)[kept.name] == content
    assert loaded(disk.after()) == [ONE]
