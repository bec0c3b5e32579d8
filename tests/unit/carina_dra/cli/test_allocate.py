"""`carina allocate`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from carina_dra.cli.allocate import COMMAND
from carina_dra.cli.command import run

_OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpus}
spec:
  driver: gpu.carina.dev
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu.carina.dev"}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: passed-over}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: first, namespace: team}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: second, namespace: team}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}}
"""


def _run(*arguments: str) -> int:
    return run(["allocate", *arguments], {"allocate": COMMAND})


@pytest.fixture
def objects(tmp_path: Path) -> str:
    """A file with a node's slice, a class, a claim that fits and a template that does not."""
    path = tmp_path / "objects.yaml"
    path.write_text(_OBJECTS)
    return str(path)


def test_table_says_what_each_claim_gets(objects: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("-f", objects, "--explain") == 3
    assert capsys.readouterr().out.splitlines() == [
        "team/first: allocated on node n1",
        "  gpu: gpu.carina.dev/n1/gpu-0",
        "team/second: not allocated: no node has the devices; nodes searched: 1",
        "  node n1:",
        "    claim team/second, request gpu, 2 devices:",
        "      pool gpu.carina.dev/n1, 2 devices: 1 in use, 1 suitable",
    ]


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_allocations_as_the_api_has_them(
    output: str, read: Any, objects: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("-f", objects, "-o", output) == 3
    answer = read(capsys.readouterr().out)
    [allocated], [unallocated] = answer["allocated"], answer["unallocated"]
    assert (allocated["claim"], allocated["node"]) == ("team/first", "n1")
    assert allocated["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": "gpu.carina.dev", "pool": "n1", "device": "gpu-0"}
    ]
    assert unallocated["claim"] == "team/second"


def test_all_claims_satisfied_is_success(objects: str, tmp_path: Path) -> None:
    fits = tmp_path / "fits.yaml"
    fits.write_text("---".join(_OBJECTS.split("---")[:4]))
    assert _run("-f", str(fits)) == 0


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("kind: [", "document 1: is not YAML"),
        ("just text", "document 1: is 'just text', not an object"),
        ("a: 1", "document 1: has no kind"),
        ("kind: Node", "document 1: Node: metadata.name is missing"),
        (
            "{kind: Node, metadata: {name: n1, labels: {gpus: 8}}}",
            "document 1: Node n1: metadata.labels is {'gpus': 8}; write a map of strings",
        ),
        (
            "{kind: DeviceClass, apiVersion: resource.k8s.io/v1beta1}",
            "document 1: apiVersion is resource.k8s.io/v1beta1; write resource.k8s.io/v1",
        ),
        (_OBJECTS.replace("nodeName: n1", "nodeName: 7"), "document 1: ResourceSlice n1-gpus: "),
        ("", "there is no ResourceClaim without devices"),
    ],
)
def test_an_error_of_the_input_names_its_location(
    written: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(written)
    assert _run("-f", str(path)) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert not written.strip() or str(path) in error


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-f", "/nowhere.yaml"), "/nowhere.yaml: cannot be read"),
        (("--policy", "worst"), "policy 'worst': write binpack"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(*arguments) == 2
    assert complaint in capsys.readouterr().err


def test_an_unknown_node_is_an_error_that_lists_the_nodes(
    objects: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("-f", objects, "--node", "n9") == 2
    assert "--node n9: there is no such node; the nodes are: n1" in capsys.readouterr().err


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(_OBJECTS))
    assert _run("-f", "-", "--policy", "upstream") == 3
    assert "gpu.carina.dev/n1/gpu-0" in capsys.readouterr().out


def _node(name: str, *, gpus: int) -> str:
    devices = ", ".join(f"{{name: gpu-{index}}}" for index in range(gpus))
    return f"""
kind: ResourceSlice
apiVersion: resource.k8s.io/v1
metadata: {{name: {name}}}
spec:
  driver: gpu.carina.dev
  nodeName: {name}
  pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}
  devices: [{devices}]
"""


def _explained(nodes: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    [gpu_class] = [text for text in _OBJECTS.split("---") if "DeviceClass" in text]
    request = "{name: gpu, exactly: {deviceClassName: gpu, count: 20}}"
    claim = f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: large}}
spec: {{devices: {{requests: [{request}]}}}}
"""
    path.write_text("---".join([*nodes, gpu_class, claim]))
    assert _run("-f", str(path), "--explain") == 3
    return capsys.readouterr().out.splitlines()


def test_equal_nodes_are_explained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [_node(name, gpus=1) for name in ("n1", "n2", "n3")]
    lines = _explained(nodes, tmp_path / "objects.yaml", capsys)
    assert lines[0] == "large: not allocated: no node has the devices; nodes searched: 3"
    assert [line for line in lines if line.startswith("  node ")] == ["  node n1:"]
    assert lines[-1] == "    same result on 2 more nodes, such as n2"


def test_many_groups_of_nodes_are_not_all_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [_node(f"n{gpus:02}", gpus=gpus) for gpus in range(1, 13)]
    lines = _explained(nodes, tmp_path / "objects.yaml", capsys)
    assert len([line for line in lines if line.startswith("  node ")]) == 10
    assert lines[-1] == (
        "  results for 2 more groups of equal nodes are not shown; choose a node with --node"
    )
