"""What the tests of the client of carina-sharing share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kubelet_plugin.sharing.client_node import Node


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # short: sockets' paths have limits
        node = Node(Path(folder))
        yield node
        for plugin in node.plugins:
            plugin.client.stop()
        for server in node.servers:
            server.close()
