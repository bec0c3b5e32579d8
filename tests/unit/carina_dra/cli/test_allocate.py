"""`carina allocate`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from carina_dra.allocator.preference import Policy
from carina_dra.cli.allocate import AllocatedClaim, UnallocatedClaim, allocate_claims
from carina_dra.cli.command import run
from carina_dra.cli.listed import ALLOCATE
from carina_dra.manifests.manifest import CLUSTER, ManifestObjects

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


_READS_MEMORY = """'device.attributes["gpu.carina.dev"].memory == 1'"""


def _run(*arguments: str) -> int:
    return run(["allocate", *arguments], {"allocate": ALLOCATE})


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
        ("kind: [", "document 1: is not valid YAML"),
        (_OBJECTS.replace("nodeName: n1", "nodeName: 7"), "document 1: ResourceSlice n1-gpus: "),
        (
            _OBJECTS.replace("{deviceClassName: gpu}", "{deviceClassName: gpu, selector: []}"),
            "document 4: ResourceClaim team/first: spec.devices.requests[0].exactly.selector: ",
        ),
        ("", "there is no ResourceClaim without devices"),
    ],
)
def test_an_error_of_the_input_names_its_location(
    written: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(written)
    assert _run("-f", str(path)) == 2
    [error] = capsys.readouterr().err.splitlines()
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
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(_OBJECTS.encode())))
    assert _run("-f", "-", "--policy", "upstream") == 3
    assert "gpu.carina.dev/n1/gpu-0" in capsys.readouterr().out


def test_standard_input_may_be_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert _run("-f", "-") == 2
    assert capsys.readouterr().err == "carina allocate: standard input: is closed\n"


def test_a_missing_kubeconfig_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert _run("--cluster") == 2
    assert capsys.readouterr().err == (
        f"carina allocate: cannot read the cluster: kubeconfig {tmp_path}/missing: "
        "there is no such file; set KUBECONFIG\n"
    )


def test_control_characters_of_a_file_are_escaped_in_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"apiVersion": "\x1b[2J\n/v1", "kind": "List\x07"}))
    _run("-f", str(path))
    path.write_text(json.dumps({"apiVersion": "\x1b[2J\n", "kind": "Node"}))
    _run("-f", str(path))
    for line in capsys.readouterr().err.splitlines():
        assert line.isprintable()
        assert line.startswith("carina allocate: ")


def test_objects_of_other_kinds_are_noted(objects: str, capsys: pytest.CaptureFixture[str]) -> None:
    _run("-f", objects)
    assert capsys.readouterr().err == (
        "carina allocate: ignored objects of other kinds: 1 Pod (v1)\n"
    )


def test_a_claim_and_a_template_may_have_one_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(_OBJECTS.replace("name: second", "name: first").replace(", count: 2", ""))
    assert _run("-f", str(path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "team/first: allocated on node n1",
        "  gpu: gpu.carina.dev/n1/gpu-0",
        "team/first-from-template: allocated on node n1",
        "  gpu: gpu.carina.dev/n1/gpu-1",
    ]


def test_a_claim_that_fails_with_an_error_is_explained_on_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(_OBJECTS.replace('device.driver == "gpu.carina.dev"', _READS_MEMORY))
    assert _run("-f", str(path), "--explain") == 3
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("team/first: not allocated: ")
    assert "no such key: memory" in first
    assert lines[:2] == ["  node n1:", "    claim team/first, request gpu, 1 device:"]
    assert lines[2].startswith("      pool gpu.carina.dev/n1, 2 devices: ")
    assert "no such key: memory" in lines[2]


def test_an_error_of_the_claim_itself_has_no_node_to_explain(
    objects: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(_OBJECTS.replace("deviceClassName: gpu,", "deviceClassName: other,"))
    assert _run("-f", str(path), "--explain") == 3
    [line] = capsys.readouterr().out.splitlines()[2:]
    assert line.startswith("team/second: not allocated: ")
    assert line.endswith("could not retrieve device class other: not found")


def test_a_cluster_may_have_fields_that_only_a_newer_api_knows() -> None:
    objects = ManifestObjects()
    for body in yaml.safe_load_all(_OBJECTS):
        body["spec"] = {**body.get("spec", {}), "newer": 1}
        objects.add(CLUSTER, body, strict=False)
    results = allocate_claims(objects, Policy(), None, explained=False)
    assert [type(result) for result in results] == [AllocatedClaim, UnallocatedClaim]


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
        "  results for 2 more groups of nodes are not shown; choose a node with --node"
    )
