"""Shares of GPUs, from what the plugin publishes to what containers get.

The plugin is a process on simulated GPUs of 80 GB; the product's allocator chooses the devices.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from carina_dra.kube.api_resource import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from simulation.demo import manifests
from simulation.demo.claim_controller import release_claims
from simulation.demo.console import DemoError
from simulation.demo.container_runtime import specs
from simulation.demo.scheduler import schedule
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, Host, running_host

WHOLE, SHARE = "gpu.carina.dev", "share.gpu.carina.dev"
_NAMESPACE = "default"
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

M = TypeVar("M", bound=Message)


class Sharing:
    """A node whose GPUs can be shared, and pods with claims on it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def add_pod(
        self,
        name: str,
        device_class: str = SHARE,
        config: dict[str, Any] | None = None,
        **exactly: Any,
    ) -> list[str]:
        """Schedules a pod with a claim of its own; returns the devices.

        Raises:
            DemoError: there is no room.
        """
        request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **exactly}}
        devices: dict[str, Any] = {"requests": [request]}
        if config is not None:
            devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": config}}]
        metadata = {"name": name, "namespace": _NAMESPACE}
        client = self._host.client
        client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": devices}})
        spec = {
            "containers": [{"name": "main"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        schedule(client, client.create(PODS, {"metadata": metadata, "spec": spec}))
        results = self.claim(name)["status"]["allocation"]["devices"]["results"]
        return [result["device"] for result in results]

    def remove_pod(self, name: str) -> None:
        """Ends a pod, so that its claim is deallocated."""
        pod = self._host.client.get(PODS, name, namespace=_NAMESPACE)
        release_claims(self._host.client, pod, [name])

    def claim(self, name: str) -> Body:
        return self._host.client.get(RESOURCE_CLAIMS, name, namespace=_NAMESPACE)

    def set_status(self, claim: Body) -> None:
        self._host.client.replace_status(RESOURCE_CLAIMS, claim)

    def prepare(self, name: str) -> pb.NodePrepareResourceResponse:
        claim = self._reference(name)
        answer = self._call(
            "NodePrepareResources",
            pb.NodePrepareResourcesRequest(claims=[claim]),
            pb.NodePrepareResourcesResponse,
        )
        return answer.claims[claim.uid]

    def unprepare(self, name: str) -> pb.NodeUnprepareResourceResponse:
        claim = self._reference(name)
        answer = self._call(
            "NodeUnprepareResources",
            pb.NodeUnprepareResourcesRequest(claims=[claim]),
            pb.NodeUnprepareResourcesResponse,
        )
        return answer.claims[claim.uid]

    def cdi_specs(self) -> str:
        """The content of all CDI specs."""
        return "".join(path.read_text() for path in specs(self._host.folder / "cdi"))

    def _reference(self, name: str) -> pb.Claim:
        return pb.Claim(namespace=_NAMESPACE, name=name, uid=self.claim(name)["metadata"]["uid"])

    def _call(self, method: str, request: Message, answer: type[M]) -> M:
        with grpc.insecure_channel(f"unix:{self._host.plugin / 'dra.sock'}") as channel:
            call = channel.unary_unary(
                f"{_SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            given = call(request, timeout=45)
        assert isinstance(given, answer)
        return given


def amounts(memory: str, cores: int) -> dict[str, Any]:
    return {"requests": {"memory": memory, "cores": str(cores)}}


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    with running_host() as host:
        for device_class in manifests.load(manifests.DEPLOY / "deviceclass.yaml"):
            host.client.create(DEVICE_CLASSES, device_class)
        host.start()
        eventually(host.has_whole_pool)
        yield Sharing(host)


def test_two_shares_of_40_percent_fill_a_gpu_and_the_third_is_of_the_next(
    sharing: Sharing,
) -> None:
    given = [sharing.add_pod(name, capacity=amounts("30Gi", 40)) for name in ("a", "b", "c")]

    assert given == [["gpu-0-share"], ["gpu-0-share"], ["gpu-1-share"]]


def test_a_shared_gpu_is_not_allocated_whole_and_the_reverse(sharing: Sharing) -> None:
    assert sharing.add_pod("part", capacity=amounts("8Gi", 10)) == ["gpu-0-share"]

    assert sharing.add_pod("others", WHOLE, count=7) == [f"gpu-{minor}" for minor in range(1, 8)]
    with pytest.raises(DemoError, match="cannot be scheduled"):
        sharing.add_pod("whole", WHOLE)
    assert sharing.add_pod("rest", capacity=amounts("8Gi", 90)) == ["gpu-0-share"]
    with pytest.raises(DemoError, match="cannot be scheduled"):
        sharing.add_pod("too-much", capacity=amounts("8Gi", 10))


def test_a_gpu_whose_shares_are_given_back_can_be_allocated_whole(sharing: Sharing) -> None:
    sharing.add_pod("others", WHOLE, count=7)
    for name in ("a", "b"):
        assert sharing.add_pod(name, capacity=amounts("30Gi", 40)) == ["gpu-7-share"]
        sharing.prepare(name)
    for name in ("a", "b"):
        assert not sharing.unprepare(name).error
        sharing.remove_pod(name)

    assert sharing.add_pod("whole", WHOLE) == ["gpu-7"]
    assert not sharing.prepare("whole").error


def test_ten_pods_share_a_gpu_by_default(sharing: Sharing) -> None:
    given = [sharing.add_pod(f"pod-{number}") for number in range(11)]

    assert given == [*[["gpu-0-share"]] * 10, ["gpu-1-share"]]


def test_a_request_for_less_than_a_tenth_gets_a_tenth(sharing: Sharing) -> None:
    given = [sharing.add_pod(f"pod-{number}", capacity=amounts("1Mi", 1)) for number in range(11)]

    assert given == [*[["gpu-0-share"]] * 10, ["gpu-1-share"]]


def test_a_claim_that_was_allocated_less_than_the_least_share_is_prepared(sharing: Sharing) -> None:
    sharing.add_pod("old", capacity=amounts("8Gi", 10))
    claim = sharing.claim("old")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result["consumedCapacity"] = {"memory": "1Mi", "cores": "1"}
    sharing.set_status(claim)

    assert not sharing.prepare("old").error
    assert "_CORES_PERCENT=1" in sharing.cdi_specs()


def test_claims_with_shares_of_a_gpu_are_prepared_side_by_side(sharing: Sharing) -> None:
    sharing.add_pod("train", capacity=amounts("30Gi", 40))
    sharing.add_pod("infer", capacity=amounts("9500M", 15))
    for name in ("train", "infer", "train"):
        answer = sharing.prepare(name)
        assert not answer.error
        (device,) = answer.devices
        (result,) = sharing.claim(name)["status"]["allocation"]["devices"]["results"]
        assert (device.device_name, device.share_id) == ("gpu-0-share", result["shareID"])
        assert device.cdi_device_ids[0].endswith(f"_gpu-0-share_{result['shareID']}")

    written = sharing.cdi_specs()
    for variable in (
        "_MEMORY_MIB=30720",
        "_CORES_PERCENT=40",
        "_MEMORY_MIB=9060",  # 9500 MB are rounded up to the next MiB
        "_CORES_PERCENT=15",
    ):
        assert written.count(variable) == 1
    assert not sharing.unprepare("train").error
    assert "_CORES_PERCENT=40" not in sharing.cdi_specs()
    assert "_CORES_PERCENT=15" in sharing.cdi_specs()


def test_a_claim_that_demands_more_than_the_gpu_enforces_is_not_prepared(sharing: Sharing) -> None:
    config = {
        "apiVersion": "resource.carina.dev/v1alpha1",
        "kind": "ShareConfig",
        "enforcement": {"memory": "kernel"},
    }
    sharing.add_pod("train", config=config, capacity=amounts("30Gi", 40))

    assert sharing.prepare("train").error == (
        "ResourceClaim default/train or its DeviceClass demands enforcement by kernel for memory "
        "in a ShareConfig, which device gpu-0-share does not have; select devices by "
        "memoryEnforcementKernel: true, or do not demand it"
    )
    assert sharing.cdi_specs() == ""
