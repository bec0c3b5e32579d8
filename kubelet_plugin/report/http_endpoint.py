"""What the plugin shows over HTTP: /metrics, /healthz and /readyz.

/healthz goes the way of the kubelet, through both real sockets, so that a plugin that the kubelet
could not reach is restarted. /readyz says whether slices are published and the kubelet knows us.
"""

import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from kubelet_plugin.kubelet.socket_probe import Probe

_log = logging.getLogger(__name__)


class HttpEndpoint:
    """Serves the three paths in threads of its own."""

    def __init__(
        self,
        address: str,
        *,
        metrics: Callable[[], bytes],
        content_type: str,
        healthy: Probe,
        ready: Probe,
    ) -> None:
        """Binds `address`, HOST:PORT; port 0 takes a free one.

        Raises:
            OSError: the address cannot be bound.
        """
        host, _, port = address.rpartition(":")
        probes = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(HTTPStatus.OK, content_type, metrics())
                elif path in probes:
                    wrong = probes[path]()
                    status = HTTPStatus.OK if wrong is None else HTTPStatus.SERVICE_UNAVAILABLE
                    self._answer(status, "text/plain; charset=utf-8", (wrong or "ok").encode())
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /healthz /readyz")

            def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                _log.debug("http", extra={"request": format % args})

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            daemon_threads = True

        self._server = Server((host.strip("[]"), int(port)), Handler)
        self._thread = Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serves from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
