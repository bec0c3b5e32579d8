"""A monitoring agent of the node that has a GPU open, so that its MIG mode cannot be switched."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from kubelet_plugin.kubelet.pb import dra_v1_pb2 as v1
from tests.eventually import eventually
from tests.fakes.held_modes import HeldNode
from tests.integration.mig.conftest import NodeMaker
from tests.integration.plugin_host import Host, running_host

AGENT = 4242
KEY = "gpu.carina.dev/mig-mode-held"
PART = "gpu-0-mig-1g10gb-19-6"
PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"


@pytest.fixture
def held(make_node: NodeMaker) -> HeldNode:
    """GPU 0 is held open by an agent."""
    node = HeldNode(make_node("dgx-h100"))
    node.agent_begins()
    return node


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as host:
        yield host


def _taints(host: Host) -> Mapping[str, list[dict[str, str]]]:
    return {
        device["name"]: device["taints"]
        for body in host.slices()
        for device in body["spec"].get("devices", ())
        if device.get("taints")
    }


def _prepare(host: Host, claim: Any) -> str:
    """Prepares a claim as the kubelet does; returns the error."""
    meta = claim["metadata"]
    request = v1.NodePrepareResourcesRequest(
        claims=[v1.Claim(namespace="default", name=meta["name"], uid=meta["uid"])]
    )
    with grpc.insecure_channel(f"unix:{host.plugin / 'dra.sock'}") as channel:
        call = channel.unary_unary(
            PREPARE,
            request_serializer=v1.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=v1.NodePrepareResourcesResponse.FromString,
        )
        return str(call(request, timeout=45).claims[meta["uid"]].error)


def test_partitions_that_cannot_be_made_are_tainted_until_the_agent_ends(host: Host) -> None:
    host.gpus.run_process(0, AGENT)
    host.start()
    eventually(host.has_whole_pool)
    claim = host.allocated_claim("train", PART)

    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(_prepare, host, claim)
        tainted = eventually(lambda: _taints(host))
        host.gpus.end_process(0, AGENT)
        assert call.result() == ""

    of_gpu_0 = {name for name in _names(host) if name.startswith("gpu-0-mig-")}
    assert tainted.keys() == of_gpu_0
    (taint,) = tainted[PART]
    assert (taint["key"], taint["value"]) == (KEY, "NVML_ERROR_IN_USE")
    assert taint["effect"] == "NoSchedule"
    eventually(lambda: not _taints(host))
    told = eventually(lambda: [e["reason"] for e in host.events() if "MIGMode" in e["reason"]])
    assert told.count("MIGModeHeld") == 1


def _names(host: Host) -> set[str]:
    return {d["name"] for body in host.slices() for d in body["spec"].get("devices", ())}


def test_a_mode_that_stays_on_after_the_last_partition_keeps_the_whole_gpu_from_claims(
    held: HeldNode,
) -> None:
    held.agent_ends()
    held.switch_on()
    held.agent_begins()

    held.switch_off()

    assert held.tainted() == {"gpu-0", "gpu-0-share"}


def test_at_rest_a_switch_is_tried_at_growing_intervals(held: HeldNode) -> None:
    held.switch_on()

    tries = [held.tries_at(seconds) for seconds in (59, 60, 179, 180, 419, 420)]

    assert tries == [0, 1, 0, 1, 0, 1]
    assert held.tainted() == held.partitions()


def test_the_first_try_that_succeeds_ends_the_taint(held: HeldNode) -> None:
    held.switch_on()
    held.agent_ends()

    held.tries_at(60)

    assert held.tainted() == set()
    assert held.tries_at(10_000) == 0


def test_no_switch_is_tried_on_a_gpu_that_a_claim_uses(held: HeldNode) -> None:
    held.switch_on()
    held.node.prepare("train", "gpu-0")

    assert held.tries_at(60) == 0


def test_a_mode_that_nothing_holds_is_never_tried(held: HeldNode) -> None:
    assert held.tries_at(10_000) == 0
