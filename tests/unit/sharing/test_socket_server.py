"""The socket of carina-sharing."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from carina_dra.sharing.message import MOST_BYTES, SharingReport, Strangers, WantedShares
from sharing import socket_server
from sharing.socket_server import SocketServer
from tests.eventually import eventually
from tests.unit.sharing.samples import share, wanted


class Site:
    """A server, what it was told, and what it tells."""

    def __init__(self, folder: Path) -> None:
        self.path, self.temporary = folder / "s.sock", folder / "s.new"
        self.received: list[WantedShares] = []
        self.report = SharingReport(generation=1, time=1.0)
        self.want: Callable[[WantedShares], None] = self.received.append

    @contextmanager
    def serving(
        self, heartbeat: float = 60.0, write_seconds: float = 60.0
    ) -> Iterator[SocketServer]:
        server = SocketServer(
            self.path,
            self.temporary,
            want=self.want,
            report=lambda: self.report,
            heartbeat=heartbeat,
            write_seconds=write_seconds,
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.chdir(tmp_path)
    return Site(Path())  # paths of sockets have a limit


@contextmanager
def connected(site: Site) -> Iterator["Client"]:
    with socket.socket(socket.AF_UNIX) as own:
        own.settimeout(30)
        own.connect(str(site.path))
        with own.makefile("rb") as lines:
            yield Client(own, lines.readline)


class Client:
    def __init__(self, connection: socket.socket, line: Callable[[], bytes]) -> None:
        self.connection = connection
        self.line = line

    def report(self) -> SharingReport:
        return SharingReport.parse(self.line())

    def send(self, content: bytes) -> None:
        self.connection.sendall(content)

    def is_closed(self) -> bool:
        try:
            return self.line() == b""
        except ConnectionResetError:
            return True


def test_a_client_gets_the_report_when_it_connects_and_when_there_is_another(site: Site) -> None:
    with site.serving() as server, connected(site) as client:
        assert client.report() == site.report
        site.report = SharingReport(generation=2, time=2.0)
        server.tell()
        assert client.report() == site.report


def test_it_is_sent_again_after_a_while(site: Site) -> None:
    with site.serving(heartbeat=0.01), connected(site) as client:
        assert client.report() == client.report() == site.report


def test_messages_are_passed_on_in_their_order(site: Site) -> None:
    messages = [wanted(share("a", "p"), generation=number) for number in range(20)]
    with site.serving(), connected(site) as client:
        client.send(b"".join(message.line() for message in messages))
        eventually(lambda: len(site.received) == len(messages))
    assert site.received == messages


def test_several_clients_may_send_and_all_are_told(site: Site) -> None:
    with site.serving() as server, connected(site) as first, connected(site) as second:
        assert first.report() == second.report()
        first.send(wanted(generation=1).line())
        eventually(lambda: len(site.received) == 1)
        second.send(wanted(generation=2).line())
        eventually(lambda: len(site.received) == 2)
        site.report = SharingReport(generation=2, time=2.0)
        server.tell()
        assert first.report() == second.report() == site.report
    assert [message.generation for message in site.received] == [1, 2]


def test_of_messages_at_the_same_time_the_last_generation_counts(site: Site) -> None:
    with site.serving(), connected(site) as late, connected(site) as early:
        early.send(wanted(generation=7).line())
        eventually(lambda: len(site.received) == 1)
        late.send(wanted(generation=6).line() + wanted(generation=8).line())
        eventually(lambda: len(site.received) == 2)
    assert [message.generation for message in site.received] == [7, 8]


def test_an_old_generation_counts_where_it_cannot_have_been_overtaken(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "_OVERTAKEN", 0.0)
    with site.serving(), connected(site) as client:
        client.send(wanted(generation=7).line() + wanted(generation=6).line())
        eventually(lambda: len(site.received) == 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense\n", "Invalid JSON"),
        (b'{"version":2,"generation":1,"shares":[]}\n', "version"),
        (b"x" * (MOST_BYTES + 2) + b"\n", "longer than"),
    ],
)
def test_what_is_no_message_closes_its_connection_alone(
    site: Site, line: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    with site.serving() as server, connected(site) as good, connected(site) as bad:
        good.report()
        bad.report()
        sender = threading.Thread(target=_send, args=(bad, line))
        sender.start()
        assert bad.is_closed()
        sender.join()
        server.tell()
        assert good.report() == site.report
    (record,) = [record for record in caplog.records if record.name == "sharing.socket_server"]
    assert problem in vars(record)["problem"]
    assert site.received == []


def _send(client: Client, line: bytes) -> None:
    with suppress(OSError):  # it is cut off
        client.send(line)


def test_a_message_of_the_greatest_length_is_read(site: Site) -> None:
    line = wanted(share("a", "p")).line()
    line = line[:-1] + b" " * (MOST_BYTES - len(line)) + b"\n"
    with site.serving(), connected(site) as client:
        client.send(line)
        eventually(lambda: site.received)


def test_a_connection_that_ends_within_a_message_is_said(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with site.serving():
        with connected(site) as client:
            client.report()
            client.send(b'{"version"')
        eventually(lambda: "ended within a message" in caplog.text)


def test_who_does_not_read_is_cut_off_and_keeps_nobody(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    many = tuple(
        Strangers(gpu=f"GPU-{number}", processes=1, memory_mib=1) for number in range(20_000)
    )
    site.report = SharingReport(generation=1, time=1.0, strangers=many)
    with (
        site.serving(write_seconds=0.2) as server,
        connected(site) as slow,
        connected(site) as good,
    ):
        assert good.report() == site.report
        server.tell()
        assert good.report() == site.report
        eventually(lambda: "nobody reads it" in caplog.text)
        assert not slow.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def test_a_message_that_takes_long_keeps_no_reader(site: Site) -> None:
    go_on = threading.Event()

    def record(_: WantedShares) -> None:
        go_on.wait(60)

    site.want = record
    try:
        with site.serving() as server, connected(site) as writer, connected(site) as reader:
            reader.report()
            writer.send(wanted().line())
            server.tell()
            assert reader.report() == site.report
            go_on.set()
    finally:
        go_on.set()


def test_only_root_may_connect(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with site.serving():
        assert site.path.stat().st_mode & 0o777 == 0o600
        monkeypatch.setattr(socket_server, "_peer", lambda _: (4711, 1000))
        with connected(site) as client:
            assert client.is_closed()
    assert "a connection is refused" in caplog.text


def test_there_are_so_many_connections_and_no_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "_CONNECTIONS", 1)
    with site.serving(), connected(site) as first:
        first.report()
        with connected(site) as second:
            assert second.is_closed()


def test_it_takes_the_place_of_a_process_that_was_killed(site: Site) -> None:
    for path in (site.path, site.temporary):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with site.serving(), connected(site) as client:
        assert client.report() == site.report
    assert not site.path.exists()
    assert not site.temporary.exists()


def test_one_that_ends_late_leaves_the_socket_of_the_next(site: Site) -> None:
    with ExitStack() as later:
        with site.serving():
            later.enter_context(site.serving())
        with connected(site) as client:
            assert client.report() == site.report


def test_it_ends_while_clients_are_connected(site: Site) -> None:
    with ExitStack() as later:
        with site.serving():
            client = later.enter_context(connected(site))
            client.report()
        assert client.is_closed()
