"""Upgrades from the plugin before the health of GPUs, with prepared claims of every kind."""

import json
import signal
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from carina_dra.kube.body import Body
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.old_tree import tree_of
from tests.integration.plugin_host import DRIVER, Host, running_host

_OLD: Final = "02e2434"
"""The commit before XIDs, recovery actions and releases."""
_BEFORE_LIMITS: Final = "5b1a43fe"
"""A commit before memory limits."""
_SERVICE: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_AMOUNTS: Final = {"memory": "20Gi", "cores": "25"}
_SHARE: Final = "9d3c55ae-64c0-4d2b-8a5d-1d9c5a3b2f10"
_DEVICES: Final[dict[str, Body]] = {
    "gpu-0": {},
    "gpu-1-mig-1g10gb-19-0": {},
    "gpu-2-share": {
        "shareID": "9d3c55ae-64c0-4d2b-8a5d-1d9c5a3b2f10",
        "consumedCapacity": _AMOUNTS,
    },
    "gpu-0-monitor": {"adminAccess": True},
}
"""A device of each kind, and what the result of an allocation says of it."""


@pytest.fixture(scope="module")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the old commit, beside the simulation of this one."""
    return tree_of(_OLD, tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def tree_before_limits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages before memory limits, beside the simulation of this commit."""
    return tree_of(_BEFORE_LIMITS, tmp_path_factory.mktemp("before-limits"))


def _call(host: Host, method: str, claims: list[Body]) -> dict[str, Any]:
    references = [
        pb.Claim(namespace="default", name=claim["metadata"]["name"], uid=claim["metadata"]["uid"])
        for claim in claims
    ]
    request = pb.NodePrepareResourcesRequest(claims=references).SerializeToString()
    with grpc.insecure_channel(f"unix:{host.plugin / 'dra.sock'}") as channel:
        call: Any = channel.unary_unary(f"{_SERVICE}/{method}")
        answer: bytes = call(request, timeout=45, wait_for_ready=True)
    # Requests and answers of both methods are encoded alike.
    entries = pb.NodePrepareResourcesResponse.FromString(answer).claims
    assert {uid: entry.error for uid, entry in entries.items() if entry.error} == {}
    return {uid: list(entry.devices) for uid, entry in entries.items()}


def _specs(host: Host) -> dict[str, Any]:
    found = (host.folder / "cdi").glob(f"{DRIVER}-claim_*.json")
    return {path.name: json.loads(path.read_text()) for path in found}


def test_claims_of_every_kind_outlast_an_upgrade(old_tree: Path) -> None:
    with running_host() as host:
        claims = [
            host.allocated_claim(f"claim-{number}", device, **more)
            for number, (device, more) in enumerate(_DEVICES.items())
        ]
        old = host.start(tree=old_tree)
        eventually(host.has_whole_pool)
        before = _call(host, "NodePrepareResources", claims)
        specs = _specs(host)
        assert {devices[0].device_name for devices in before.values()} == _DEVICES.keys()
        old.send_signal(signal.SIGTERM)
        old.wait()

        host.start()

        assert _call(host, "NodePrepareResources", claims) == before
        assert _specs(host) == specs
        _call(host, "NodeUnprepareResources", claims)
        assert _specs(host) == {}
        assert host.gpus.state.gpus[1].instances == ()


def test_a_share_that_was_prepared_without_a_limit_stays_so_and_the_next_has_it(
    tree_before_limits: Path,
) -> None:
    with running_host(driver_version="615.71.01") as host:
        cgroups = host.folder / "cgroup"
        pods = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"]
        for pod in pods:
            (cgroups / f"kubepods/besteffort/pod{pod}").mkdir(parents=True)
        before, after = (
            host.reserve(
                host.allocated_claim(
                    f"claim-{number}", f"gpu-{number}-share", **_DEVICES["gpu-2-share"]
                ),
                pod,
            )
            for number, pod in enumerate(pods)
        )
        old = host.start(tree=tree_before_limits)
        eventually(host.has_whole_pool)
        _call(host, "NodePrepareResources", [before])
        specs = _specs(host)
        old.send_signal(signal.SIGTERM)
        old.wait()

        host.start("--cgroup-root", str(cgroups), "--repair-seconds", "0.1")

        eventually(lambda: "it is not known which pod uses its claim" in host.log.read_text())
        assert host.gpus.memory_limits(0) == {}
        assert _specs(host) == specs
        _call(host, "NodePrepareResources", [after])
        assert list(host.gpus.memory_limits(1).values()) == [20 * 2**30]
        _call(host, "NodeUnprepareResources", [before, after])
        assert host.gpus.memory_limits(1) == {}
