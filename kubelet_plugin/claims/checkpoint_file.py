"""The checkpoint's file: durable when a call returns, whole whenever the plugin is killed.

A change is one line added to the file, which takes a disk half as long as replacing the file, and
no longer where there are many claims. After many changes, and whenever more than one claim changes,
the file is replaced: temporary file, fsync, rename, fsync of the folder. During a rolling update
several plugin processes share the file, under the lock of `kubelet_plugin.claims.lock`.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubelet_plugin.claims.checkpoint import (
    Change,
    Checkpoint,
    CheckpointError,
    change,
    parse,
    render,
    render_change,
)

__all__ = ["CHANGES_KEPT", "CheckpointFile", "sync_folder"]

CHANGES_KEPT: Final = 200
"""Changes after which the file is replaced by the state that they lead to."""


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What differs once the file is another, or longer."""

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
    """Whether its last line has an end."""


class CheckpointFile:
    """The checkpoint's file. Every method is to be called with the node's lock held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}.tmp")
        self._known: _Known | None = None

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def load(self) -> Checkpoint | None:
        """Gives what is on disk, None where nothing is yet.

        Raises:
            CheckpointError: there is a file, and it cannot be read.
            OSError: it cannot be put on disk.
        """
        known, self._known = self._known, None
        try:
            stamp = _Stamp.of(self._path.stat())
        except FileNotFoundError:
            return None
        if known is None or known.stamp != stamp:
            known = self._read(stamp)
            # Whoever wrote it may have been killed before it was on disk.
            sync_file(self._path)
            sync_folder(self._path.parent)
        self._known = known
        return known.checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Makes it what `load` gives, durably. To be called after `load`, under the same lock.

        Raises:
            OSError: it cannot be written; what was there before still is.
        """
        known, self._known = self._known, None
        changed = None if known is None else change(known.checkpoint, checkpoint)
        if known is None or changed is None or not known.whole or known.changes >= CHANGES_KEPT:
            self._known = self._replace(checkpoint)
        else:
            stamp = self._append(changed, known.stamp.size)
            self._known = _Known(stamp, checkpoint, known.changes + 1, whole=True)

    def keep_copy(self) -> Path:
        """Gives an unreadable file a second name, for whoever looks into it, before it is replaced.

        The name follows from the file, so that being killed and starting over makes one copy.
        """
        modified = self._path.stat().st_mtime_ns
        copy = self._path.with_name(f"{self._path.name}.unreadable-{modified}")
        try:
            copy.hardlink_to(self._path)
        except FileExistsError:
            pass
        except OSError:  # refused by the file system, or by the kernel for a file of another user
            shutil.copyfile(self._path, copy)
            sync_file(copy)
        sync_folder(self._path.parent)
        return copy

    def _read(self, stamp: _Stamp) -> _Known:
        try:
            content = self._path.read_bytes()
            checkpoint = parse(content)
        except (OSError, CheckpointError) as error:
            raise CheckpointError(f"checkpoint {self._path}: {error}") from error
        return _Known(stamp, checkpoint, content.count(b"\n") - 1, whole=content.endswith(b"\n"))

    def _append(self, changed: Change, size: int) -> _Stamp:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            with os.fdopen(descriptor, "ab", closefd=False) as file:
                file.write(render_change(changed))
            os.fdatasync(descriptor)
            return _Stamp.of(os.fstat(descriptor))
        except OSError:
            # What the disk refused must not be found by the next try and taken for written.
            os.truncate(descriptor, size)
            raise
        finally:
            os.close(descriptor)

    def _replace(self, checkpoint: Checkpoint) -> _Known:
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(render(checkpoint))
            os.fsync(descriptor)
            stamp = _Stamp.of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        self._temporary.rename(self._path)
        sync_folder(self._path.parent)
        return _Known(stamp, checkpoint, 0, whole=True)


def sync_file(path: Path) -> None:
    """Puts a file's content on disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Puts a folder's entries on disk: without it a rename may be lost with the power."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
