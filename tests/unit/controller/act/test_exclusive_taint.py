"""The taint of exclusive mode, against the embedded API."""

from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube.api_resource import DEVICE_TAINT_RULES
from carina_dra.kube.client import Client, MergePatch
from controller.act.exclusive_taint import RULE, ExclusiveTaint, remove_taint
from controller.names import TAINT
from controller.report.metrics import ControllerMetrics
from simulation.api_server.api import Api
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

_DRIVER = "gpu.example.com"
_SPEC = {"deviceSelector": {"driver": _DRIVER}, "taint": {"key": TAINT, "effect": "NoSchedule"}}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Api()) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.connection) as client:
        yield client


@pytest.fixture
def exclusive(client: Client) -> Iterator[ExclusiveTaint]:
    taint = ExclusiveTaint(client, _DRIVER, ControllerMetrics())
    taint.start()
    yield taint
    taint.stop()


def spec(client: Client) -> Any:
    """What the rule says, without the time of the taint; None if there is no rule."""
    found = [
        body["spec"]
        for body in client.list(DEVICE_TAINT_RULES).items
        if body["metadata"]["name"] == RULE
    ]
    for each in found:
        each["taint"].pop("timeAdded", None)
    return found[0] if found else None


def create(client: Client, name: str) -> None:
    client.create(DEVICE_TAINT_RULES, {"metadata": {"name": name}, "spec": _SPEC})


@pytest.mark.usefixtures("exclusive")
def test_devices_of_the_driver_are_tainted(client: Client) -> None:
    eventually(lambda: spec(client) == _SPEC)


@pytest.mark.usefixtures("exclusive")
@pytest.mark.parametrize(
    "change",
    [
        {"deviceSelector": {"driver": "other.example.com"}},
        {"deviceSelector": {"pool": "n"}},
        {"deviceSelector": None},
        {"taint": {"effect": "None"}},
        {"taint": {"value": "x"}},
    ],
    ids=str,
)
def test_rule_that_is_changed_is_corrected(client: Client, change: dict[str, object]) -> None:
    eventually(lambda: spec(client) == _SPEC)
    client.patch(DEVICE_TAINT_RULES, RULE, MergePatch({"spec": change}))
    eventually(lambda: spec(client) == _SPEC)


@pytest.mark.usefixtures("exclusive")
def test_rule_that_is_deleted_comes_back(client: Client) -> None:
    eventually(lambda: spec(client) == _SPEC)
    client.delete(DEVICE_TAINT_RULES, RULE)
    eventually(lambda: spec(client) == _SPEC)


def test_failed_write_is_repeated(server: ApiServer, client: Client) -> None:
    failure = Failure(500, "InternalError", "injected")
    server.api.faults.fail(failure, verb="create", plural="devicetaintrules", times=2)
    taint = ExclusiveTaint(client, _DRIVER, ControllerMetrics())
    taint.start()
    eventually(lambda: spec(client) == _SPEC)
    taint.stop()


def test_rule_stays_when_the_controller_stops(client: Client, exclusive: ExclusiveTaint) -> None:
    eventually(lambda: spec(client) == _SPEC)
    exclusive.stop()
    assert spec(client) == _SPEC


def test_without_exclusive_mode_only_the_own_rule_is_removed(client: Client) -> None:
    create(client, RULE)
    create(client, "other")
    remove_taint(client, ControllerMetrics())
    assert [rule["metadata"]["name"] for rule in client.list(DEVICE_TAINT_RULES).items] == ["other"]


def test_without_permission_and_mode_nothing_is_said(
    server: ApiServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    failure = Failure(403, "Forbidden", "injected")
    server.api.faults.fail(failure, verb="list", plural="devicetaintrules")
    remove_taint(client, ControllerMetrics())
    assert not caplog.records


def test_rule_that_may_not_be_removed_is_named(
    server: ApiServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    create(client, RULE)
    failure = Failure(403, "Forbidden", "injected")
    server.api.faults.fail(failure, verb="delete", plural="devicetaintrules")
    remove_taint(client, ControllerMetrics())
    [record] = caplog.records
    assert getattr(record, "rule", None) == RULE
