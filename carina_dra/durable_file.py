"""Files that survive a power failure, and are never seen half written.

Paths of files are strings, because pathlib interns each part of a path and would keep the name of
every claim in memory.
"""

import os
from pathlib import Path


def replace_file(path: str, content: bytes, *, temporary: str) -> None:
    """Replaces a file, which everybody may read, or creates it and the folders above it.

    `temporary` is a path in the same folder; a killed process may leave this file. Raises OSError.
    """
    folder = path.rpartition("/")[0]
    try:
        descriptor = _create(temporary)
    except FileNotFoundError:
        make_folder(Path(folder))
        descriptor = _create(temporary)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        os.fchmod(descriptor, 0o644)  # regardless of the umask
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_folder(folder)


def make_folder(path: Path) -> None:
    """Creates a folder and those above it; raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def sync_file(path: Path | str) -> None:
    """Syncs a file's content to disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path | str) -> None:
    """Syncs a folder's entries to disk; otherwise a power failure can undo a rename."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)


def _sync(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
