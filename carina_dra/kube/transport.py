"""HTTP to one API server: one request with its answer, or one stream.

No other module uses urllib3. Its errors, and HTTP statuses, become `ApiError`s here. A transport is
thread-safe; its connections are kept alive and pooled.
"""

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from carina_dra.kube import errors
from carina_dra.kube.connection import (
    ClientCertificate,
    Connection,
    SystemTrust,
    Tls,
    TrustAnyone,
    TrustFile,
)
from carina_dra.kube.errors import ApiOperation, Unreachable

Query: TypeAlias = Mapping[str, str]

_POOL_SIZE = 16

_SOCKET_OPTIONS: list[tuple[int, int, int]] = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
if sys.platform == "linux":
    # A peer that vanishes silently is noticed within a minute, not after hours.
    _SOCKET_OPTIONS += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
    ]


class Transport:
    """HTTP requests to the API server of a connection, authenticated."""

    def __init__(self, connection: Connection, *, user_agent: str) -> None:
        self._server = connection.server
        self._credentials = connection.credentials
        self._user_agent = user_agent
        self._pool = _pool(connection)
        # A proxy needs the whole URL, except through a TLS tunnel.
        plain_proxy = connection.proxy and connection.server.startswith("http:")
        self._base = connection.server if plain_proxy else urlsplit(connection.server).path

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.close()

    def request(
        self,
        operation: ApiOperation,
        method: str,
        path: str,
        *,
        query: Query,
        timeout: float,
        content: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The content of a successful answer.

        timeout: seconds to connect, and for each wait for the server after that.

        Raises:
            ApiError: there is no answer, or an unsuccessful one.
        """
        response = self._send(
            operation,
            method,
            self._url(path, query),
            content=content,
            content_type=content_type,
            timeout=urllib3.Timeout(connect=timeout, read=timeout),
            preload=True,
        )
        return response.data

    def stream(
        self, operation: ApiOperation, path: str, *, query: Query, timeout: float, silence: float
    ) -> "Stream":
        """The answer to a GET, as it arrives.

        timeout: seconds to connect.
        silence: seconds without a byte after which the stream ends with Unreachable.

        Raises:
            ApiError: there is no answer, or an unsuccessful one.
        """
        response = self._send(
            operation,
            "GET",
            self._url(path, query),
            content=None,
            content_type="",
            timeout=urllib3.Timeout(connect=timeout, read=silence),
            preload=False,
        )
        return Stream(operation, response)

    def _url(self, path: str, query: Query) -> str:
        return f"{self._base}{path}?{urlencode(query)}" if query else f"{self._base}{path}"

    def _send(
        self,
        operation: ApiOperation,
        method: str,
        url: str,
        *,
        content: bytes | None,
        content_type: str,
        timeout: urllib3.Timeout,
        preload: bool,
    ) -> urllib3.BaseHTTPResponse:
        def attempt() -> urllib3.BaseHTTPResponse:
            return self._pool.urlopen(
                method,
                url,
                body=content,
                headers=self._headers(content_type if content is not None else ""),
                timeout=timeout,
                preload_content=preload,
                retries=False,
                redirect=False,
                assert_same_host=False,
            )

        try:
            try:
                response = attempt()
            except ProtocolError:
                # The server may close a kept-alive connection just as it is used again.
                if method != "GET":
                    raise
                response = attempt()
            if response.status == 401 and self._credentials.renew():
                response.drain_conn()
                response = attempt()
            if response.status >= 300:
                raise errors.from_response(
                    operation,
                    response.status,
                    response.data,
                    response.headers.get("Retry-After", ""),
                )
        except HTTPError as error:
            raise Unreachable(operation, f"{self._server}: {error}") from error
        return response

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if content_type:
            headers["Content-Type"] = content_type
        authorization = self._credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers


class Stream:
    """The lines of an answer, as they arrive.

    One thread reads and closes it. Any thread may `interrupt` it: the reader then sees the end of
    the stream.
    """

    def __init__(self, operation: ApiOperation, response: urllib3.BaseHTTPResponse) -> None:
        self._operation = operation
        self._response = response
        self._interrupted = False

    def lines(self) -> Iterator[bytes]:
        """Each line once it is complete. Raises Unreachable if the connection breaks."""
        try:
            yield from split_lines(self._response.stream(65536))
        except HTTPError as error:
            if not self._interrupted:
                raise Unreachable(self._operation, f"the stream broke: {error}") from error

    def content(self, most_bytes: int, seconds: float) -> bytes:
        """All of it, if it comes within `seconds`, however small its pieces are.

        Raises Unreachable if it does not, or the connection breaks, ServerError if it has more than
        `most_bytes`.
        """
        found = bytearray()
        end = time.monotonic() + seconds
        try:
            while chunk := self._response.read1(65536):
                found += chunk
                if time.monotonic() > end:
                    raise Unreachable(
                        self._operation, f"the answer takes longer than {seconds:g} s"
                    )
                if len(found) > most_bytes:
                    raise errors.ServerError(
                        self._operation, f"the answer has more than {most_bytes} bytes"
                    )
        except HTTPError as error:
            raise Unreachable(self._operation, f"the stream broke: {error}") from error
        return bytes(found)

    def interrupt(self) -> None:
        """Ends the stream at once, from any thread. Has no effect once it has ended."""
        self._interrupted = True
        with suppress(RuntimeError, ValueError, OSError):  # it has already ended
            self._response.shutdown()

    def close(self) -> None:
        """Closes the connection. Only the reading thread may call this."""
        self._response.close()


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines in chunks of bytes, without line ends; a last line without an end is dropped.

    Takes linear time, however small the chunks of a long line are.
    """
    pending: list[bytes] = []
    for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        pending.append(head)
        for piece in rest:
            yield b"".join(pending)
            pending = [piece]


def _pool(connection: Connection) -> urllib3.HTTPConnectionPool:
    """The pool of connections to the server; used directly, since its manager is slower."""
    options: dict[str, Any] = {
        "maxsize": _POOL_SIZE,
        "block": False,
        "socket_options": _SOCKET_OPTIONS,
        **(_tls_options(connection.tls) if connection.server.startswith("https:") else {}),
    }
    manager = urllib3.PoolManager(**options)
    if connection.proxy:
        manager = urllib3.ProxyManager(connection.proxy, **options)
    return manager.connection_from_url(connection.server)


def _tls_options(tls: Tls) -> dict[str, object]:
    """The options of urllib3: paths, not contexts, so that a new connection reads rotated files."""
    options: dict[str, object] = {"cert_reqs": "CERT_REQUIRED"}
    match tls.trust:
        case TrustFile(path):
            options["ca_certs"] = str(path)
        case TrustAnyone():
            options["cert_reqs"] = "CERT_NONE"
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        case SystemTrust():
            pass
    match tls.client_certificate:
        case ClientCertificate(certificate, key):
            options |= {"cert_file": str(certificate), "key_file": str(key)}
        case None:
            pass
    if tls.server_name:
        options |= {"server_hostname": tls.server_name, "assert_hostname": tls.server_name}
    return options
