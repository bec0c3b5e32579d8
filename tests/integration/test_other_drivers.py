"""The plugin process on a node whose GPUs a device plugin offers too."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.client import MergePatch
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.plugin_host import NODE, Host, running_host


@pytest.fixture
def host() -> Iterator[Host]:
    """A node with NVIDIA's device plugin."""
    with running_host() as host:
        allocatable = {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
        host.client.patch(NODES, NODE, MergePatch(allocatable), subresource="status")
        yield host


def notes(host: Host, reason: str) -> list[str]:
    return [event["note"] for event in host.events() if event["reason"] == reason]


def prepare(socket: Path, reference: pb.Claim) -> pb.NodePrepareResourceResponse:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodePrepareResourcesResponse.FromString,
        )
        answer = call(pb.NodePrepareResourcesRequest(claims=[reference]), timeout=45)
    assert isinstance(answer, pb.NodePrepareResourcesResponse)
    return answer.claims[reference.uid]


def test_gpus_are_withheld_and_an_event_says_so(host: Host) -> None:
    host.start()

    (note,) = eventually(lambda: notes(host, "GPUsWithheld"))
    assert "because a device plugin offers nvidia.com/gpu on this node" in note
    assert host.slices() == []


def test_a_claim_that_has_a_withheld_gpu_is_still_prepared(host: Host) -> None:
    host.start()
    eventually(lambda: notes(host, "GPUsWithheld"))
    uid = host.allocated_claim("train", "gpu-3")["metadata"]["uid"]

    answer = prepare(host.plugin / "dra.sock", pb.Claim(namespace="default", name="train", uid=uid))

    assert not answer.error
    assert [device.device_name for device in answer.devices] == ["gpu-3"]


def test_the_setting_publish_publishes_them(host: Host) -> None:
    host.start("--beside-other-drivers", "publish")

    assert eventually(lambda: notes(host, "GPUsOfferedTwice"))
    eventually(lambda: len(host.slices()) == 2)
