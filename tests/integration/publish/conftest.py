"""A node for one test of a publisher: in the embedded API, and in a real one.

In the real one the publisher has the rights of deploy/, as the ServiceAccount of a pod on its node.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.api_server.server import ApiServer
from simulation.kubernetes.cluster import Cluster
from tests.integration.published_slices import NodeInApi, Report

_NAMESPACE, _ACCOUNT = "carina-system", "carina-kubelet-plugin"
_numbers = count()


@pytest.fixture(scope="module")
def embedded() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture(scope="package")
def with_carina(cluster: Cluster) -> Cluster:
    """A real API server with deploy/ applied."""
    cluster.install_carina()
    return cluster


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
def node(request: pytest.FixtureRequest) -> NodeInApi:
    """A node for one test."""
    found: NodeInApi = request.getfixturevalue(f"{request.param}_node")
    return found


@pytest.fixture
def embedded_node(embedded: ApiServer) -> Iterator[NodeInApi]:
    name = f"slices-{next(_numbers)}"
    with Client(embedded.connection) as admin, Client(embedded.connection) as plugin:
        admin.create(NODES, {"metadata": {"name": name}})
        yield NodeInApi(name, admin, plugin)


@pytest.fixture
def real_node(with_carina: Cluster) -> Iterator[NodeInApi]:
    name = f"slices-{next(_numbers)}"
    with_carina.add_fake_nodes([name])
    with_carina.assign_pod(_NAMESPACE, name, service_account=_ACCOUNT, node=name)
    credentials = with_carina.service_account_credentials(_NAMESPACE, _ACCOUNT, pod=name)
    with (
        Client(from_kubeconfig(with_carina.kubeconfig)) as admin,
        Client(from_kubeconfig(credentials.kubeconfig)) as plugin,
    ):
        yield NodeInApi(name, admin, plugin)
        admin.delete(NODES, name)


@pytest.fixture
def report() -> Report:
    return Report()
