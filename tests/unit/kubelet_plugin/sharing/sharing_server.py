"""A stand-in for carina-sharing: what it was told, and whatever it is to answer."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from carina_dra.sharing.message import SharingReport, WantedShares

_FIRST: Final = SharingReport(generation=0, time=0.0)


class SharingServer:
    """Listens on a socket until it is closed; keeps what every client says."""

    def __init__(self, path: Path, *, reads: bool = True, first: SharingReport = _FIRST) -> None:
        """`first` is what it says to each client at first."""
        self.told: list[WantedShares] = []
        self.connections: list[socket.socket] = []
        self.accepted = 0
        """How many connections there were."""
        self._path = path
        self._reads = reads
        self._first = first
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with suppress(OSError):  # the client has ended it
                connection.sendall(self._first.line())
            self.connections.append(connection)
            self.accepted += 1
            if self._reads:
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            try:
                for line in lines:
                    self.told.append(WantedShares.parse(line))
            except OSError:
                return

    def say(self, content: SharingReport | bytes) -> None:
        """Sends a report, or anything else, to all clients."""
        line = content if isinstance(content, bytes) else content.line()
        for connection in tuple(self.connections):
            try:
                connection.sendall(line)
            except OSError:
                self.connections.remove(connection)
                connection.close()

    def drop(self) -> None:
        """Closes all connections."""
        for connection in self.connections:
            with suppress(OSError):  # the client has ended it
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self.connections.clear()

    def close(self) -> None:
        """Ends, as by a kill: its socket file stays."""
        with suppress(OSError):  # it is closed already
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop()
