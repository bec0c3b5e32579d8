"""The folder of an MPS daemon, in the folder `mps` of the plugin's.

    ipc          a tmpfs with the sockets of daemon and servers; containers mount it
    log          a tmpfs with what daemon and servers write
    shm          a tmpfs, which is /dev/shm for the daemon and for containers
    daemon.json  what the daemon was started for

What containers can write, or have written, is in memory with a limit: it must not fill the node's
disk.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from carina_dra.process.node_settings import SOCKET_PATH_BYTES, fits_socket
from carina_dra.sharing.files import MPS_LOGS, MPS_PIPES, MPS_SHM
from carina_dra.sharing.message import WantedDaemon
from sharing.mps import mounts

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""Of a folder: the UID of a claim."""
_RECORD: Final = "daemon.json"
_LONGEST_SOCKET: Final = "control_privileged"
_PIPES: Final = "size=1m,nr_inodes=256,mode=0700"
_SHM: Final = "size=64m,nr_inodes=16k,mode=1777"
"""As many files as pages: an empty one takes memory of the kernel, too."""
_LOGS: Final = "size=8m,nr_inodes=64,mode=0700"
"""A daemon writes lines for each client that connects."""
_LOGGED: Final = 2000
"""Bytes of the end of a log that a message may show."""


def is_name(uid: str) -> bool:
    """Whether a folder can have this name."""
    return _NAME.fullmatch(uid) is not None


def names(top: Path) -> Iterator[str]:
    """Yields the UIDs of all claims with a folder in `top`. Raises OSError."""
    with suppress(FileNotFoundError):
        yield from (path.name for path in top.iterdir() if is_name(path.name) and path.is_dir())


class DaemonFolder:
    """The folder of the daemon of a claim."""

    def __init__(self, top: Path, uid: str) -> None:
        self.path = top / uid
        self.pipes = self.path / MPS_PIPES
        self.logs = self.path / MPS_LOGS
        self.shm = self.path / MPS_SHM

    def problem(self) -> str | None:
        """Returns why no daemon can use it, and the remedy; None if one can."""
        socket = self.pipes / _LONGEST_SOCKET
        if fits_socket(socket):
            return None
        return (
            f"kubelet_root and driver_name make the socket path {socket}, longer than the "
            f"{SOCKET_PATH_BYTES} bytes that Linux allows; shorten one of them"
        )

    def make(self, wanted: WantedDaemon) -> None:
        """Makes it for a daemon that is to be started, whose limits are not set yet.

        Until `open`, no client reaches its pipes, unless it may pass all permissions. What
        containers have in `shm` stays. Raises OSError.
        """
        for folder in (self.pipes, self.logs, self.shm):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts.mount_tmpfs(self.pipes, _PIPES)
        mounts.mount_tmpfs(self.shm, _SHM)
        mounts.mount_tmpfs(self.logs, _LOGS)
        self.pipes.chmod(0o700)
        for content in (*self.pipes.iterdir(), *self.logs.iterdir()):
            if content.is_dir() and not content.is_symlink():
                shutil.rmtree(content)
            else:
                content.unlink()
        new = self.path / f"{_RECORD}.new"
        new.write_text(wanted.model_dump_json())
        new.replace(self.path / _RECORD)

    def unmounted(self) -> Path | None:
        """Returns a folder whose mount is gone; None if all are there."""
        return next((at for at in (self.pipes, self.shm) if not at.is_mount()), None)

    def is_open(self) -> bool:
        """Whether clients of every user reach the pipes. Raises OSError."""
        return bool(self.pipes.stat().st_mode & 0o005) and self.pipes.is_mount()

    def open(self) -> None:
        """Lets clients reach the pipes. Raises OSError."""
        self.pipes.chmod(0o755)

    def recorded(self) -> WantedDaemon | None:
        """Returns what the last daemon was started for; None if that cannot be read."""
        try:
            return WantedDaemon.model_validate_json((self.path / _RECORD).read_bytes())
        except (OSError, ValueError):
            return None

    def last_words(self) -> str:
        """Returns the end of what the daemon has written, in a line."""
        words = b""
        for name in ("output", "control.log"):
            with suppress(OSError), (self.logs / name).open("rb") as log:
                log.seek(max(log.seek(0, 2) - _LOGGED, 0))
                words += log.read(_LOGGED) + b" "
        return " ".join(words.decode(errors="replace").split())[-300:]

    def remove(self) -> None:
        """Removes it with its mounts. Raises OSError."""
        for folder in (self.pipes, self.shm, self.logs):
            mounts.unmount(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)
