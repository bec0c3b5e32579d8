"""`carina health`, on an API server in memory."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from carina_dra.cli import command
from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.client import Client, MergePatch
from kubelet_plugin.commands.listed import HEALTH
from kubelet_plugin.node.view import node_view
from simulation.api_server.api import Api
from simulation.api_server.failure import Failure
from simulation.api_server.server import ApiServer

DRIVER = "gpu.carina.dev"
UUIDS = [f"GPU-00000000-0000-0000-0000-{minor:012d}" for minor in range(3)]


def run(*words: str) -> int:
    return command.run(("health", *words), {"health": HEALTH})


def device(minor: int, suffix: str = "", *taints: dict[str, str]) -> dict[str, Any]:
    attributes = {"uuid": {"string": UUIDS[minor]}, "productName": {"string": "NVIDIA H100"}}
    return {"name": f"gpu-{minor}{suffix}", "attributes": attributes, "taints": list(taints)}


def taint(state: str, value: str, effect: str) -> dict[str, str]:
    since = "2026-11-26T10:00:00Z"
    return {"key": f"{DRIVER}/{state}", "value": value, "effect": effect, "timeAdded": since}


def slice_of(node: str, *devices: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": node},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def claim(name: str, node: str, device: str, *pods: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        },
    }


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer(Api()) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    """A cluster of two nodes; GPU 1 of the first is lost, and GPU 2 of it slow."""
    lost, slow = taint("lost", "xid-79", "NoExecute"), taint("degraded", "hw-slowdown", "None")
    seen = taint("lost", "xid-79", "None")
    with Client(server.connection) as client:
        for node in ("node-1", "node-2"):
            client.create(NODES, {"metadata": {"name": node}})
        client.create(
            RESOURCE_SLICES,
            slice_of(
                "node-1",
                device(0),
                device(1, "", lost),
                device(1, "-share", lost),
                device(1, "-monitor", seen),
                device(2, "", slow),
            ),
        )
        client.create(RESOURCE_SLICES, slice_of("node-2", device(0)))
        for body in (
            claim("train", "node-1", "gpu-1-share", "worker-0"),
            claim("other", "node-2", "gpu-1", "worker-1"),
        ):
            created = client.create(RESOURCE_CLAIMS, body)
            client.replace_status(RESOURCE_CLAIMS, created | {"status": body["status"]})
        yield client


def cleared(client: Client, node: str) -> dict[str, datetime]:
    return dict(node_view(client.get(NODES, node), DRIVER).faults_cleared)


@pytest.mark.usefixtures("client")
def test_gpus_with_problems_are_shown_with_who_has_them_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 0

    first, *rest = capsys.readouterr().out.splitlines()
    rows = [" ".join(line.split()) for line in rest]
    assert first.split() == [
        *("NODE", "GPU", "STATE", "SINCE", "REASON", "XIDS", "EFFECT", "CLAIMS", "PODS")
    ]
    assert rows[0].startswith("node-1 gpu-1 lost ")
    assert rows[0].endswith(" xid-79 79 NoExecute default/train worker-0")
    assert rows[1].endswith(" hw-slowdown - None - -")
    assert "node-1 gpu-1 lost:" in rest
    assert "  kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data" in rest
    assert not any("node-2" in row for row in rows)


@pytest.mark.usefixtures("client")
def test_all_gpus_are_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all") == 0
    rows = [" ".join(line.split()[:3]) for line in capsys.readouterr().out.splitlines()]
    assert rows[1:5] == [
        "node-1 gpu-0 ready",
        "node-1 gpu-1 lost",
        "node-1 gpu-2 degraded",
        "node-2 gpu-0 ready",
    ]


@pytest.mark.usefixtures("client")
def test_programs_get_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-o", "json") == 0

    gpus = json.loads(capsys.readouterr().out)["gpus"]

    assert [(gpu["node"], gpu["gpu"]) for gpu in gpus] == [
        ("node-1", "gpu-0"),
        ("node-1", "gpu-1"),
        ("node-1", "gpu-2"),
        ("node-2", "gpu-0"),
    ]
    assert gpus[1]["uuid"] == UUIDS[1]
    assert gpus[1]["claims"] == [
        {"claim": "default/train", "devices": ["gpu-1-share"], "pods": ["worker-0"]}
    ]
    (problem,) = gpus[1]["problems"]
    assert problem["nextSteps"][0].startswith("kubectl drain node-1")
    assert {key: problem[key] for key in ("state", "reason", "xids", "effect", "since")} == {
        "state": "lost",
        "reason": "xid-79",
        "xids": [79],
        "effect": "NoExecute",
        "since": "2026-11-26T10:00:00Z",
    }
    assert problem["devices"] == ["gpu-1", "gpu-1-share"]


def test_a_cluster_without_problems_says_so(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    assert capsys.readouterr().out == "there are no GPUs\n"
    with Client(server.connection) as client:
        client.create(RESOURCE_SLICES, slice_of("node-1", device(0)))
    assert run() == 0
    assert capsys.readouterr().out == "no GPU of 1 has a problem\n"


@pytest.mark.parametrize("name", ["1", "gpu-1", UUIDS[1]])
def test_faults_of_a_gpu_are_cleared_as_the_plugin_reads_it(
    client: Client, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = datetime.now(UTC).replace(microsecond=0)

    assert run("--clear", "node-1", name) == 0

    assert cleared(client, "node-1").keys() == {UUIDS[1]}
    assert cleared(client, "node-1")[UUIDS[1]] >= before
    assert UUIDS[1] in capsys.readouterr().out


def test_what_was_cleared_before_stays(client: Client) -> None:
    annotations = {f"{DRIVER}/faults-cleared": '{"GPU-other": "2026-01-31T12:00:00Z"}', "a": "b"}
    client.patch(NODES, "node-1", MergePatch({"metadata": {"annotations": annotations}}))

    assert run("--clear", "node-1", "0", "2") == 0

    assert cleared(client, "node-1").keys() == {"GPU-other", UUIDS[0], UUIDS[2]}
    assert client.get(NODES, "node-1")["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["node-1"], "name the GPUs after the node"),
        (["node-9", "0"], "there is no Node node-9"),
        (["node-1", "7"], f"Node node-1 has no GPU 7; it has gpu-0 ({UUIDS[0]})"),
    ],
)
def test_what_cannot_be_cleared_is_said(
    client: Client, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--clear", *words) == 2
    assert message in capsys.readouterr().err
    assert cleared(client, "node-1") == {}


def test_an_annotation_that_is_no_object_is_not_replaced(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    annotations = {f"{DRIVER}/faults-cleared": "[]"}
    client.patch(NODES, "node-1", MergePatch({"metadata": {"annotations": annotations}}))

    assert run("--clear", "node-1", "0") == 2

    assert f"kubectl annotate node node-1 {DRIVER}/faults-cleared-" in capsys.readouterr().err


def test_a_problem_that_persists_after_it_was_cleared_says_so(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--clear", "node-1", "1") == 0
    assert run() == 0
    assert "and it persists):" in capsys.readouterr().out


@pytest.mark.usefixtures("client")
def test_without_permission_for_claims_the_rest_is_shown(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    forbidden = Failure(403, "Forbidden", "no permission")
    server.api.faults.fail(forbidden, verb="list", plural=RESOURCE_CLAIMS.plural)
    assert run() == 0
    printed = capsys.readouterr()
    assert "gpu-1" in printed.out
    assert "the claims on the GPUs are not shown" in printed.err
