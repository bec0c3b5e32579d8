"""Temporary files of tests are in memory, where there is room: most of them are synchronized often.

A disk takes milliseconds for each fsync, and memory none. What has to be on a disk asks for
`disk_path` or makes a `disk_folder`.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM = 2 * 2**30
"""Bytes that have to be free: a container's 64 MiB are too few."""
_DISK = pytest.StashKey[str]()
_LINE = pytest.StashKey[str]()


@contextmanager
def disk_folder(config: pytest.Config) -> Iterator[Path]:
    """A temporary folder on a disk, if the machine's usual temporary folder is on one."""
    with tempfile.TemporaryDirectory(
        prefix="carina-", dir=config.stash[_DISK], ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture
def disk_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The test's temporary folder on a disk."""
    with disk_folder(request.config) as folder:
        yield folder


def pytest_configure(config: pytest.Config) -> None:
    """Puts temporary folders of this process into memory, unless the user says where they go.

    Programs that the tests start keep the machine's: some of them write gigabytes.
    """
    config.stash[_DISK] = tempfile.gettempdir()
    if config.option.basetemp or {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & os.environ.keys():
        config.stash[_LINE] = "where the environment says"
    elif why_not := _why_not():
        config.stash[_LINE] = f"in {tempfile.gettempdir()}, which is slower: {why_not}"
    else:
        tempfile.tempdir = str(_MEMORY)
        config.stash[_LINE] = f"in {_MEMORY}"


def pytest_report_header(config: pytest.Config) -> str:
    """Says where temporary files are."""
    return f"temporary files: {config.stash[_LINE]}"


def _why_not() -> str | None:
    """Why temporary files cannot be in memory; None if they can."""
    if not os.path.ismount(_MEMORY) or not os.access(_MEMORY, os.W_OK):
        return f"{_MEMORY} is not a file system that may be written"
    found = os.statvfs(_MEMORY)
    if found.f_flag & (os.ST_NOEXEC | os.ST_NODEV):
        return f"{_MEMORY} has no programs or devices"
    if found.f_bavail * found.f_frsize < _ROOM:
        return f"{_MEMORY} has less than {_ROOM >> 30} GiB free"
    return None
