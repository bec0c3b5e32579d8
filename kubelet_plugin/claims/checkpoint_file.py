"""The checkpoint's file: durable when a call returns, and consistent if the plugin is killed.

A change appends one line, which takes half as long as replacing the file and does not take longer
when there are many claims. After many changes, and whenever more than one claim changes, the file
is replaced: temporary file, fsync, rename, fsync of the folder. During a rolling update, several
plugin processes share the file, protected by the node's lock in `kubelet_plugin.claims.lock`.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from carina_dra.durable_file import sync_file, sync_folder
from kubelet_plugin.claims.checkpoint import (
    Change,
    Checkpoint,
    CheckpointError,
    CheckpointFormError,
    change,
    check_form,
    parse_checkpoint,
    render_change,
    render_checkpoint,
)

CHANGES_KEPT: Final = 200
"""Number of changes after which the file is replaced by the resulting state."""


@dataclass(frozen=True, slots=True)
class _Stamp:
    """Attributes that change if the file is replaced or extended."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "_Stamp":
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)


@dataclass(frozen=True, slots=True)
class _Known:
    """The file as this process last read or wrote it."""

    stamp: _Stamp
    checkpoint: Checkpoint
    changes: int
    whole: bool
    """Whether the last line ends with a newline."""


class CheckpointFile:
    """The checkpoint's file. The caller of each method must hold the node's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}.tmp")
        self._known: _Known | None = None

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._path

    def check_form(self) -> None:
        """Checks that the file, if there is one, has a form that this plugin knows.

        Needs no lock, because no process changes a file's first line in place.

        Raises:
            CheckpointFormError: it has another form; names the file, the field and the remedy.
        """
        first_line = b""
        # OSError is reported by the calls that need the file.
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            first_line = file.readline()
        with self._named():
            check_form(first_line)

    def load(self) -> Checkpoint | None:
        """Returns the checkpoint on disk; None if there is no file yet.

        Raises:
            CheckpointError: the content is damaged.
            CheckpointFormError: the content has another form; the file must be left as it is.
            OSError: the file cannot be read, or cannot be synced to disk.
        """
        known, self._known = self._known, None
        try:
            stamp = _Stamp.of(self._path.stat())
        except FileNotFoundError:
            return None
        if known is None or known.stamp != stamp:
            known = self._read(stamp)
            # Its writer may have been killed before it synced the file.
            sync_file(self._path)
            sync_folder(self._path.parent)
        self._known = known
        return known.checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint durably. Call `load` first, while holding the same lock.

        Raises:
            OSError: the checkpoint cannot be written; the file is unchanged.
        """
        known, self._known = self._known, None
        changed = None if known is None else change(known.checkpoint, checkpoint)
        if known is None or changed is None or not known.whole or known.changes >= CHANGES_KEPT:
            self._known = self._replace(checkpoint)
        else:
            stamp = self._append(changed, known.stamp.size)
            self._known = _Known(stamp, checkpoint, known.changes + 1, whole=True)

    def keep_copy(self) -> Path:
        """Keeps a copy of an unreadable file for inspection, and returns the copy's path.

        The name depends only on the file, so a repetition after a crash makes no second copy.
        """
        modified = self._path.stat().st_mtime_ns
        copy = self._path.with_name(f"{self._path.name}.unreadable-{modified}")
        try:
            copy.hardlink_to(self._path)
        except FileExistsError:
            pass
        except OSError:  # unsupported by the file system, or denied for a file of another user
            shutil.copyfile(self._path, self._temporary)
            sync_file(self._temporary)
            self._temporary.rename(copy)  # at once, or a kill could leave a part of it
        sync_folder(self._path.parent)
        return copy

    def _read(self, stamp: _Stamp) -> _Known:
        content = self._path.read_bytes()
        with self._named():
            checkpoint = parse_checkpoint(content)
        return _Known(stamp, checkpoint, content.count(b"\n") - 1, whole=content.endswith(b"\n"))

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Adds the path of the file to an error."""
        try:
            yield
        except (CheckpointError, CheckpointFormError) as error:
            raise type(error)(f"checkpoint {self._path}: {error}") from error

    def _append(self, changed: Change, size: int) -> _Stamp:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            with os.fdopen(descriptor, "ab", closefd=False) as file:
                file.write(render_change(changed))
            os.fdatasync(descriptor)
            return _Stamp.of(os.fstat(descriptor))
        except OSError:
            # A line that was not synced must not be read by the next attempt as a recorded change.
            os.truncate(descriptor, size)
            raise
        finally:
            os.close(descriptor)

    def _replace(self, checkpoint: Checkpoint) -> _Known:
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(render_checkpoint(checkpoint))
            os.fsync(descriptor)
            stamp = _Stamp.of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        self._temporary.rename(self._path)
        sync_folder(self._path.parent)
        return _Known(stamp, checkpoint, 0, whole=True)
