"""What a whole plugin process tells carina-sharing.

tests/e2e/test_sharing_reports.py has what it says of the reports.
"""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import DEVICE_CLASSES
from carina_dra.sharing.files import SOCKET
from carina_dra.sharing.message import WantedShare
from simulation.demo import manifests
from tests.eventually import eventually
from tests.integration.plugin_host import Host, running_host
from tests.integration.test_shares import Sharing, amounts
from tests.unit.kubelet_plugin.sharing.sharing_server import SharingServer


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as host:
        for device_class in manifests.load(manifests.DEPLOY / "deviceclass.yaml"):
            host.client.create(DEVICE_CLASSES, device_class)
        yield host


@pytest.fixture
def server(host: Host) -> Iterator[SharingServer]:
    host.plugin.mkdir(parents=True)
    server = SharingServer(host.plugin / SOCKET)
    yield server
    server.close()


def test_shares_are_told_when_they_are_prepared_and_when_they_are_given_back(
    host: Host, server: SharingServer
) -> None:
    host.start()
    eventually(host.has_whole_pool)
    sharing = Sharing(host)
    sharing.add_pod("train", capacity=amounts("30Gi", 40))
    assert not sharing.prepare("train").error
    share = eventually(lambda: _share(server))
    assert share is not None
    assert (share.claim.name, share.memory_mib, share.cores) == ("train", 30720, 40)
    assert [pod.name for pod in share.pods] == ["train"]

    assert not sharing.unprepare("train").error
    eventually(lambda: server.told[-1].shares == ())


def _share(server: SharingServer) -> WantedShare | None:
    """The share that the server was told last, once its pods are known."""
    shares = server.told[-1].shares if server.told else ()
    return next((share for share in shares if share.pods), None)
