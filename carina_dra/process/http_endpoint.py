"""The HTTP endpoint of a process: /metrics, /healthz and /readyz.

/healthz tells the kubelet whether to restart the process; /readyz, whether it does its work.

Every pod of the cluster can connect, so the cost of clients is bounded. One thread serves all
connections. Their number is limited, and each has a deadline that covers it from accept to close.
When the limit is reached, a new connection replaces the oldest unfinished one, so that idle and
slow clients cannot block a probe. Requests for a path that arrive while its answer is computed
share that answer, so that there are no more worker threads than paths.
"""

import asyncio
import logging
import math
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from threading import Thread
from typing import Final, TypeAlias

Probe: TypeAlias = Callable[[], str | None]
"""Returns None on success, else the problem."""

_CONNECTIONS: Final = 128
_DEADLINE: Final = 15.0
"""Seconds. A probe takes at most 10, and the kubelet waits for 15 (deploy/)."""
_HEAD_BYTES: Final = 8192
"""Bytes of a request line and headers; the kubelet and Prometheus send a few hundred."""
_BACKLOG: Final = 1024
_ACCEPT_PAUSE: Final = 1.0
"""Seconds without accepting after the system failed to, for example for lack of descriptors."""
_WARNING_INTERVAL: Final = 60.0
"""Seconds between two warnings that connections are dropped."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""A value of SO_LINGER. The kernel then frees the unsent data of a closed connection at once.
Accepted connections inherit it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content_type: str
    body: bytes

    def encode(self) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + self.body


_Page: TypeAlias = Callable[[], _Answer]


class HttpEndpoint:
    """An HTTP server of the three paths, in a thread of its own."""

    def __init__(
        self,
        address: str,
        *,
        metrics: Callable[[], bytes],
        content_type: str,
        healthy: Probe,
        ready: Probe,
        connections: int = _CONNECTIONS,
        deadline: float = _DEADLINE,
    ) -> None:
        """Binds `address`, HOST:PORT. Port 0 selects a free port; host [::] serves IPv4 too.

        At most `connections` are open at a time, each for at most `deadline` seconds.

        Raises:
            OSError: the address cannot be bound.
        """
        self._pages: dict[str, _Page] = {
            "/metrics": lambda: _Answer(HTTPStatus.OK, content_type, metrics()),
            "/healthz": lambda: _probe_answer(healthy()),
            "/readyz": lambda: _probe_answer(ready()),
        }
        self._limit = connections
        self._deadline = deadline
        self._listener = _listen(address)
        self._workers = ThreadPoolExecutor(len(self._pages), thread_name_prefix="http-answer")
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._serve, name="http", daemon=True)

        # Used by the endpoint's thread only; connections are in the order of their arrival:
        self._open: dict[asyncio.Task[None], socket.socket] = {}
        self._unread: dict[asyncio.Task[None], socket.socket] = {}
        self._computing: dict[str, asyncio.Future[_Answer]] = {}
        self._dropped = 0
        self._warned_at = -math.inf

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Starts serving."""
        self._thread.start()

    def stop(self) -> None:
        """Closes all connections and stops serving."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        self._loop.run_forever()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if tasks := tuple(self._open):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._workers.shutdown(wait=False)
        self._loop.close()

    def _accept(self) -> None:
        """Accepts one connection, so that open ones are served before the next."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the client has disconnected
            return
        except OSError as error:
            _log.warning("HTTP connections cannot be accepted", extra={"error": str(error)})
            self._loop.remove_reader(self._listener)
            self._loop.call_later(
                _ACCEPT_PAUSE, self._loop.add_reader, self._listener, self._accept
            )
            return
        connection.settimeout(0)
        if len(self._open) >= self._limit:
            self._drop()
        task = self._loop.create_task(self._serve_connection(connection))
        self._open[task] = self._unread[task] = connection
        task.add_done_callback(partial(self._close, connection))

    def _drop(self) -> None:
        """Drops the oldest connection without a complete request, or else the oldest."""
        task, connection = next(iter((self._unread or self._open).items()))
        self._dropped += 1
        if self._loop.time() - self._warned_at >= _WARNING_INTERVAL:
            _log.warning(
                "too many HTTP connections: dropping the oldest unfinished ones",
                extra={"limit": self._limit, "dropped": self._dropped, "client": _peer(connection)},
            )
            self._warned_at, self._dropped = self._loop.time(), 0
        self._forget(task)
        task.cancel()

    def _close(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._forget(task)
        connection.close()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._unread.pop(task, None)
        self._open.pop(task, None)

    async def _serve_connection(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                head = await self._read_head(connection)
                answer = await self._answer(head)
                await self._loop.sock_sendall(connection, answer.encode())
                connection.shutdown(socket.SHUT_WR)
                while await self._loop.sock_recv(connection, _HEAD_BYTES):
                    pass  # wait for the client to close: closing first could discard the answer
        except OSError as error:
            _log.debug("HTTP connection failed", extra={"error": repr(error)})
        except Exception:  # noqa: BLE001 - a defect must not affect other connections
            _log.exception("HTTP connection failed")

    async def _read_head(self, connection: socket.socket) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
            received = await self._loop.sock_recv(connection, _HEAD_BYTES - len(head))
            if not received:
                raise ConnectionAbortedError(
                    "the client closed the connection before its request was complete"
                )
            head += received
        task = asyncio.current_task()
        if task is not None:
            self._unread.pop(task, None)
        return head

    async def _answer(self, head: bytes) -> _Answer:
        path = _requested_path(head)
        if isinstance(path, HTTPStatus):
            return _text(path, path.description)
        if path not in self._pages:
            return _text(HTTPStatus.NOT_FOUND, " ".join(self._pages))
        if path not in self._computing:
            computing = self._loop.run_in_executor(self._workers, _computed, self._pages[path])
            self._computing[path] = computing
            computing.add_done_callback(lambda _: self._computing.pop(path))
        return await asyncio.shield(self._computing[path])


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    dual_stack = host == "::" and socket.has_dualstack_ipv6()
    if host == "::" and not dual_stack:
        host = "0.0.0.0"  # noqa: S104 - all addresses were requested, and the kernel has no IPv6
    listener = socket.create_server(
        (host, int(port)),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        backlog=_BACKLOG,
        dualstack_ipv6=dual_stack,
    )
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    listener.settimeout(0)
    return listener


def _requested_path(head: bytes) -> str | HTTPStatus:
    """Returns the path of a GET request without its query, or the status of a refusal."""
    if b"\r\n\r\n" not in head:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    match head.partition(b"\r\n")[0].split(b" "):
        case [b"GET", target, b"HTTP/1.0" | b"HTTP/1.1"]:
            return target.partition(b"?")[0].decode("latin-1")
        case [_, _, b"HTTP/1.0" | b"HTTP/1.1"]:
            return HTTPStatus.METHOD_NOT_ALLOWED
        case _:
            return HTTPStatus.BAD_REQUEST


def _computed(page: _Page) -> _Answer:
    try:
        return page()
    except Exception:  # noqa: BLE001 - a defect must not affect other requests
        _log.exception("HTTP request failed")
        return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; see the log of this process")


def _probe_answer(problem: str | None) -> _Answer:
    if problem is None:
        return _text(HTTPStatus.OK, "ok")
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, problem)


def _text(status: HTTPStatus, text: str) -> _Answer:
    return _Answer(status, "text/plain; charset=utf-8", text.encode())


def _peer(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:  # the client has disconnected
        return "unknown"
