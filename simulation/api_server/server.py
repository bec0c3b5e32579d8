"""Serves the embedded API over plain HTTP on loopback, with one thread per connection."""

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self, assert_never
from urllib.parse import parse_qsl, urlsplit

import yaml

from carina_dra.kube.connection import Connection
from simulation.api_server.api import Answer, Api, Stream, Text
from simulation.api_server.route import Request


class ApiServer:
    """Serves an API on a port of the loopback interface; 0 takes one that is free.

    After a stop it can be started again, on the same port and with the same objects.
    """

    def __init__(self, api: Api | None = None, *, port: int = 0) -> None:
        self.api = api or Api()
        self._port = port
        self._http: _HttpServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def connection(self) -> Connection:
        """How a client connects to it."""
        return Connection(self.url)

    def write_kubeconfig(self, path: Path) -> None:
        """Writes a kubeconfig file for kubectl and other clients."""
        name = "embedded"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    def start(self) -> None:
        """Starts to serve."""
        self._http = _HttpServer(self._port, self.api)
        self._port = self._http.server_port
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="api-server"
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops to serve, and cuts every connection."""
        if self._http is None or self._thread is None:
            return
        self._http.shutdown()
        self._http.server_close()
        self._http.cut_connections()
        self.api.end_streams()
        self._thread.join()
        self._http = self._thread = None


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, api: Api) -> None:
        self.api = api
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def cut_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):  # the client has closed it
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # each answer leaves in one piece
    server: _HttpServer
    connection: socket.socket

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # the client is gone
            super().handle()

    def finish(self) -> None:
        self.server.closed(self.connection)
        with suppress(ConnectionError):  # the client is gone, and the answer cannot be flushed
            super().finish()
        self.rfile.close()

    def _respond(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=url.path,
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            content=self.rfile.read(length),
        )
        response = self.server.api.handle(request)
        match response:
            case Answer(code, body, retry_after):
                content = json.dumps(body, separators=(",", ":")).encode()
                headers = {"Retry-After": str(retry_after)} if retry_after else {}
                self._send(code, "application/json", content, headers)
            case Text(text, code):
                self._send(code, "text/plain", text.encode(), {})
            case Stream():
                self._send_stream(response)
            case _:
                assert_never(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _respond  # noqa: N815 - http.server's names

    def _send(self, code: int, content_type: str, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _send_stream(self, stream: Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in stream.lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
        """Logs nothing; `Api(on_request=...)` observes requests."""
