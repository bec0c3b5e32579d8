"""Whether the plugin answers on its sockets: it is called there as the kubelet calls it.

The call is always the same, to prepare nothing, and so are its bytes. They are written down here
(RFC 9113 frames, RFC 7541 headers, gRPC over HTTP/2), since a gRPC client in each plugin would take
a megabyte of every node to send them. Asking for the plugin's info would look like a kubelet that
has just started; each socket serves all services.
"""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubelet_plugin.kubelet.dra_service import SUPPORTED_VERSIONS

__all__ = ["Probe", "socket_probe"]

Probe = Callable[[], str | None]
"""Gives None when all is well, else what is not."""

_TIMEOUT: Final = 5.0
"""Seconds for each step of a call."""
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def socket_probe(*paths: Path, timeout: float = _TIMEOUT) -> Probe:
    """Gives a probe that calls the plugin on each of the sockets, waiting so many seconds."""

    def probe() -> str | None:
        for path in paths:
            try:
                if not _answers(path, timeout):
                    return f"{path} does not answer: the call failed"
            except OSError as error:
                return f"{path} does not answer: {error}"
        return None

    return probe


def _answers(path: Path, timeout: float) -> bool:
    """Whether a message comes back, and not just an error's headers."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as frames:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(_CALL)
        while len(head := frames.read(9)) == 9:
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
            frames.read(int.from_bytes(head[:3]))
            if stream and kind == _DATA:
                return True
            if stream and flags & _END_STREAM:
                return False
        return False


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _header(name: str, value: str) -> bytes:
    """A literal that nobody has to remember, of texts of less than 127 bytes."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


_CALL: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(_SETTINGS, 0, 0)
    + _frame(
        _HEADERS,
        _END_HEADERS,
        1,
        _header(":method", "POST")
        + _header(":scheme", "http")
        + _header(
            ":path", f"/k8s.io.kubelet.pkg.apis.dra.{SUPPORTED_VERSIONS[0]}/NodePrepareResources"
        )
        + _header(":authority", "localhost")
        + _header("content-type", "application/grpc")
        + _header("te", "trailers"),
    )
    + _frame(_DATA, _END_STREAM, 1, bytes(5))  # an empty message, not compressed
)
