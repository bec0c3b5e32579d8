"""The socket on which the kubelet plugin says what it wants watched, and is told what is seen.

One thread serves all connections. Each is told the latest report only: a reader that is slow misses
those in between, and one that has stopped is cut off.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from carina_dra.sharing.message import MOST_BYTES, MessageError, SharingReport, WantedShares

_CONNECTIONS: Final = 16
"""Several plugins during a rolling update, and commands that ask."""
_HEARTBEAT: Final = 5.0
"""Seconds after which the report is sent again."""
_WRITE_SECONDS: Final = 10.0
"""Seconds that a reader has for a report."""
_OVERTAKEN: Final = 5.0
"""Seconds in which a message may arrive after one that was sent later, on another connection."""
_END_SECONDS: Final = 2.0
"""Seconds that open connections have at the end, for a message that is being recorded."""
_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred: PID, UID, GID."""

_log = logging.getLogger(__name__)


class SocketServer:
    """A server at a path, in a thread of its own."""

    def __init__(
        self,
        path: Path,
        temporary: Path,
        *,
        want: Callable[[WantedShares], None],
        report: Callable[[], SharingReport],
        heartbeat: float = _HEARTBEAT,
        write_seconds: float = _WRITE_SECONDS,
    ) -> None:
        """Listens at `path`, in place of an earlier process; `temporary` is a path beside it.

        `want` is called with each message, in the order of their generations if several plugins
        send at once, and may block. Only root may connect.

        Raises:
            OSError: it cannot listen there.
        """
        self._path = path
        self._want = want
        self._report = report
        self._heartbeat = heartbeat
        self._write_seconds = write_seconds
        self._listener = _listen(path, temporary)
        self._inode = path.lstat().st_ino
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._serve, name="socket", daemon=True)

        # Used by the thread of the server only:
        self._in_order = asyncio.Lock()
        self._connections: dict[asyncio.Event, asyncio.StreamWriter] = {}
        """By the event that there may be news for it."""
        self._newest: tuple[int, float] | None = None
        """The generation of the last message that was passed on, and when it came."""

    def start(self) -> None:
        """Starts serving."""
        self._server = self._loop.run_until_complete(
            asyncio.start_unix_server(self._connected, sock=self._listener, limit=MOST_BYTES)
        )
        self._thread.start()

    def tell(self) -> None:
        """Sends the report to all. Any thread may call it."""
        with suppress(RuntimeError):  # the server has stopped
            self._loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Closes all connections and removes the socket, unless another process has its path."""
        with suppress(FileNotFoundError):
            if self._is_there():
                self._path.unlink()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def problem(self) -> str | None:
        """Returns why the plugin cannot connect; None if it can."""
        with suppress(OSError):
            if self._is_there():
                return None
        return f"{self._path} is not the socket of this process any more, which must start again"

    def _is_there(self) -> bool:
        return self._path.lstat().st_ino == self._inode

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._server.close()
        for writer in self._connections.values():
            writer.transport.abort()
        if tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))
        if late := asyncio.all_tasks(self._loop):
            for task in late:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(late))
        self._loop.close()

    def _wake(self) -> None:
        for news in self._connections:
            news.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = _peer(writer)
        problem = None
        if uid != os.geteuid():
            problem = f"it is of user {uid}, not of {os.geteuid()}"
        elif len(self._connections) >= _CONNECTIONS:
            problem = f"there are {_CONNECTIONS} connections"
        if problem is not None:
            _log.warning("a connection is refused", extra={"pid": pid, "problem": problem})
            writer.transport.abort()
            return
        news = asyncio.Event()
        news.set()
        self._connections[news] = writer
        sending = self._loop.create_task(self._send(writer, news, pid))
        try:
            await self._receive(reader, pid)
        finally:
            del self._connections[news]
            sending.cancel()
            writer.transport.abort()

    async def _receive(self, reader: asyncio.StreamReader, pid: int) -> None:
        """Reads messages until the other side closes the connection, or sends what is none."""
        while True:
            try:
                line = await reader.readuntil(b"\n")
                wanted = WantedShares.parse(line)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    _log.warning("a connection ended within a message", extra={"pid": pid})
                return
            except OSError as error:
                _log.info("a connection failed", extra={"pid": pid, "error": str(error)})
                return
            except asyncio.LimitOverrunError:
                problem = f"it is longer than {MOST_BYTES} bytes"
            except MessageError as error:
                problem = str(error)
            else:
                async with self._in_order:
                    if not self._is_overtaken(wanted):
                        await asyncio.to_thread(self._want, wanted)
                continue
            _log.error(
                "a message cannot be read; the connection is closed",
                extra={"pid": pid, "problem": problem},
            )
            return

    def _is_overtaken(self, wanted: WantedShares) -> bool:
        """Whether what another plugin has sent later has come before.

        Later it counts whatever its generation is: the clock of the plugin may have been set back.
        """
        now = self._loop.time()
        if self._newest is not None:
            generation, came = self._newest
            if wanted.generation < generation and now - came < _OVERTAKEN:
                return True
        self._newest = wanted.generation, now
        return False

    async def _send(self, writer: asyncio.StreamWriter, news: asyncio.Event, pid: int) -> None:
        while news in self._connections:  # a cancellation may be lost in `wait_for` of Python 3.11
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), self._heartbeat)
            news.clear()
            writer.write(self._report().line())
            try:
                await asyncio.wait_for(writer.drain(), self._write_seconds)
            except TimeoutError:
                _log.warning("a connection is closed: nobody reads it", extra={"pid": pid})
            except OSError:
                pass  # `_receive` says why
            else:
                continue
            writer.transport.abort()
            return


def _listen(path: Path, temporary: Path) -> socket.socket:
    """The socket takes its path when it has its permissions."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        temporary.unlink(missing_ok=True)
        listener.bind(str(temporary))
        temporary.chmod(0o600)
        listener.listen()
        temporary.replace(path)
    except OSError:
        listener.close()
        raise
    return listener


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """The PID and the UID of the other side."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
