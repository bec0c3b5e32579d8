"""Whether the kubelet that registered the plugin still runs.

Without it no claim is prepared, although the plugin has done nothing wrong. The kubelet calls a
plugin when it registers it and for claims, so a long silence means nothing. But it listens itself,
on the socket of its pod-resources API below its root (KEP-606), which it makes again when it
starts.
"""

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, assert_never

_LISTENS_WITHIN: Final = 10.0
"""Seconds after which a kubelet that has registered a plugin listens on its own socket, too."""
_PATIENCE: Final = 1.0
_ABSENT: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED})


@dataclass(frozen=True, slots=True)
class Listening:
    """A process listens on the kubelet's socket."""

    inode: int
    since: float
    """When the socket was made, in seconds of the epoch."""


@dataclass(frozen=True, slots=True)
class NotListening:
    """The kubelet has made no socket yet, or has ended."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The folder of the socket is missing, or this process may not connect."""


KubeletState: TypeAlias = Listening | NotListening | CannotTell


@dataclass(frozen=True, slots=True)
class Registered:
    """The kubelet has registered the plugin."""

    by: KubeletState
    at: float
    """In seconds of the epoch."""


def absence(registered: Registered | None, now: KubeletState) -> str | None:
    """Returns why the kubelet does not know the plugin; None if it does, as far as can be told."""
    if registered is None:
        return "the kubelet has not registered the plugin yet"
    match now:
        case NotListening():
            return "the kubelet has registered the plugin, and does not run any more"
        case Listening() if now != registered.by and now.since > registered.at + _LISTENS_WITHIN:
            return "the kubelet has started again, and has not registered the plugin since"
        case Listening() | CannotTell():
            return None
    assert_never(now)


def kubelet_socket(kubelet_root: Path) -> Callable[[], KubeletState]:
    """Returns a look at the kubelet's socket."""
    path = kubelet_root / "pod-resources" / "kubelet.sock"

    def look() -> KubeletState:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_PATIENCE)
            try:
                connection.connect(str(path))
                found = path.stat()
            except OSError as error:
                absent = error.errno in _ABSENT and path.parent.is_dir()
                return NotListening() if absent else CannotTell()
        return Listening(found.st_ino, found.st_ctime)

    return look
