"""On this side of the tests the cluster is one with a node that runs containers."""

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.node import Node


@pytest.fixture(scope="session")
def cluster(node: Node) -> Cluster:
    """The cluster that the node is in."""
    return node.cluster
