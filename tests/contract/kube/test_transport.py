"""What a client makes of a network, and a server, that fail."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS
from carina_dra.kube.client import TIMEOUT, Client, Selection
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import Unreachable
from tests.contract.kube.backend import ThroughProxy
from tests.samples.objects import config_map


def test_nobody_there() -> None:
    with (
        Client(Connection("http://127.0.0.1:9")) as client,
        pytest.raises(Unreachable, match="get configmaps default/sample: "),
    ):
        client.get(CONFIG_MAPS, "sample", namespace="default")


def test_an_object_that_is_nested_too_deeply_is_read_as_far_as_possible() -> None:
    """The API server accepts it of every user, as the opaque parameters of a claim."""

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            deep = b"[" * 4900 + b"]" * 4900
            content = b'{"a":"[{","spec":[' + deep + b',{"b":' + deep + b'}],"z":[1]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever).start()
        try:
            with Client(Connection(f"http://127.0.0.1:{server.server_port}")) as client:
                found = client.get(CONFIG_MAPS, "sample", namespace="default")
        finally:
            server.shutdown()
    assert (found["a"], found["z"]) == ("[{", [1])
    deep, (_, also_deep) = found["spec"][0], found["spec"][1].popitem()
    for found_there in (deep, also_deep):
        inner = found_there
        while isinstance(inner, list):
            (inner,) = inner
        assert inner == "nested too deeply to be read"


def test_a_silent_server_is_given_up_in_time(disturbed: ThroughProxy, namespace: str) -> None:
    disturbed.client.list(CONFIG_MAPS, Selection(namespace))
    disturbed.proxy.fall_silent()
    began = time.monotonic()
    with pytest.raises(Unreachable) as error:
        disturbed.client.create(CONFIG_MAPS, config_map(namespace), timeout=0.3)
    assert time.monotonic() - began < TIMEOUT / 2
    assert error.value.retriable


def test_a_server_that_is_back_is_found_again(disturbed: ThroughProxy, namespace: str) -> None:
    disturbed.client.create(CONFIG_MAPS, config_map(namespace))
    disturbed.proxy.refuse()
    with pytest.raises(Unreachable):
        disturbed.client.get(CONFIG_MAPS, "sample", namespace=namespace)
    disturbed.proxy.recover()
    assert disturbed.client.get(CONFIG_MAPS, "sample", namespace=namespace)


def test_reading_survives_connections_that_were_closed_while_idle(
    disturbed: ThroughProxy, namespace: str
) -> None:
    disturbed.client.create(CONFIG_MAPS, config_map(namespace))
    for _ in range(5):
        disturbed.proxy.cut()
        assert disturbed.client.get(CONFIG_MAPS, "sample", namespace=namespace)


def test_connections_are_kept_and_used_again(disturbed: ThroughProxy, namespace: str) -> None:
    disturbed.client.create(CONFIG_MAPS, config_map(namespace))
    for _ in range(20):
        disturbed.client.get(CONFIG_MAPS, "sample", namespace=namespace)
    assert disturbed.proxy.accepted == 1
