"""The real kubectl finds its way about the embedded API: what `make demo` invites people to do."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from carina_dra.kube.client import Client
from carina_dra.kube.event import EventType, ObjectReference, ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from simulation.api_server.server import ApiServer
from simulation.kubernetes import binaries

pytestmark = pytest.mark.kubernetes

MANIFESTS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "image": "one"}]},
    },
]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Callable[..., str]:
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(tmp_path)}

    def run(*arguments: str, stdin: str | None = None) -> str:
        ran = subprocess.run(
            [binaries.control_plane().kubectl, *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_apply_creates_and_leaves_alone_what_is_as_it_should_be(
    kubectl: Callable[..., str],
) -> None:
    def apply() -> set[str]:
        output = kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(MANIFESTS))
        return {line.split()[-1] for line in output.splitlines()}

    assert apply() == {"created"}
    assert apply() == {"unchanged"}


def test_get_prints_columns(kubectl: Callable[..., str]) -> None:
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(MANIFESTS))
    heading, row = kubectl("get", "pods", "--all-namespaces").splitlines()
    assert heading.split() == ["NAMESPACE", "NAME", "STATUS", "NODE", "AGE"]
    assert row.split()[:3] == ["team", "p", "Pending"]
    assert "gpu.example.com" in kubectl("get", "deviceclasses")


def test_describe_shows_the_events_of_an_object(
    kubectl: Callable[..., str], server: ApiServer
) -> None:
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(MANIFESTS))
    uid = kubectl("get", "pod", "p", "-n", "team", "-o", "jsonpath={.metadata.uid}")
    about = ObjectReference("v1", "Pod", "p", "team", uid)
    with (
        Client(server.connection) as client,
        EventRecorder(client, ReportingController("example.com/demo", "here")) as recorder,
    ):
        recorder.record(about, EventType.WARNING, "GpuLost", "gpu-0 is gone", action="Observe")
    described = kubectl("describe", "pod", "p", "-n", "team")
    assert "GpuLost" in described
    assert "gpu-0 is gone" in described


def test_what_is_deployed_on_a_cluster_can_be_deployed_here(kubectl: Callable[..., str]) -> None:
    root = Path(__file__).parents[3]
    assert "daemonset.apps/" in kubectl("apply", "-k", str(root / "deploy"))
    again = kubectl("apply", "-k", str(root / "deploy")).splitlines()
    assert {line.split()[-1] for line in again} == {"unchanged"}
    kubectl("apply", "-f", str(root / "deploy" / "examples"))


def test_wait_label_and_delete(kubectl: Callable[..., str]) -> None:
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(MANIFESTS))
    kubectl("label", "deviceclass", "gpu.example.com", "tier=gold")
    kubectl("wait", "deviceclass/gpu.example.com", "--for=jsonpath={.metadata.labels.tier}=gold")
    kubectl("delete", "pod", "p", "-n", "team")
    kubectl("delete", "namespace", "team")
    assert kubectl("get", "pods", "-A", "-o", "name") == ""
