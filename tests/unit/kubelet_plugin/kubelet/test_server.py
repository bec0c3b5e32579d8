"""The server on unix sockets: threads for all calls of a node, and the files of its sockets."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Semaphore

import grpc
import pytest

from kubelet_plugin.kubelet.server import UnixServer, remove_abandoned_sockets

PODS = 500
"""The number of pods of the largest nodes."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="carina") as name:  # short: sockets' paths have limits
        yield Path(name)


def test_a_call_is_answered_while_a_call_of_each_pod_waits(folder: Path) -> None:
    waiting, go_on = Semaphore(0), Event()

    def wait(request: bytes, _: grpc.ServicerContext) -> bytes:
        waiting.release()
        go_on.wait(60)
        return request

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Wait": grpc.unary_unary_rpc_method_handler(wait),
        "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
    }
    path = folder / "socket"
    server = UnixServer([path], [grpc.method_handlers_generic_handler("test", methods)])
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            wait_call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/test/Wait"
            )
            echo: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Echo")
            calls = [wait_call.future(b"", timeout=60) for _ in range(PODS)]
            for _ in calls:
                assert waiting.acquire(timeout=30)
            assert echo(b"probe", timeout=30) == b"probe"
            go_on.set()
            for call in calls:
                call.result()
    finally:
        go_on.set()
        server.stop(0)


def test_stopping_removes_the_sockets(folder: Path) -> None:
    paths = [folder / "one", folder / "two"]
    server = UnixServer(paths, [])
    server.start()
    assert all(path.is_socket() for path in paths)
    server.stop(0)
    assert list(folder.iterdir()) == []


def test_a_file_in_the_place_of_a_socket_is_replaced(folder: Path) -> None:
    path = folder / "socket"
    path.write_text("left behind")
    server = UnixServer([path], [])
    server.start()
    assert path.is_socket()
    server.stop(0)


def abandoned(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def test_sockets_without_a_listener_are_removed(folder: Path) -> None:
    paths = tuple(abandoned(folder / name) for name in ("dra-1.sock", "dra-2.sock"))
    assert remove_abandoned_sockets(folder, "dra*.sock") == paths
    assert list(folder.iterdir()) == []


def test_a_socket_with_a_listener_is_kept(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "dra.sock"))
        server.listen()
        assert remove_abandoned_sockets(folder, "dra*.sock") == ()
    assert (folder / "dra.sock").is_socket()


@pytest.mark.timeout(30)
def test_a_socket_whose_listener_is_busy_is_kept_without_waiting(folder: Path) -> None:
    path = folder / "dra.sock"
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as second,
    ):
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        second.settimeout(0)
        with pytest.raises(BlockingIOError):
            second.connect(str(path))
        assert remove_abandoned_sockets(folder, "dra*.sock") == ()
    assert path.is_socket()


def test_other_sockets_and_files_are_kept(folder: Path) -> None:
    abandoned(folder / "other.sock")
    (folder / "dra-file.sock").write_text("")
    (folder / "dra-folder.sock").mkdir()
    assert remove_abandoned_sockets(folder, "dra*.sock") == ()
    assert len(list(folder.iterdir())) == 3


def test_a_missing_folder_has_no_sockets(folder: Path) -> None:
    assert remove_abandoned_sockets(folder / "missing", "*") == ()
