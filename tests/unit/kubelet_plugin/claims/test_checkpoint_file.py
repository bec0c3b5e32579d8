"""The checkpoint's file: what was stored can be read by any process, whatever happened.

It is on a disk here; the files of all other tests are in memory, see `tests.memory`.
"""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.claims.checkpoint import Checkpoint, CheckpointFormError, render_checkpoint
from kubelet_plugin.claims.checkpoint_file import CHANGES_KEPT, CheckpointFile
from tests.samples.claims import UID, allocated, claim

EMPTY = Checkpoint("boot", {})
ONE = EMPTY.with_claim(claim(allocated("gpu-0")))
claims = st.sampled_from([replace(claim(allocated(f"gpu-{n}")), uid=f"uid-{n}") for n in range(4)])
states = st.builds(
    Checkpoint,
    st.sampled_from(["boot-1", "boot-2"]),
    st.lists(claims).map(lambda all_: {each.uid: each for each in all_}),
)


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "checkpoint.jsonl"


def _store(path: Path, *stored: Checkpoint) -> None:
    """As one process does it, one after the other."""
    file = CheckpointFile(path)
    for state in stored:
        file.load()
        file.store(state)


def _loaded(path: Path) -> Checkpoint | None:
    """What a process finds that has just started."""
    return CheckpointFile(path).load()


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Lets this process write files of so many bytes and no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@given(st.lists(states, max_size=8))
def test_what_was_stored_last_is_there(stored: list[Checkpoint]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.jsonl")
        _store(path, *stored)
        assert _loaded(path) == (stored[-1] if stored else None)


def test_what_another_process_wrote_is_seen(path: Path) -> None:
    ours, theirs = CheckpointFile(path), CheckpointFile(path)
    assert ours.load() is None
    for state in (EMPTY, ONE, EMPTY):
        theirs.load()
        theirs.store(state)
        assert ours.load() == state
    ours.store(ONE)
    assert theirs.load() == ONE


def test_one_claim_more_or_less_is_a_line_more(path: Path) -> None:
    _store(path, EMPTY)
    begun = path.stat().st_ino
    for lines, state in enumerate((ONE, EMPTY, ONE), start=2):
        _store(path, state)
        assert path.stat().st_ino == begun
        assert path.read_bytes().count(b"\n") == lines


def test_a_process_adds_to_the_file_that_it_has_replaced(path: Path) -> None:
    file = CheckpointFile(path)
    file.load()
    file.store(EMPTY)
    begun = path.stat().st_ino
    file.load()
    file.store(ONE)
    assert path.stat().st_ino == begun
    assert _loaded(path) == ONE


def test_it_does_not_grow_without_end(path: Path) -> None:
    _store(path, EMPTY, *[ONE, EMPTY] * CHANGES_KEPT)
    assert path.read_bytes().count(b"\n") <= CHANGES_KEPT + 1
    assert _loaded(path) == EMPTY


def test_a_line_that_was_cut_off_is_not_written_on(path: Path) -> None:
    _store(path, ONE)
    with path.open("ab") as file:
        file.write(b'{"gone":"')
    _store(path, EMPTY)
    assert path.read_bytes() == render_checkpoint(EMPTY)


def test_a_change_that_is_not_on_disk_is_not_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(path, ONE)
    file = CheckpointFile(path)
    file.load()

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        file.store(EMPTY)
    assert file.load() == _loaded(path) == ONE


def test_a_disk_that_takes_half_of_a_change_has_none_of_it(path: Path) -> None:
    _store(path, ONE)
    file = CheckpointFile(path)
    file.load()
    with _largest_file(path.stat().st_size + 5), pytest.raises(OSError, match="File too large"):
        file.store(EMPTY)
    assert path.read_bytes() == render_checkpoint(ONE)
    file.load()
    file.store(EMPTY)
    assert _loaded(path) == EMPTY


def test_what_a_killed_process_wrote_is_put_on_disk_before_it_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(path, ONE)
    synced: list[str] = []
    fsync = os.fsync

    def heard(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", heard)
    file = CheckpointFile(path)
    file.load()
    assert synced == [str(path), str(path.parent)]
    file.load()
    assert len(synced) == 2


def test_a_copy_is_kept_once(path: Path) -> None:
    path.write_bytes(b"\0")
    file = CheckpointFile(path)
    assert file.keep_copy() == file.keep_copy()
    assert file.keep_copy().read_bytes() == b"\0"
    file.store(ONE)
    assert file.keep_copy().read_bytes() == render_checkpoint(ONE)
    assert UID.encode() in path.read_bytes()


def test_a_file_of_another_form_is_refused_with_its_path(path: Path) -> None:
    path.write_bytes(b'{"version":2}\n')
    file = CheckpointFile(path)
    for read in (file.check_form, file.load):
        with pytest.raises(CheckpointFormError, match=f"^checkpoint {path}: line 1 has 2 in field"):
            read()


@pytest.mark.parametrize("content", [None, b"", b"{", render_checkpoint(ONE)])
def test_the_form_of_a_missing_a_damaged_and_a_present_file_is_not_refused(
    path: Path, content: bytes | None
) -> None:
    if content is not None:
        path.write_bytes(content)
    CheckpointFile(path).check_form()
