"""What pods have from device plugins, as the kubelet says."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from kubelet_plugin.kubelet.pb import pod_resources_v1_pb2 as pb
from kubelet_plugin.kubelet.pod_resources import pod_devices
from kubelet_plugin.publish.other_drivers import PodDevice

_ANSWER = pb.ListPodResourcesResponse(
    pod_resources=[
        pb.PodResources(
            name="train",
            namespace="research",
            containers=[
                pb.ContainerResources(name="sidecar"),
                pb.ContainerResources(
                    name="main",
                    devices=[
                        pb.ContainerDevices(
                            resource_name="nvidia.com/gpu", device_ids=["GPU-1", "GPU-2"]
                        )
                    ],
                ),
            ],
        )
    ]
)


@pytest.fixture
def kubelet() -> Iterator[Path]:
    """The socket of a kubelet; not in pytest's folder, because its path has 107 bytes at most."""
    handler = grpc.unary_unary_rpc_method_handler(
        lambda _request, _context: _ANSWER,
        request_deserializer=pb.ListPodResourcesRequest.FromString,
        response_serializer=pb.ListPodResourcesResponse.SerializeToString,
    )
    with tempfile.TemporaryDirectory() as folder:
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
        )
        server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        server.start()
        yield Path(folder, "kubelet.sock")
        server.stop(None)


def test_devices_of_pods_are_listed(kubelet: Path) -> None:
    assert pod_devices(kubelet) == (
        PodDevice("nvidia.com/gpu", "GPU-1", "research/train"),
        PodDevice("nvidia.com/gpu", "GPU-2", "research/train"),
    )


def test_kubelet_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"kubelet\.sock: UNAVAILABLE"):
        pod_devices(tmp_path / "kubelet.sock")
