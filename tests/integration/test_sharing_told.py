"""What a whole plugin process tells carina-sharing.

tests/e2e/test_sharing_reports.py has what it says of the reports.
"""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import DEVICE_CLASSES
from carina_dra.sharing.files import SOCKET
from carina_dra.sharing.message import Offers, SharingReport, WantedShare
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


_OFFERS = SharingReport(generation=0, time=1.0, offers=Offers(ends_violators=True, no_mps=None))
_NOTHING = SharingReport(generation=0, time=1.0)
_OFFERED = {"memoryEnforcementMPS", "coreEnforcementMPS", "memoryEnforcementWatchdog"}


def _offers(host: Host) -> set[str]:
    """The attributes for what carina-sharing offers that are true of all shares."""
    shares = [
        device
        for body in host.slices()
        for device in body["spec"].get("devices", ())
        if device["name"].endswith("-share")
    ]
    return {
        name
        for name in _OFFERED
        if shares and all(share["attributes"][name] == {"bool": True} for share in shares)
    }


def _versions(host: Host) -> dict[str, str]:
    return {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in host.slices()}


def test_what_it_offers_is_published_with_the_devices(host: Host, server: SharingServer) -> None:
    host.start("--poll-seconds=0.2")
    eventually(host.has_whole_pool)
    assert _offers(host) == set()
    server.say(_OFFERS)
    eventually(lambda: _offers(host) == _OFFERED)
    server.say(_NOTHING)
    eventually(lambda: _offers(host) == set())


def test_a_restart_of_carina_sharing_and_of_the_plugin_writes_no_slice(
    host: Host, server: SharingServer
) -> None:
    plugin = host.start("--poll-seconds=0.2")
    eventually(host.has_whole_pool)
    server.say(_OFFERS)
    eventually(lambda: _offers(host) == _OFFERED)
    before = _versions(host)

    server.close()
    plugin.kill()
    plugin.wait()
    host.start("--poll-seconds=0.2")
    again = SharingServer(host.plugin / SOCKET, first=_OFFERS)
    eventually(lambda: bool(again.told))
    assert _versions(host) == before

    again.say(_NOTHING)
    eventually(lambda: _offers(host) == set())
    assert _versions(host) != before
    again.close()


def _share(server: SharingServer) -> WantedShare | None:
    """The share that the server was told last, once its pods are known."""
    shares = server.told[-1].shares if server.told else ()
    return next((share for share in shares if share.pods), None)
