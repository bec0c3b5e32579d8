"""A pod's way to the API server: its service account's token, which is replaced as it ages."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, SERVICE_ACCOUNTS
from carina_dra.kube.client import Client
from carina_dra.kube.errors import Forbidden, Unauthorized
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.kube.service_account import from_service_account
from simulation.kubernetes.cluster import Cluster
from tests.samples.objects import config_map


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Path:
    """The directory that a pod with the service account `default` would have."""
    with Client(from_kubeconfig(cluster.kubeconfig)) as admin:
        request = {"spec": {"expirationSeconds": 600}}
        answer = admin.create_subresource(
            SERVICE_ACCOUNTS, "default", "token", request, namespace="default"
        )
    (tmp_path / "token").write_text(answer["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(cluster.ca_file.read_bytes())
    return tmp_path


@pytest.fixture
def environment(cluster: Cluster) -> dict[str, str]:
    """What the kubelet tells a pod about the API server."""
    server = urlsplit(cluster.server)
    return {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


def test_it_is_known_and_may_do_what_it_is_allowed(
    account: Path, environment: dict[str, str]
) -> None:
    with Client(from_service_account(account, environment=environment)) as client:
        user = "system:serviceaccount:default:default"
        with pytest.raises(Forbidden, match=f'User "{user}" cannot create'):
            client.create(CONFIG_MAPS, config_map("default"))


def test_a_token_that_is_refused_is_read_again(account: Path, environment: dict[str, str]) -> None:
    good = (account / "token").read_text()
    (account / "token").write_text("not-a-token")
    with Client(from_service_account(account, environment=environment)) as client:
        with pytest.raises(Unauthorized):
            client.get(CONFIG_MAPS, "sample", namespace="default")
        (account / "token").write_text(good)
        with pytest.raises(Forbidden):
            client.get(CONFIG_MAPS, "sample", namespace="default")
