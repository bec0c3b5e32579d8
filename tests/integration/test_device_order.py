"""Plugin processes with a policy for the order of devices, from a prepared claim to the slices."""

from typing import Any

import grpc

from carina_dra.kube.body import Body
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.plugin_host import Host, running_host

_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_FLAGS = ("--device-order", "binpack", "--reorder-seconds", "1")


def call(host: Host, method: str, claim: Body, socket: str = "dra.sock") -> None:
    """Has a plugin prepare or unprepare a claim."""
    metadata = claim["metadata"]
    wanted = pb.Claim(namespace="default", name=metadata["name"], uid=metadata["uid"])
    # Requests and answers of both methods are encoded alike.
    request = pb.NodePrepareResourcesRequest(claims=[wanted]).SerializeToString()
    with grpc.insecure_channel(f"unix:{host.plugin / socket}") as channel:
        method_: Any = channel.unary_unary(f"{_SERVICE}/{method}")
        answer = method_(request, timeout=45, wait_for_ready=True)
    assert pb.NodePrepareResourcesResponse.FromString(answer).claims[wanted.uid].error == ""


def first_share(host: Host) -> str:
    """The GPU whose share the scheduler takes first."""
    slices = sorted(host.slices(), key=lambda body: str(body["metadata"]["name"]))
    names = [device["name"] for body in slices for device in body["spec"].get("devices") or ()]
    return next((name for name in names if name.endswith("-share")), "")


def versions(host: Host) -> list[str]:
    return sorted(body["metadata"]["resourceVersion"] for body in host.slices())


def allocated_share(host: Host, gpu: int) -> Body:
    amounts = {"memory": "8Gi", "cores": "10"}
    return host.allocated_claim(
        f"on-{gpu}", f"gpu-{gpu}-share", shareID=f"0000000{gpu}-aaaa", consumedCapacity=amounts
    )


def has_one_generation(host: Host) -> bool:
    """Whether a change of the pool is written as a whole."""
    return len({body["spec"]["pool"]["generation"] for body in host.slices()}) == 1


def test_slices_follow_the_claims_and_a_restart_writes_nothing() -> None:
    with running_host() as host:
        process = host.start(*_FLAGS)
        eventually(host.has_whole_pool)
        assert first_share(host) == "gpu-0-share"

        claim = allocated_share(host, 5)
        call(host, "NodePrepareResources", claim)
        eventually(lambda: first_share(host) == "gpu-5-share" and has_one_generation(host))

        process.terminate()
        process.wait()
        before = versions(host)
        host.start(*_FLAGS, "--repair-seconds", "0.1")
        call(host, "NodePrepareResources", claim)
        assert versions(host) == before

        call(host, "NodeUnprepareResources", claim)
        eventually(lambda: first_share(host) == "gpu-0-share")


def test_of_two_plugins_side_by_side_either_orders_for_the_claims_of_both() -> None:
    with running_host() as host:
        for name in ("old", "new"):
            host.start(*_FLAGS, "--pod-uid", name)
        eventually(host.has_whole_pool)
        on_5, on_3 = allocated_share(host, 5), allocated_share(host, 3)

        call(host, "NodePrepareResources", on_5, "dra-old.sock")
        eventually(lambda: first_share(host) == "gpu-5-share")
        call(host, "NodePrepareResources", on_3, "dra-new.sock")
        eventually(lambda: first_share(host) == "gpu-3-share")  # as full, and before it
        call(host, "NodeUnprepareResources", on_3, "dra-old.sock")
        eventually(lambda: first_share(host) == "gpu-5-share")
        call(host, "NodeUnprepareResources", on_5, "dra-new.sock")
        eventually(lambda: first_share(host) == "gpu-0-share")
