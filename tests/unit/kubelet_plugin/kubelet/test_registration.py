"""How the kubelet comes to know the plugin, without a socket."""

from pathlib import Path
from typing import cast

import grpc
import pytest

from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as pb
from kubelet_plugin.kubelet.registration import Registration

CONTEXT = cast("grpc.ServicerContext", None)
"""Nothing is asked of it."""


class Heard:
    """What the registration has told others."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def asked(self) -> None:
        self.said.append("asked")

    def registration_refused(self, reason: str) -> None:
        self.said.append(f"refused: {reason}")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def registration(heard: Heard) -> Registration:
    endpoint = Path("/plugins/gpu.carina.dev/dra.sock")
    return Registration(
        driver="gpu.carina.dev", endpoint=endpoint, asked=heard.asked, reporter=heard
    )


def _told(registration: Registration, *, registered: bool, error: str = "") -> None:
    status = pb.RegistrationStatus(plugin_registered=registered, error=error)
    registration.notify(status, CONTEXT)


def test_says_who_it_is_newest_version_first(registration: Registration, heard: Heard) -> None:
    info = registration.get_info(pb.InfoRequest(), CONTEXT)

    assert (info.type, info.name) == ("DRAPlugin", "gpu.carina.dev")
    assert info.endpoint == "/plugins/gpu.carina.dev/dra.sock"
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert heard.said == ["asked"]


def test_is_not_registered_before_the_kubelet_says_so(registration: Registration) -> None:
    registration.get_info(pb.InfoRequest(), CONTEXT)
    assert not registration.registered


def test_is_registered_once_the_kubelet_says_so(registration: Registration, heard: Heard) -> None:
    _told(registration, registered=True)
    assert registration.registered
    assert heard.said == []


def test_a_refusal_is_told_and_takes_the_registration_back(
    registration: Registration, heard: Heard
) -> None:
    _told(registration, registered=True)
    _told(registration, registered=False, error="no version in common")
    assert not registration.registered
    assert heard.said == ["refused: no version in common"]
