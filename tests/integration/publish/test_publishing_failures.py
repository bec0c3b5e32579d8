"""A publisher whose API server refuses, fails or cannot be reached, and one with a defect."""

from dataclasses import replace

import pytest

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.errors import Forbidden
from kubelet_plugin.publish import publisher as publisher_module
from kubelet_plugin.publish.publisher import SliceOperation
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer
from tests.eventually import eventually
from tests.integration.published_slices import DEADLINE, DRIVER, TWO_GPUS, NodeInApi, Report


def test_a_missing_permission_is_reported_and_retried(real_node: NodeInApi, report: Report) -> None:
    elsewhere = f"{real_node.name}-elsewhere"
    real_node.admin.create(NODES, {"metadata": {"name": elsewhere}})
    foreign = replace(real_node, name=elsewhere)

    with foreign.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        eventually(lambda: len(report.failures) > 1)
        assert not publisher.published

    assert all(isinstance(error, Forbidden) for error in report.failures)
    assert f'may not write slices of node "{elsewhere}"' in str(report.failures[0])


def test_the_publisher_waits_for_an_unreachable_api_server(
    embedded: ApiServer, embedded_node: NodeInApi, report: Report
) -> None:
    embedded.stop()
    with embedded_node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert not publisher.wait_published(0.2)
        embedded.start()
        assert publisher.wait_published(DEADLINE)

    assert set(embedded_node.devices()) == {"gpu-0", "gpu-1"}


def test_a_failed_write_is_reported_and_retried(
    embedded: ApiServer, embedded_node: NodeInApi, report: Report
) -> None:
    overload = Failure(503, "ServiceUnavailable", "too busy")
    embedded.api.faults.fail(overload, verb="create", plural="resourceslices", times=3)
    with embedded_node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert set(embedded_node.devices()) == {"gpu-0", "gpu-1"}
    assert [str(error) for error in report.failures] == [
        f"create resourceslices.resource.k8s.io 00000-{DRIVER}-{embedded_node.name}-: too busy"
    ] * 3


def test_an_overloaded_api_server_is_not_asked_again_too_soon(
    embedded: ApiServer, embedded_node: NodeInApi, report: Report
) -> None:
    overload = Failure(429, "TooManyRequests", "too busy", retry_after=2)
    embedded.api.faults.fail(overload, verb="create", plural="resourceslices")
    with embedded_node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        eventually(lambda: report.failures)
        assert not publisher.wait_published(1.5)
        assert publisher.wait_published(DEADLINE)


def test_a_refused_list_is_reported(
    embedded: ApiServer,
    embedded_node: NodeInApi,
    report: Report,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher_module, "_LIST_TIMEOUT", 0.1)
    refusal = Failure(403, "Forbidden", "no right")
    embedded.api.faults.fail(refusal, verb="list", plural="resourceslices", times=5)
    with embedded_node.publisher(report) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert {type(error) for error in report.failures} == {Forbidden}


def test_a_defect_is_logged_and_publishing_goes_on(
    embedded_node: NodeInApi, caplog: pytest.LogCaptureFixture
) -> None:
    class Defective(Report):
        def slice_written(self, operation: SliceOperation) -> None:
            super().slice_written(operation)
            if len(self.written) == 1:
                raise RuntimeError("a defect")

    with embedded_node.publisher(Defective()) as publisher:
        publisher.publish(TWO_GPUS)
        assert publisher.wait_published(DEADLINE)

    assert set(embedded_node.devices()) == {"gpu-0", "gpu-1"}
    assert "ResourceSlices cannot be published; retrying" in caplog.text
