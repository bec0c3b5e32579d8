"""A connection to carina-sharing, on a pair of sockets."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from carina_dra.sharing.message import (
    MOST_BYTES,
    Reference,
    SharingReport,
    WantedShare,
    WantedShares,
)
from kubelet_plugin.sharing import connection
from kubelet_plugin.sharing.connection import (
    SharingAbsentError,
    SharingConnection,
    SharingGoneError,
)

REPORTS = [SharingReport(generation=number, time=1.0) for number in range(3)]
WANTED = WantedShares(generation=1, shares=())


class Pair:
    """The connection and its peer."""

    def __init__(self, own: socket.socket, peer: socket.socket) -> None:
        own.setblocking(False)
        self.connection = SharingConnection(own)
        self.peer = peer

    def reports(self, content: bytes) -> list[int]:
        """The generations of the reports that come with some bytes."""
        self.peer.sendall(content)
        return [report.generation for report in self.connection.reports()]


@pytest.fixture
def pair() -> Iterator[Pair]:
    own, peer = socket.socketpair()
    with own, peer:
        yield Pair(own, peer)


def test_reports_are_read_whatever_their_pieces_are(pair: Pair) -> None:
    first, second, third = (report.line() for report in REPORTS)
    assert pair.reports(first + second[:5]) == [0]
    assert pair.reports(second[5:9]) == []
    assert pair.reports(second[9:] + third) == [1, 2]
    assert pair.reports(first) == [0]


def test_where_nothing_has_come_there_is_no_report(pair: Pair) -> None:
    assert pair.connection.reports() == ()


def test_a_line_has_a_greatest_length(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 100)
    assert pair.reports(b" " * 60) == []
    assert pair.reports(b" " * 40) == []
    with pytest.raises(SharingGoneError, match="longer than 100 bytes"):
        pair.reports(b" ")


def test_the_length_is_that_of_one_line(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 100)
    line = REPORTS[0].line()
    for _ in range(10):
        assert pair.reports(line[:20]) == []
        assert pair.reports(line[20:]) == [0]


def test_a_peer_that_has_closed_is_gone(pair: Pair) -> None:
    pair.peer.close()
    with pytest.raises(SharingGoneError, match="it has closed the connection"):
        pair.connection.reports()
    with pytest.raises(SharingGoneError, match="it cannot be told"):
        pair.connection.send(WANTED)


def test_a_peer_that_has_not_read_all_when_it_closes_is_gone(pair: Pair) -> None:
    pair.connection.send(WANTED)
    pair.peer.close()
    with pytest.raises(SharingGoneError, match="the connection broke"):
        pair.connection.reports()


def test_what_is_no_report_is_said(pair: Pair) -> None:
    with pytest.raises(SharingGoneError, match="what it says is not a report"):
        pair.reports(b"{}\n")


def test_what_is_sent_comes_as_a_line(pair: Pair) -> None:
    pair.connection.send(WANTED)
    assert pair.peer.recv(1000) == WANTED.line()


def test_a_message_that_is_too_long_is_not_sent(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", len(WANTED.line()))
    pair.connection.send(WANTED)
    monkeypatch.setattr(connection, "MOST_BYTES", len(WANTED.line()) - 1)
    with pytest.raises(SharingGoneError, match=f"come to {len(WANTED.line())} bytes"):
        pair.connection.send(WANTED)


def test_a_peer_that_does_not_read_is_gone(pair: Pair) -> None:
    def fill() -> None:
        for _ in range(1_000_000):
            pair.connection.send(WANTED)

    with pytest.raises(SharingGoneError, match="it does not read what it is told"):
        fill()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("s.sock")  # paths of sockets have a limit


def test_where_nobody_listens_it_is_absent(path: Path) -> None:
    with pytest.raises(SharingAbsentError, match=r"nobody listens on s\.sock"):
        SharingConnection.open(path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(SharingAbsentError, match=r"nobody listens on s\.sock"):
        SharingConnection.open(path)


def test_the_longest_message_has_room_before_anybody_reads_it(path: Path) -> None:
    pod = Reference(namespace="n", name="p" * 253, uid="u")
    share = WantedShare(claim=pod, gpu="GPU-0", memory_mib=1, cores=1, pods=(pod,) * 13_500)
    message = WantedShares(generation=1, shares=(share,))
    assert 0.9 * MOST_BYTES < len(message.line()) <= MOST_BYTES
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with closing(SharingConnection.open(path)) as opened:
            opened.send(message)


def test_a_path_that_is_none_is_said() -> None:
    with pytest.raises(SharingGoneError, match="cannot be connected to") as failed:
        SharingConnection.open(Path("x" * 200))
    assert not isinstance(failed.value, SharingAbsentError)


def test_who_listens_as_another_user_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with closing(SharingConnection.open(path)) as opened:
            assert opened.reports() == ()
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        with pytest.raises(SharingGoneError, match=f"belongs to user {own}"):
            SharingConnection.open(path)
