"""Every change of the file system that this process makes, told before it is made.

A change is what the kernel sees as one: each write(2), cut in two so that half-written files are
among the states, and every open for writing, chmod, chown, mknod, rename, unlink, link, truncate,
fsync and fdatasync. Meant for child processes: it cannot be undone.
"""

import io
import os
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

_CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.chmod",
    "os.chown",
    "os.truncate",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def before_each_change(folders: Collection[Path], change: Callable[[], None]) -> None:
    """Has `change` called before each change of files in these folders, until the process ends."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if not (writes or event in _CHANGES):
            return
        by_descriptor = event == "os.chmod" and isinstance(arguments[0], int)
        if by_descriptor or any(str(folder) in str(arguments[0]) for folder in folders):
            change()

    class Halves(io.FileIO):
        """Writes what it is given in two pieces, each a change."""

        def write(self, content: Any) -> int:
            middle = len(content) // 2
            for piece in (content[:middle], content[middle:]):
                change()
                super().write(piece)
            return len(content)

    def writer(descriptor: int, mode: str, *, closefd: bool) -> BinaryIO:
        return cast("BinaryIO", io.BufferedWriter(Halves(descriptor, mode, closefd=closefd)))

    def counted(call: Callable[..., None], *arguments: Any) -> None:
        change()
        call(*arguments)

    # What Python tells no audit hook of.
    os.fdopen = cast("Any", writer)
    os.fsync = partial(counted, os.fsync)
    os.fdatasync = partial(counted, os.fdatasync)
    os.mknod = partial(counted, os.mknod)
    sys.addaudithook(audit)
