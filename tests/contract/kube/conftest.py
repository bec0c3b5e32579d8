"""The API that a test runs on, a client of it, and a namespace of the test's own."""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import NAMESPACES
from carina_dra.kube.client import Client
from simulation.api_server.server import ApiServer
from simulation.kubernetes.cluster import Cluster
from tests.contract.kube.backend import Backend, Embedded, Real, ThroughProxy, through_proxy
from tests.contract.kube.proxy import Proxy

EMBEDDED, REAL = "embedded", "real"


@pytest.fixture(
    scope="session", params=[EMBEDDED, pytest.param(REAL, marks=pytest.mark.kubernetes)]
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The embedded API, and again the real one."""
    if request.param == EMBEDDED:
        with ApiServer() as server:
            yield Embedded(server)
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        yield Real(cluster.kubeconfig, cluster.control_plane.etcd)


@pytest.fixture
def api(backend: Backend) -> Iterator[Client]:
    """A client of the backend."""
    with Client(backend.connection, user_agent="contract") as client:
        yield client


@pytest.fixture
def disturbed(backend: Backend) -> Iterator[ThroughProxy]:
    """A client of the backend whose connections can be disturbed."""
    with (
        Proxy(backend.connection.server) as proxy,
        Client(through_proxy(backend, proxy), user_agent="disturbed") as client,
    ):
        yield ThroughProxy(client, proxy)


@pytest.fixture
def namespace(api: Client) -> Iterator[str]:
    """A namespace of its own for the test."""
    created = api.create(NAMESPACES, {"metadata": {"generateName": "contract-"}})
    name: str = created["metadata"]["name"]
    yield name
    api.delete(NAMESPACES, name)
