"""A folder of records: what is read of it, and when it is read again."""

import gc
import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubelet_plugin.prepare import record_folder
from kubelet_plugin.prepare.record_folder import DamagedRecordError, RecordFolder
from kubelet_plugin.prepare.resource import ResourceError

LONG_AGO = 10**18


class Word:
    """A word that can be told to be gone."""

    def __init__(self, content: bytes) -> None:
        self.content = content


class Folder:
    """A folder of words, which counts what is parsed of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parsed: list[bytes] = []
        self.records = RecordFolder(path, self._parse, subject="the words", damage="a bad word")

    def _parse(self, content: bytes) -> str | None:
        self.parsed.append(content)
        if content == b"damaged":
            raise DamagedRecordError("is no word")
        return content.decode() or None


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "words")


def change_long_ago(path: Path) -> None:
    """Makes the last change of a folder one that no later change can be mistaken for."""
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def test_what_is_stored_is_read(folder: Folder) -> None:
    folder.records.store("a", b"one")
    folder.records.store("b", b"")

    assert folder.records.read("a") == "one"
    assert folder.records.read("b") is None
    assert folder.records.all() == {"a": "one"}
    assert folder.records.names() == {"a", "b"}


@pytest.mark.parametrize("settled", [True, False], ids=["changed long ago", "just changed"])
def test_a_file_is_parsed_once_for_each_change(folder: Folder, *, settled: bool) -> None:
    folder.records.store("a", b"one")
    if settled:
        change_long_ago(folder.path)

    for _ in range(3):
        assert folder.records.all() == {"a": "one"}
        assert folder.records.read("a") == "one"

    assert folder.parsed == [b"one"]


def test_the_records_are_the_same_object_while_they_are_the_same(folder: Folder) -> None:
    folder.records.store("a", b"one")
    before = folder.records.all()
    folder.records.store("notes", b"")

    assert folder.records.all() is before
    folder.records.store("a", b"two")
    assert folder.records.all() is not before


@pytest.mark.parametrize(
    "change",
    [
        lambda other: other.store("a", b"two"),
        lambda other: other.remove("a"),
        lambda other: other.store("b", b"two"),
    ],
    ids=["replaced", "removed", "added"],
)
@pytest.mark.parametrize("settled", [True, False], ids=["changed long ago", "just changed"])
def test_what_another_process_changes_is_seen(
    folder: Folder, change: Callable[[RecordFolder[str]], None], *, settled: bool
) -> None:
    folder.records.store("a", b"one")
    if settled:
        change_long_ago(folder.path)
    assert folder.records.all() == {"a": "one"}

    change(Folder(folder.path).records)

    assert folder.records.all() == Folder(folder.path).records.all() != {"a": "one"}


def test_a_change_that_the_time_of_the_folder_does_not_show_is_seen(folder: Folder) -> None:
    """File systems note times in steps of milliseconds."""
    folder.records.store("a", b"one")
    folder.records.all()
    stamp = folder.path.stat()

    Folder(folder.path).records.store("a", b"two")  # its size stays the same, too
    os.utime(folder.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    assert folder.records.all() == {"a": "two"}


def test_an_own_change_is_seen_whatever_the_file_system_says_of_the_file(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file can have the inode, the size and the time of an earlier one."""
    monkeypatch.setattr(record_folder, "_stamp", lambda _: LONG_AGO)
    folder.records.store("a", b"one")
    assert folder.records.read("a") == "one"
    folder.records.store("a", b"two")
    assert folder.records.read("a") == "two"


@pytest.mark.parametrize(
    ("age", "listed"),
    [(10_000_000, 3), (100_000_000, 1)],
    ids=["a step of the file system ago", "ten steps ago"],
)
def test_a_folder_is_listed_again_only_while_the_next_change_may_not_show(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, age: int, listed: int
) -> None:
    folder.records.store("a", b"one")
    change_long_ago(folder.path)
    listings: list[object] = []

    def scandir(path: str) -> Any:
        listings.append(path)
        return entries(path)

    entries = os.scandir
    monkeypatch.setattr("os.scandir", scandir)
    monkeypatch.setattr("time.time_ns", lambda: LONG_AGO + age)

    for _ in range(3):
        assert folder.records.all() == {"a": "one"}
    assert len(listings) == listed


def test_a_damaged_file_is_parsed_and_logged_once(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.records.store("a", b"damaged")
    folder.records.store("b", b"one")

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert folder.records.read("a") is None
            assert folder.records.is_damaged("a")
            assert folder.records.all() == {"b": "one"}
            assert folder.records.damaged() == {"a"}

    assert folder.parsed.count(b"damaged") == 1
    (logged,) = caplog.records
    assert (logged.message, logged.__dict__["file"]) == ("a bad word", f"{folder.path}/a.json")


def test_a_file_that_is_set_aside_is_kept_and_is_no_record(folder: Folder) -> None:
    folder.records.store("a", b"damaged")
    folder.records.set_aside("a")

    assert folder.records.names() == frozenset()
    (kept,) = folder.path.iterdir()
    assert kept.read_bytes() == b"damaged"


def test_records_are_asked_for_by_the_end_of_their_names(folder: Folder) -> None:
    folder.records.store("a.gpu-1", b"one")
    folder.records.store("b.gpu-11", b"two")
    folder.records.store("c.gpu-1", b"damaged")

    assert folder.records.all(".gpu-1") == {"a.gpu-1": "one"}
    assert folder.records.damaged(".gpu-1") == {"c.gpu-1"}
    assert folder.records.all(".gpu-11") == {"b.gpu-11": "two"}
    assert folder.records.damaged(".gpu-11") == frozenset()


def test_records_are_in_the_order_of_their_names(folder: Folder) -> None:
    names = ["a", "a-b", *"bcdefghijk"]
    for name in (*names[::2], *names[1::2]):
        folder.records.store(name, name.encode())

    assert list(folder.records.all().values()) == names


def test_removed_records_are_forgotten(folder: Folder) -> None:
    folder.records.store("a", b"one")
    folder.records.all()
    folder.records.remove("a")

    assert folder.records.all() == {}
    assert folder.records.read("a") is None


@pytest.mark.parametrize(
    "look", [lambda records: records.read("a"), lambda records: records.all()], ids=["read", "all"]
)
def test_what_another_process_has_removed_is_not_kept_in_memory(
    tmp_path: Path, look: Callable[[RecordFolder[Word]], object]
) -> None:
    records = RecordFolder(tmp_path, Word, subject="the words", damage="a bad word")
    records.store("a", b"one")
    kept = weakref.ref(records.read("a") or pytest.fail("it is not there"))

    Folder(tmp_path).records.remove("a")
    look(records)

    gc.collect()
    assert kept() is None


def test_a_folder_that_is_not_there_has_no_records(folder: Folder) -> None:
    assert folder.records.names() == frozenset()
    assert folder.records.all() == {}
    assert folder.records.read("a") is None
    folder.records.remove("a")


def test_a_folder_that_cannot_be_used_is_an_error_that_says_of_what(folder: Folder) -> None:
    """Else nothing would be recorded, and all that is on the node removed."""
    folder.path.write_text("")

    for act in (
        folder.records.names,
        folder.records.all,
        lambda: folder.records.read("a"),
        lambda: folder.records.store("a", b"one"),
        lambda: folder.records.remove("a"),
        lambda: folder.records.set_aside("a"),
        lambda: folder.records.is_damaged("a"),
        folder.records.damaged,
    ):
        with pytest.raises(ResourceError, match=f"the words in {folder.path}"):
            act()


def test_a_record_that_can_be_read_is_not_damaged(folder: Folder) -> None:
    folder.records.store("a", b"one")

    assert not folder.records.is_damaged("a")
    assert not folder.records.is_damaged("b")


def test_a_folder_with_the_name_of_a_record_is_none(folder: Folder) -> None:
    folder.records.store("a", b"one")
    (folder.path / "b.json").mkdir()

    assert folder.records.names() == {"a"}
    assert folder.records.all() == {"a": "one"}


def test_a_listing_does_not_make_others_be_parsed_again(folder: Folder) -> None:
    folder.records.store("a.gpu-1", b"one")
    folder.records.store("b.gpu-2", b"two")

    for _ in range(3):
        folder.records.all(".gpu-1")
        folder.records.all(".gpu-2")

    assert sorted(folder.parsed) == [b"one", b"two"]
