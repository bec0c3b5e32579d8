"""`carina node release` and `carina node restore`, with a plugin that does it."""

from collections.abc import Iterator

import pytest

from carina_dra.cli import command
from carina_dra.kube.api_resource import NODES, PODS, RESOURCE_CLAIMS
from controller.commands import listed
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, NODE, Host, running_host

_FLAGS = ("--poll-seconds", "0.2", "--recovery-seconds", "0", "--repair-seconds", "1")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with running_host() as host:
        monkeypatch.setenv("KUBECONFIG", str(host.kubeconfig))
        host.start(*_FLAGS)
        eventually(host.has_whole_pool)
        yield host


def carina(*words: str) -> int:
    return command.run(("node", *words), {"node": listed.NODE})


def test_node_is_released_and_restored(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert carina("release", NODE, "--reason", "driver 590", "--timeout", "60") == 0
    assert "node node-1 is released" in capsys.readouterr().out
    assert host.gpus.processes_with_nvml() == set()
    annotations = host.client.get(NODES, NODE)["metadata"]["annotations"]
    assert annotations[f"{DRIVER}/release"] == "driver 590"

    assert carina("restore", NODE, "--timeout", "60") == 0
    assert "the GPUs of node node-1 are in service" in capsys.readouterr().out
    assert host.client.get(NODES, NODE)["metadata"]["annotations"] == {}
    assert len(host.gpus.processes_with_nvml()) == 1


def test_pods_that_hold_devices_are_named(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    for name, labels in (("queued", {"scheduling.carina.dev/queue": "research"}), ("free", {})):
        _pod_with_claim(host, name, labels)

    assert carina("release", NODE, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "pod default/queued of queue research has devices: Carina evicts it" in out
    assert "pod default/free without a queue has devices: delete it, or say --evict-all" in out
    assert "annotations" not in host.client.get(NODES, NODE)["metadata"]
    assert carina("release", NODE, "--dry-run", "--evict-all") == 0
    assert "pod default/free without a queue has devices: Carina evicts it" in (
        capsys.readouterr().out
    )


def test_release_that_takes_longer_stays_asked_for(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.processes[0].kill()  # so nobody answers

    assert carina("release", NODE, "--evict-all", "--timeout", "0") == 3
    assert "no plugin of the driver answers" in capsys.readouterr().err
    annotations = host.client.get(NODES, NODE)["metadata"]["annotations"]
    assert annotations[f"{DRIVER}/release-evict"] == "all"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("release", "node-2"), "there is no node 'node-2'; did you mean node-1?"),
        (("restore", "node-1/status"), "there is no node 'node-1/status'"),
        (
            ("release", NODE, "--driver", "gpu.nvidia.com"),
            "no devices of driver gpu.nvidia.com; name one of these with --driver: gpu.carina.dev",
        ),
    ],
)
def test_mistakes_are_named(
    host: Host, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    assert carina(*words) == 1
    assert problem in capsys.readouterr().err
    assert "annotations" not in host.client.get(NODES, NODE)["metadata"]


def test_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        carina("release", NODE, "--timeout", "soon")
    assert "'soon' is no number of seconds" in capsys.readouterr().err


def _pod_with_claim(host: Host, name: str, labels: dict[str, str]) -> None:
    claim = host.allocated_claim(name, "gpu-3")
    pod = host.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]},
        },
    )
    uid = pod["metadata"]["uid"]
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": uid}]
    host.client.replace_status(RESOURCE_CLAIMS, claim)
