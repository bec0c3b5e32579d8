"""The HTTP endpoint answers probes and scrapes, whatever other clients do."""

import logging
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from carina_dra.process.http_endpoint import HttpEndpoint
from tests.eventually import eventually

LIMIT = 8
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"


@contextmanager
def serving(
    address: str = "127.0.0.1:0",
    *,
    metrics: Callable[[], bytes] = lambda: b"gpus 8\n",
    healthy: Callable[[], str | None] = lambda: None,
    ready: Callable[[], str | None] = lambda: "not published yet",
    deadline: float = 30.0,
) -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint(
        address,
        metrics=metrics,
        content_type="text/metrics",
        healthy=healthy,
        ready=ready,
        connections=LIMIT,
        deadline=deadline,
    )
    endpoint.start()
    try:
        yield endpoint
    finally:
        endpoint.stop()


def connect(endpoint: HttpEndpoint, sent: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection((host, endpoint.port), timeout=10)
    connection.sendall(sent)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Returns the whole response, up to the end of the connection."""
    with connection, connection.makefile("rb") as received:
        return received.read()


def is_cut(connection: socket.socket) -> bool:
    """Whether the endpoint has reset the connection; reads nothing."""
    poll = select.poll()
    poll.register(connection, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def body(response: bytes) -> str:
    return response.partition(b"\r\n\r\n")[2].decode()


@pytest.mark.parametrize(
    ("request_line", "status", "text"),
    [
        ("GET /metrics HTTP/1.1", "200 OK", "gpus 8\n"),
        ("GET /metrics HTTP/1.0", "200 OK", "gpus 8\n"),
        ("GET /healthz?verbose HTTP/1.1", "200 OK", "ok"),
        ("GET /readyz HTTP/1.1", "503 Service Unavailable", "not published yet"),
        ("GET / HTTP/1.1", "404 Not Found", "/metrics /healthz /readyz"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed", "invalid for this resource"),
        ("GET /metrics", "400 Bad Request", "Bad request"),
        ("GET /metrics HTTP/2", "400 Bad Request", "Bad request"),
        ("\xff\x00", "400 Bad Request", "Bad request"),
        ("GET /" + "x" * 9000, "431 Request Header Fields Too Large", ""),
    ],
)
def test_requests_are_answered(request_line: str, status: str, text: str) -> None:
    with serving() as endpoint:
        response = answer(connect(endpoint, f"{request_line}\r\n\r\n".encode("latin-1")))
    assert response.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert text in body(response)


def test_an_answer_states_its_length_and_ends_the_connection() -> None:
    with serving() as endpoint:
        head, _, text = answer(connect(endpoint, METRICS)).partition(b"\r\n\r\n")
    assert text == b"gpus 8\n"
    assert head.split(b"\r\n")[1:] == [
        b"Content-Type: text/metrics",
        b"Content-Length: 7",
        b"Connection: close",
    ]


def test_a_request_may_come_in_pieces() -> None:
    with serving() as endpoint, connect(endpoint) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEALTHZ:
            connection.send(bytes([byte]))
        assert body(answer(connection)) == "ok"


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT"], ids=["idle", "half a request"])
def test_a_new_connection_replaces_the_oldest_unfinished_one(sent: bytes) -> None:
    threads = threading.active_count()
    with serving() as endpoint, ExitStack() as clients:
        unfinished = [clients.enter_context(connect(endpoint, sent)) for _ in range(5 * LIMIT)]
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
        eventually(lambda: sum(map(is_cut, unfinished)) >= 4 * LIMIT)
        cut = [is_cut(connection) for connection in unfinished]
        assert cut == sorted(cut, reverse=True)
        assert not cut[-1]
        assert threading.active_count() <= threads + 2


def test_a_request_being_answered_outlives_connections_that_sent_none() -> None:
    probed, go_on = threading.Event(), threading.Event()

    def healthy() -> None:
        probed.set()
        assert go_on.wait(10)

    with serving(healthy=healthy) as endpoint, ExitStack() as clients:
        probe = connect(endpoint, HEALTHZ)
        assert probed.wait(10)
        idle = [clients.enter_context(connect(endpoint)) for _ in range(3 * LIMIT)]
        eventually(lambda: is_cut(idle[0]))
        go_on.set()
        assert body(answer(probe)) == "ok"


def test_requests_for_a_path_share_the_answer_being_computed() -> None:
    probes: list[None] = []
    go_on = threading.Event()

    def healthy() -> None:
        probes.append(None)
        assert go_on.wait(10)

    with serving(healthy=healthy) as endpoint:
        clients = [connect(endpoint, HEALTHZ) for _ in range(LIMIT - 1)]
        assert body(answer(connect(endpoint, METRICS))) == "gpus 8\n"  # so they were all read
        go_on.set()
        assert [body(answer(client)) for client in clients] == ["ok"] * (LIMIT - 1)
        assert len(probes) == 1
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
        assert len(probes) == 2


def test_the_deadline_covers_the_whole_request() -> None:
    with serving(deadline=0.1) as endpoint, connect(endpoint) as connection:

        def drip() -> bool:
            connection.send(b"x")
            return False

        with pytest.raises(ConnectionError):
            eventually(drip)


def test_a_client_that_does_not_read_is_cut_at_the_deadline() -> None:
    with (
        serving(metrics=lambda: bytes(16 << 20), deadline=0.1) as endpoint,
        connect(endpoint, METRICS) as connection,
    ):
        eventually(lambda: is_cut(connection))


def test_a_client_that_does_not_close_is_cut_at_the_deadline() -> None:
    with serving(deadline=0.1) as endpoint, connect(endpoint, METRICS) as connection:
        eventually(lambda: is_cut(connection))


def test_a_reset_is_not_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    with serving(metrics=lambda: bytes(16 << 20)) as endpoint:
        for sent in (b"", b"GET", METRICS):
            with connect(endpoint, sent) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_a_failure_is_one_record_and_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def metrics() -> bytes:
        raise LookupError("no such gauge")

    with serving(metrics=metrics) as endpoint:
        response = answer(connect(endpoint, METRICS))
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
    assert response.startswith(b"HTTP/1.1 500 ")
    assert "no such gauge" not in body(response)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_dropped_connections_are_one_warning_with_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as endpoint, ExitStack() as clients:
        for _ in range(3 * LIMIT):
            clients.enter_context(connect(endpoint))
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert vars(record)["client"] == "127.0.0.1"
    assert vars(record)["limit"] == LIMIT


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_unspecified_ipv6_address_serves_ipv4_too(host: str) -> None:
    with serving("[::]:0") as endpoint:
        assert body(answer(connect(endpoint, HEALTHZ, host))) == "ok"


def test_without_ipv6_in_the_kernel_it_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with serving("[::]:0") as endpoint:
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
        with pytest.raises(ConnectionRefusedError):
            connect(endpoint, host="::1")


def test_stopping_cuts_connections_and_frees_the_address() -> None:
    with serving() as endpoint:
        address = f"127.0.0.1:{endpoint.port}"
        client = connect(endpoint, b"GET")
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"
    with client:
        eventually(lambda: is_cut(client))
    with serving(address) as endpoint:
        assert body(answer(connect(endpoint, HEALTHZ))) == "ok"


def test_stopping_while_an_answer_is_computed_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probed, go_on = threading.Event(), threading.Event()

    def healthy() -> None:
        probed.set()
        assert go_on.wait(10)

    with serving(healthy=healthy) as endpoint:
        client = connect(endpoint, HEALTHZ)
        assert probed.wait(10)
        workers = [thread for thread in threading.enumerate() if "http-answer" in thread.name]
    go_on.set()
    client.close()
    for worker in workers:
        worker.join()
    assert caplog.records == []


def test_an_address_in_use_is_an_error() -> None:
    with serving() as endpoint, pytest.raises(OSError, match="in use"):
        HttpEndpoint(
            f"127.0.0.1:{endpoint.port}",
            metrics=bytes,
            content_type="",
            healthy=lambda: None,
            ready=lambda: None,
        )
