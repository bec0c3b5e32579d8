"""A folder with a record in each file, durable, and read again only when something has changed.

A record is replaced atomically, so that a file is never changed in place, and several processes can
read the folder while another writes. A file that cannot be read is damaged: it is parsed and logged
once, counts as no record, and stays until its record is stored or removed.

Paths of files are strings, because pathlib interns each part of a path and would keep the name of
every claim in memory.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from carina_dra.durable_file import replace_file, sync_folder
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.prepare.resource import ResourceError

R = TypeVar("R")

_SUFFIX: Final = ".json"
_TEMPORARY: Final = ".new"
_TICK: Final = 50_000_000
"""Nanoseconds, more than the steps in which file systems note times, of 10 ms at most. A change in
the same step as the one before does not change the time of the folder."""

_log = logging.getLogger(__name__)


class DamagedRecordError(Exception):
    """The content of a file is not a record; the message says why."""


class _Stamp(NamedTuple):
    """What is different after a change of a file or folder."""

    inode: int
    size: int
    changed: int
    """Nanoseconds since 1970."""


_ABSENT: Final = _Stamp(0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Parsed(Generic[R]):
    stamp: _Stamp
    record: R | None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class _Listing(Generic[R]):
    stamp: _Stamp | None
    """None if the next change may leave it the same."""
    records: Mapping[str, R]
    damaged: frozenset[str]


class RecordFolder(Generic[R]):
    """The records of a folder, by name. Thread-safe. Methods raise ResourceError if it is unusable.

    What a name has no record of is None, not an error.
    """

    def __init__(
        self,
        folder: Path,
        parse: Callable[[bytes], R | None],
        *,
        subject: str,
        damage: str,
    ) -> None:
        """`parse` returns None for a record that counts no longer; it raises DamagedRecordError.

        `subject` names the records in errors, such as `the record of memory limits`; `damage` is
        the log's message for a damaged file, with what follows from it.
        """
        self._folder = folder
        self._parse = parse
        self._subject = subject
        self._damage = damage
        self._lock = threading.Lock()
        self._parsed: dict[str, _Parsed[R]] = {}
        self._listings: dict[str, _Listing[R]] = {}
        """By ending."""

    def names(self) -> frozenset[str]:
        """Returns the names of all files: also of damaged ones, and of those a kill left behind."""
        with self._usable():
            return frozenset(
                name.removesuffix(_TEMPORARY).removesuffix(_SUFFIX)
                for name in self._entries(_SUFFIX, _SUFFIX + _TEMPORARY)
            )

    def read(self, name: str) -> R | None:
        """Returns the record with this name; None if there is none that counts."""
        with self._usable(), self._lock:
            parsed = self._read(name)
        return None if parsed is None else parsed.record

    def is_damaged(self, name: str) -> bool:
        """Returns whether the file with this name cannot be read."""
        with self._usable(), self._lock:
            parsed = self._read(name)
        return parsed is not None and parsed.damaged

    def all(self, ending: str = "") -> Mapping[str, R]:
        """Returns the records that count and whose names end so, in the order of their names.

        It is the same object as long as they are the same.
        """
        with self._usable(), self._lock:
            return self._listed(ending).records

    def damaged(self, ending: str = "") -> frozenset[str]:
        """Returns the names that end so and whose files cannot be read."""
        with self._usable(), self._lock:
            return self._listed(ending).damaged

    def store(self, name: str, content: bytes) -> None:
        """Stores a record durably, in place of what the file had before."""
        file = self._file(name)
        with self._usable(), self._lock:
            self._parsed.pop(name, None)  # the new file may get the inode of an earlier one
            replace_file(file, content, temporary=file + _TEMPORARY)

    def remove(self, name: str) -> None:
        """Removes a file durably, if it exists, with what a kill left beside it."""
        file = self._file(name)
        with self._usable():
            for path in (file + _TEMPORARY, file):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            with contextlib.suppress(FileNotFoundError):
                sync_folder(self._folder)

    def set_aside(self, name: str) -> None:
        """Gives a file a name under which it is no record any more, for somebody to look at."""
        file = self._file(name)
        with self._usable():
            os.rename(file, f"{file}.unreadable-{os.stat(file).st_mtime_ns}")

    def _listed(self, ending: str) -> _Listing[R]:
        """Reads the files whose names end so, unless the folder is as it was. The lock is held."""
        now = time.time_ns()
        try:
            stamp = _stamp(os.stat(self._folder))
        except FileNotFoundError:
            stamp = _ABSENT
        before = self._listings.get(ending)
        if before is not None and before.stamp == stamp:
            return before
        entries = self._entries(ending + _SUFFIX)
        names = dict.fromkeys(sorted(entry.removesuffix(_SUFFIX) for entry in entries))
        self._parsed = {
            name: parsed
            for name, parsed in self._parsed.items()
            if name in names or not name.endswith(ending)
        }
        read = {name: parsed for name in names if (parsed := self._read(name)) is not None}
        records = {name: found.record for name, found in read.items() if found.record is not None}
        self._listings[ending] = _Listing(
            stamp if now - stamp.changed > _TICK else None,
            records if before is None or before.records != records else before.records,
            frozenset(name for name, found in read.items() if found.damaged),
        )
        return self._listings[ending]

    def _read(self, name: str) -> _Parsed[R] | None:
        """Reads a file, unless it is as it was; None if it does not exist. The lock is held."""
        file = self._file(name)
        try:
            stamp = _stamp(os.stat(file))
            before = self._parsed.get(name)
            if before is not None and before.stamp == stamp:
                return before
            with open(file, "rb") as stream:
                stamp = _stamp(os.fstat(stream.fileno()))
                content = stream.read()
        except FileNotFoundError:
            self._parsed.pop(name, None)
            return None
        try:
            parsed = _Parsed(stamp, self._parse(content))
        except DamagedRecordError as error:
            _log.warning(self._damage, extra={"file": file, "reason": f"it {error}"})
            parsed = _Parsed(stamp, None, damaged=True)
        self._parsed[name] = parsed
        return parsed

    def _entries(self, *endings: str) -> list[str]:
        """Returns the names of the files that end so; raises OSError."""
        try:
            with os.scandir(self._folder) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.name.endswith(endings) and entry.is_file()
                ]
        except FileNotFoundError:
            return []

    def _file(self, name: str) -> str:
        return f"{self._folder}/{name}{_SUFFIX}"

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                file_failure(
                    f"{self._subject} in {self._folder}",
                    "used",
                    error,
                    "check the folder and its disk",
                )
            ) from error


def _stamp(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
