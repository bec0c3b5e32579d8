"""The registration service, without a socket."""

from pathlib import Path
from typing import cast

import grpc
import pytest

from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as pb
from kubelet_plugin.kubelet.presence import CannotTell
from kubelet_plugin.kubelet.registration import Registration

CONTEXT = cast("grpc.ServicerContext", None)
"""Unused by the service."""


class Record:
    """What the service reports."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def info_requested(self) -> None:
        self.reports.append("info_requested")

    def registration_refused(self, reason: str) -> None:
        self.reports.append(f"refused: {reason}")


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def registration(record: Record) -> Registration:
    endpoint = Path("/plugins/gpu.carina.dev/dra.sock")
    return Registration(
        driver="gpu.carina.dev",
        endpoint=endpoint,
        info_requested=record.info_requested,
        reporter=record,
        kubelet=CannotTell,
    )


def _notify(registration: Registration, *, registered: bool, error: str = "") -> None:
    status = pb.RegistrationStatus(plugin_registered=registered, error=error)
    registration.notify(status, CONTEXT)


def test_get_info_names_the_driver_and_its_versions_newest_first(
    registration: Registration, record: Record
) -> None:
    info = registration.get_info(pb.InfoRequest(), CONTEXT)

    assert (info.type, info.name) == ("DRAPlugin", "gpu.carina.dev")
    assert info.endpoint == "/plugins/gpu.carina.dev/dra.sock"
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert record.reports == ["info_requested"]


def test_is_not_registered_before_the_kubelet_confirms_it(registration: Registration) -> None:
    registration.get_info(pb.InfoRequest(), CONTEXT)
    assert registration.absence is not None


def test_is_registered_once_the_kubelet_confirms_it(
    registration: Registration, record: Record
) -> None:
    _notify(registration, registered=True)
    assert registration.absence is None
    assert record.reports == []


def test_a_refusal_is_reported_and_ends_the_registration(
    registration: Registration, record: Record
) -> None:
    _notify(registration, registered=True)
    _notify(registration, registered=False, error="no version in common")
    assert registration.absence is not None
    assert record.reports == ["refused: no version in common"]
