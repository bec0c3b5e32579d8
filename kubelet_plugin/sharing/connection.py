"""A connection to carina-sharing: a Unix stream socket with a JSON object a line.

Nothing here waits: what cannot be sent at once ends the connection, since it is sent under the
lock of the claims, for which calls of the kubelet wait.
"""

import os
import socket
import struct
from pathlib import Path
from typing import Final, Self

from carina_dra.sharing.message import MOST_BYTES, MessageError, SharingReport, WantedShares

_CONNECT_SECONDS: Final = 1.0
_CHUNK: Final = 65536
_SO_SNDBUFFORCE: Final = 32
"""asm-generic/socket.h: a buffer beyond the limit of users, for CAP_NET_ADMIN. Python lacks it."""
_PEER: Final = struct.Struct("3i")
"""struct ucred of unix(7): process, user and group of who listens."""


class SharingGoneError(Exception):
    """There is no connection to carina-sharing, or no longer; the message says why."""


class SharingAbsentError(SharingGoneError):
    """carina-sharing does not run on the node."""


class SharingConnection:
    """One connection. Linear in what is read, however small its pieces are."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._begun: list[bytes] = []
        self._length = 0

    @classmethod
    def open(cls, path: Path) -> Self:
        """Connects.

        Raises:
            SharingGoneError: nobody listens, or another user than that of this process does.
        """
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(_CONNECT_SECONDS)
            _enlarge(connecting)
            connecting.connect(str(path))
            _refuse_others(connecting, path)
        except (FileNotFoundError, ConnectionRefusedError):
            connecting.close()
            raise SharingAbsentError(f"nobody listens on {path}") from None
        except OSError as error:
            connecting.close()
            raise SharingGoneError(f"{path} cannot be connected to: {error}") from error
        except SharingGoneError:
            connecting.close()
            raise
        connecting.settimeout(0)
        return cls(connecting)

    def fileno(self) -> int:
        """The descriptor, to wait until there is something to read."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def send(self, message: WantedShares) -> None:
        """Sends a message at once.

        Raises:
            SharingGoneError: the peer is gone, or does not read.
        """
        line = message.line()
        if len(line) > MOST_BYTES:
            raise SharingGoneError(f"the shares of the node come to {len(line)} bytes")
        try:
            sent = self._socket.send(line)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise SharingGoneError(f"it cannot be told: {error}") from error
        if sent < len(line):
            raise SharingGoneError("it does not read what it is told")

    def reports(self) -> tuple[SharingReport, ...]:
        """Returns the reports that have come; may be called when there is something to read.

        Raises:
            SharingGoneError: the peer is gone, or what it says is not a report.
        """
        try:
            read = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return ()
        except OSError as error:
            raise SharingGoneError(f"the connection broke: {error}") from error
        if not read:
            raise SharingGoneError("it has closed the connection")
        return tuple(self._parsed(line) for line in self._lines(read))

    def _lines(self, read: bytes) -> list[bytes]:
        *lines, rest = read.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._begun, lines[0]))
            self._begun = []
            self._length = 0
        self._begun.append(rest)
        self._length += len(rest)
        if self._length > MOST_BYTES:
            raise SharingGoneError(f"a line of it is longer than {MOST_BYTES} bytes")
        return lines

    def _parsed(self, line: bytes) -> SharingReport:
        try:
            return SharingReport.parse(line)
        except MessageError as error:
            raise SharingGoneError(f"what it says is not a report: {error}") from error


def _enlarge(connecting: socket.socket) -> None:
    """Gives it room for a whole message; without the permission, that of a few hundred shares."""
    try:
        connecting.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, MOST_BYTES)
    except PermissionError:
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)


def _refuse_others(connected: socket.socket, path: Path) -> None:
    peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, user, _ = _PEER.unpack(peer)
    if user != os.geteuid():
        raise SharingGoneError(f"the process that listens on {path} belongs to user {user}")
