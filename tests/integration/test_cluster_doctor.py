"""`carina doctor` in a real cluster into which Carina is installed, without its pods."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from simulation.kubernetes.cluster import Cluster

_NODE = "doctors-node"
_OPTIONAL = {
    "apps",
    "carina.dev",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "scheduling.k8s.io",
}
"""Groups of owners of pods, which need not be installed, and of what admission policies ask for."""


@pytest.fixture(scope="module", autouse=True)
def installed(cluster: Cluster) -> None:
    """Carina, as an administrator installs it."""
    cluster.install_carina()


def _doctor(cluster: Cluster, kubeconfig: Path | None = None) -> Mapping[str, Sequence[str]]:
    """The verdicts by check."""
    done = subprocess.run(
        [sys.executable, "-m", "carina_dra", "doctor", "--output=json"],
        env={"KUBECONFIG": str(kubeconfig or cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        text = "; ".join(filter(None, (finding["text"], finding.get("remedy"))))
        found.setdefault(finding["check"], []).append(f"{finding['grade']}: {text}")
    return found


def test_what_is_installed_is_well_and_what_does_not_run_is_bad(cluster: Cluster) -> None:
    found = _doctor(cluster)

    gates = "DRAPartitionableDevices, DRAConsumableCapacity, DRADeviceTaints"
    assert found["feature gates"] == [f"ok: on: {gates}"]
    assert found["API server"][0].startswith("ok: its version is v1.37.")
    assert found["permissions"] == ["ok: you may read what the checks need"]
    assert found["ServiceAccounts"] == [
        "ok: carina-kubelet-plugin may do what it needs",
        "ok: carina-controller may do what it needs",
    ]
    (classes,) = found["DeviceClasses"]
    assert classes.startswith("ok: of gpu.carina.dev: gpu.carina.dev")
    assert found["controller"][-1].startswith("bad: there is no Lease")


def test_a_node_with_gpus_that_publishes_nothing_is_named(cluster: Cluster) -> None:
    cluster.add_fake_nodes([_NODE])
    cluster.kubectl("label", "node", _NODE, "nvidia.com/gpu.present=true")
    try:
        found = _doctor(cluster)
    finally:
        cluster.kubectl("delete", "node", _NODE)

    silent = f"bad: nodes with GPUs and without slices: {_NODE}; see the log of its plugin's pod"
    assert any(text.startswith(silent) for text in found["ResourceSlices"])


def test_an_api_server_that_does_not_answer_is_told(cluster: Cluster, tmp_path: Path) -> None:
    away = tmp_path / "kubeconfig"
    away.write_text(cluster.kubeconfig.read_text().replace(cluster.server, "https://127.0.0.1:1"))

    assert {verdict[:3] for check in _doctor(cluster, away).values() for verdict in check} == {
        "bad"
    }


def test_credentials_that_are_not_accepted_are_told(cluster: Cluster, tmp_path: Path) -> None:
    expired = tmp_path / "kubeconfig"
    configured = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in configured["users"]:
        user["user"] = {"token": "expired"}
    expired.write_text(yaml.safe_dump(configured))

    found = _doctor(cluster, expired)

    assert "renew the credentials in your kubeconfig" in found["ResourceSlices"][0]


def _allow(cluster: Cluster, role: str, rules: Sequence[object]) -> None:
    patch = json.dumps({"rules": rules})
    cluster.kubectl("patch", "clusterrole", role, "--type=merge", "--patch", patch)


@pytest.mark.parametrize("role", ["carina-kubelet-plugin", "carina-controller"])
def test_each_permission_that_is_missing_is_named(cluster: Cluster, role: str) -> None:
    rules = json.loads(cluster.kubectl("get", "clusterrole", role, "-o", "json"))["rules"]
    _allow(cluster, role, [])
    try:
        (said,) = [text for text in _doctor(cluster)["ServiceAccounts"] if role in text]
    finally:
        _allow(cluster, role, rules)

    named = said.partition(" may not ")[2].partition(";")[0].split(", ")
    assert said.startswith("bad: ")
    assert said.endswith("apply the chart's permissions")
    assert set(named) == {
        f"{verb} {resource}"
        for rule in rules
        if not _OPTIONAL & set(rule["apiGroups"])
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
