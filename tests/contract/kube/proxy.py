"""A TCP proxy that can cut its connections, refuse new ones, or fall silent."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Forwards a port of its own on loopback to the host and port of a URL."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        assert target.hostname
        assert target.port
        self._target = (target.hostname, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._refusing = False
        self._silent = threading.Event()
        self.accepted = 0
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def cut(self) -> None:
        """Ends every connection that is open."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Ends every connection, and every new one at once: the API server is down."""
        self._refusing = True
        self.cut()

    def fall_silent(self) -> None:
        """Takes connections and requests, and forwards nothing: the network swallows it all."""
        self._silent.set()

    def recover(self) -> None:
        """Works again. What was swallowed stays so: those connections are cut."""
        self._refusing = False
        if self._silent.is_set():
            self._silent.clear()
            self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            with self._lock:  # refused, or to be cut from now on; only then counted
                refused = self._refusing or self._closed
                self._open |= set() if refused else {client, server}
                self.accepted += 1
            if refused:
                client.close()
                server.close()
                continue
            self._threads.append(
                threading.Thread(target=self._serve, args=(client, server), name="proxy")
            )
            self._threads[-1].start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(server, client), name="proxy")
        back.start()
        self._pump(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                if not self._silent.is_set():
                    sink.sendall(content)
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
