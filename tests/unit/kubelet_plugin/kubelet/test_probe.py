"""The probe succeeds if the plugin answers on each of its sockets."""

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import grpc
import pytest

from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from kubelet_plugin.kubelet.probe import socket_probe
from kubelet_plugin.kubelet.server import UnixServer


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="carina") as name:  # short: sockets' paths have limits
        yield Path(name)


Prepare = Callable[
    [pb.NodePrepareResourcesRequest, grpc.ServicerContext], pb.NodePrepareResourcesResponse
]


@contextmanager
def serving(prepare: Prepare, *paths: Path) -> Iterator[None]:
    methods = {
        "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
            prepare,
            request_deserializer=pb.NodePrepareResourcesRequest.FromString,
            response_serializer=pb.NodePrepareResourcesResponse.SerializeToString,
        )
    }
    service = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    server = UnixServer(paths, [grpc.method_handlers_generic_handler(service, methods)])
    server.start()
    try:
        yield
    finally:
        server.stop(0)


def test_it_succeeds_if_each_socket_answers(folder: Path) -> None:
    calls: list[int] = []

    def prepare(
        request: pb.NodePrepareResourcesRequest, _: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        calls.append(len(request.claims))
        return pb.NodePrepareResourcesResponse()

    one, other = folder / "one", folder / "other"
    with serving(prepare, one, other):
        probe = socket_probe(one, other)
        assert probe() is None
        assert probe() is None
    assert calls == [0, 0, 0, 0]


def test_a_call_that_fails_is_a_problem(folder: Path) -> None:
    def prepare(
        _: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        context.abort(grpc.StatusCode.INTERNAL, "broken")
        raise AssertionError

    path = folder / "socket"
    with serving(prepare, path):
        assert socket_probe(path)() == f"{path} does not respond: INTERNAL: broken"


def test_a_missing_socket_is_named(folder: Path) -> None:
    path = folder / "socket"
    assert f"{path} does not respond: UNAVAILABLE" in str(socket_probe(path)())


def test_a_socket_that_is_removed_and_restored_is_noticed_at_once(folder: Path) -> None:
    path, hidden = folder / "socket", folder / "hidden"
    with serving(lambda _, __: pb.NodePrepareResourcesResponse(), path):
        probe = socket_probe(path)
        assert probe() is None
        path.rename(hidden)
        assert f"{path} does not respond: UNAVAILABLE" in str(probe())
        hidden.rename(path)
        assert probe() is None


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0"])
def test_another_protocol_or_a_closed_connection_is_a_problem(folder: Path, answer: bytes) -> None:
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def hang_up() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = Thread(target=hang_up)
        thread.start()
        assert f"{path} does not respond: UNAVAILABLE" in str(socket_probe(path)())
        thread.join()


def test_a_plugin_that_hangs_is_a_problem_after_the_timeout(folder: Path) -> None:
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        problem = socket_probe(path, timeout=0.05)()
    assert f"{path} does not respond: DEADLINE_EXCEEDED" in str(problem)
