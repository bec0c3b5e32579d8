"""A whole plugin process lets go of the driver when its Node asks, and comes back."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as v1
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, NODE, Host, running_host

_RELEASE, _PHASE = f"{DRIVER}/release", f"{DRIVER}/release-phase"
_TAINT = f"{DRIVER}/released"
_FLAGS = ("--poll-seconds", "0.2", "--recovery-seconds", "0", "--repair-seconds", "1")


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as host:
        yield host


def test_released_plugin_has_nothing_of_the_driver_open(host: Host) -> None:
    plugin = _in_service(host)
    assert host.gpus.processes_with_nvml() == {plugin.pid}
    everything = _gpus(host)

    _ask(host, "new driver")

    eventually(lambda: _condition(host) == ("True", "Released"))
    assert host.gpus.processes_with_nvml() == set()
    assert _files_of_the_driver(host, plugin) == []
    assert plugin.poll() is None
    eventually(lambda: _phase(host) == "released")
    assert _tainted(host) == everything


def test_gpus_are_back_with_another_driver(host: Host) -> None:
    plugin = _in_service(host)
    everything = _gpus(host)
    _ask(host, "new driver")
    eventually(lambda: _condition(host) == ("True", "Released"))

    host.gpus.driver(available=False)
    host.gpus.replace_driver("590.10.01")
    host.gpus.driver(available=True)
    _ask(host, None)

    eventually(lambda: _condition(host) == ("False", "InService"))
    eventually(lambda: _phase(host) is None)
    eventually(lambda: not _tainted(host))
    assert _gpus(host) == everything
    assert _driver_versions(host) == {"590.10.1"}
    assert host.gpus.processes_with_nvml() == {plugin.pid}


def test_driver_stays_open_while_a_claim_is_prepared(host: Host) -> None:
    plugin = _in_service(host)
    held = _prepare(host, "held", "gpu-3")
    assert held.error == ""

    _ask(host, "new driver")

    eventually(lambda: _condition(host) == ("False", "Draining"))
    assert "default/held" in _condition_of(host)["message"]
    eventually(lambda: _tainted(host) == _gpus(host))
    refused = _prepare(host, "late", "gpu-4")
    assert "this node's GPUs are released" in refused.error
    assert host.gpus.processes_with_nvml() == {plugin.pid}
    again = _prepare(host, "held")
    assert again.error == ""

    _unprepare(host, "held")
    eventually(lambda: _condition(host) == ("True", "Released"))
    assert host.gpus.processes_with_nvml() == set()


def test_an_mps_daemon_that_has_not_ended_keeps_the_driver(host: Host) -> None:
    """It was to end when its claim was unprepared, and carina-sharing was away."""
    _in_service(host)
    left = host.plugin / "mps/0a1b2c3d"
    left.mkdir(parents=True)

    _ask(host, "new driver")

    eventually(lambda: _condition(host) == ("False", "Draining"))
    assert "the MPS daemon of a claim that was unprepared" in _condition_of(host)["message"]

    left.rmdir()
    eventually(lambda: _condition(host) == ("True", "Released"))


def test_release_that_is_taken_back_while_draining_closes_nothing(host: Host) -> None:
    plugin = _in_service(host)
    _prepare(host, "held", "gpu-3")
    _ask(host, "new driver")
    eventually(lambda: _tainted(host) == _gpus(host))

    _ask(host, None)

    eventually(lambda: _condition(host) == ("False", "InService"))
    eventually(lambda: not _tainted(host))
    assert host.gpus.processes_with_nvml() == {plugin.pid}


def test_claims_are_refused_and_can_end_while_released(host: Host) -> None:
    _in_service(host)
    _ask(host, "new driver")
    eventually(lambda: _condition(host) == ("True", "Released"))
    host.gpus.driver(available=False)

    assert "this node's GPUs are released" in _prepare(host, "late", "gpu-4").error
    _unprepare(host, "late")

    assert host.gpus.processes_with_nvml() == set()


@pytest.mark.parametrize("is_installed", [True, False], ids=["unloaded", "uninstalled"])
def test_partition_whose_claim_ends_without_the_driver_is_removed_when_it_is_back(
    host: Host, *, is_installed: bool
) -> None:
    _in_service(host)
    assert _prepare(host, "held", "gpu-3-mig-1g10gb-19-0").error == ""
    if is_installed:
        host.gpus.driver(available=False)
    else:
        host.gpus.uninstall_driver()

    _unprepare(host, "held")
    assert len(host.gpus.state.gpus[3].instances) == 1
    host.gpus.driver(available=True)

    eventually(lambda: not host.gpus.state.gpus[3].instances)


def test_plugin_that_starts_on_a_released_node_opens_nothing(host: Host) -> None:
    plugin = _in_service(host)
    _ask(host, "new driver")
    eventually(lambda: _condition(host) == ("True", "Released"))
    plugin.kill()
    plugin.wait()

    host.start(*_FLAGS)

    assert "late" in _prepare(host, "late", "gpu-4").error
    assert host.gpus.processes_with_nvml() == set()
    _ask(host, None)
    eventually(lambda: _condition(host) == ("False", "InService"))
    assert _prepare(host, "late").error == ""


def test_paused_operands_of_the_gpu_operator_release_the_node(host: Host) -> None:
    _in_service(host)
    label = "nvidia.com/gpu.deploy.dcgm"

    host.client.patch(
        NODES, NODE, MergePatch({"metadata": {"labels": {label: "paused-for-driver-upgrade"}}})
    )

    eventually(lambda: _condition(host) == ("True", "Released"))
    assert label in _condition_of(host)["message"]
    host.client.patch(NODES, NODE, MergePatch({"metadata": {"labels": {label: "true"}}}))
    eventually(lambda: _condition(host) == ("False", "InService"))


@pytest.mark.parametrize("phase", ["draining", "released", "restoring"])
def test_plugin_that_was_killed_in_a_phase_comes_back(host: Host, phase: str) -> None:
    host.plugin.mkdir(parents=True)
    (host.plugin / "release-phase").write_text(f"{phase}\n")

    host.start(*_FLAGS)

    eventually(host.has_whole_pool)
    eventually(lambda: not _tainted(host))
    eventually(lambda: not (host.plugin / "release-phase").exists())
    assert _prepare(host, "train", "gpu-3").error == ""


def test_release_goes_on_after_the_plugin_was_killed_while_it_drains(host: Host) -> None:
    plugin = _in_service(host)
    assert _prepare(host, "train", "gpu-3").error == ""
    _kill_in(host, plugin, "draining", "new driver")

    again = host.start(*_FLAGS)

    eventually(lambda: _condition(host) == ("False", "Draining"))
    assert host.gpus.processes_with_nvml() == {again.pid}
    _unprepare(host, "train")
    eventually(lambda: _condition(host) == ("True", "Released"))
    assert host.gpus.processes_with_nvml() == set()


def test_release_goes_on_after_the_plugin_was_killed_before_it_has_said_so(host: Host) -> None:
    plugin = _in_service(host)
    _kill_in(host, plugin, "released", "new driver")

    host.start(*_FLAGS)

    eventually(lambda: _condition(host) == ("True", "Released"))
    assert host.gpus.processes_with_nvml() == set()
    assert _tainted(host) == _gpus(host)


def test_restore_goes_on_after_the_plugin_was_killed(host: Host) -> None:
    plugin = _in_service(host)
    _ask(host, "new driver")
    eventually(lambda: _condition(host) == ("True", "Released"))
    _kill_in(host, plugin, "restoring", None)

    host.start(*_FLAGS)

    eventually(lambda: _condition(host) == ("False", "InService"))
    eventually(lambda: not _tainted(host))
    assert _prepare(host, "train", "gpu-3").error == ""


def test_release_goes_on_while_the_api_server_is_away(host: Host) -> None:
    plugin = _in_service(host)
    assert _prepare(host, "train", "gpu-3").error == ""
    train = _reference(host, "train")
    _ask(host, "new driver")
    eventually(lambda: _condition(host) == ("False", "Draining"))
    eventually(lambda: _tainted(host) == _gpus(host))
    host.server.stop()

    request = v1.NodeUnprepareResourcesRequest(claims=[train])
    _call(host, "NodeUnprepareResources", request, v1.NodeUnprepareResourcesResponse)

    eventually(lambda: host.gpus.processes_with_nvml() == set())
    plugin.kill()
    plugin.wait()
    host.start(*_FLAGS)
    assert host.gpus.processes_with_nvml() == set()
    host.server.start()
    eventually(lambda: _condition(host) == ("True", "Released"))
    assert host.gpus.processes_with_nvml() == set()


def test_nothing_is_written_on_a_node_that_nobody_releases(host: Host) -> None:
    before = _node(host)["metadata"]["resourceVersion"]

    _in_service(host)
    assert _prepare(host, "train", "gpu-3").error == ""

    assert _node(host)["metadata"]["resourceVersion"] == before


def _in_service(host: Host) -> subprocess.Popen[bytes]:
    plugin = host.start(*_FLAGS)
    eventually(host.has_whole_pool)
    return plugin


def _ask(host: Host, reason: str | None) -> None:
    host.client.patch(NODES, NODE, MergePatch({"metadata": {"annotations": {_RELEASE: reason}}}))


def _kill_in(host: Host, plugin: subprocess.Popen[bytes], phase: str, reason: str | None) -> None:
    """Asks for a release, or for its end, and kills the plugin once the phase is in the file."""
    file = host.plugin / "release-phase"
    _ask(host, reason)
    eventually(lambda: file.exists() and file.read_text().strip() == phase)
    plugin.kill()
    plugin.wait()


def _node(host: Host) -> Body:
    return host.client.get(NODES, NODE)


def _phase(host: Host) -> str | None:
    annotations: dict[str, str] = _node(host)["metadata"].get("annotations", {})
    return annotations.get(_PHASE)


def _condition_of(host: Host) -> Body:
    found: list[Body] = _node(host).get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == f"{DRIVER}/Released"), {})


def _condition(host: Host) -> tuple[str, str]:
    condition = _condition_of(host)
    return condition.get("status", ""), condition.get("reason", "")


def _devices(host: Host) -> list[Body]:
    return [device for body in host.slices() for device in body["spec"].get("devices", ())]


def _gpus(host: Host) -> set[str]:
    return {device["name"] for device in _devices(host)}


def _tainted(host: Host) -> set[str]:
    return {
        device["name"]
        for device in _devices(host)
        if any(taint["key"] == _TAINT for taint in device.get("taints", ()))
    }


def _driver_versions(host: Host) -> set[str]:
    attributes = (device["attributes"] for device in _devices(host))
    return {named["driverVersion"]["version"] for named in attributes}


def _files_of_the_driver(host: Host, plugin: subprocess.Popen[bytes]) -> list[str]:
    """What the process has open or mapped of the driver's library and devices."""
    process = Path("/proc") / str(plugin.pid)
    opened = [str(file.readlink()) for file in (process / "fd").iterdir()]
    mapped = [line.split()[-1] for line in (process / "maps").read_text().splitlines()]
    return [name for name in opened + mapped if "libnvidia" in name or "/dev/nvidia" in name]


def _call(host: Host, method: str, request: object, answer: type) -> object:
    with grpc.insecure_channel(f"unix:{host.plugin / 'dra.sock'}") as channel:
        call = channel.unary_unary(
            f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}",
            request_serializer=type(request).SerializeToString,  # type: ignore[attr-defined] # protobuf messages
            response_deserializer=answer.FromString,  # type: ignore[attr-defined] # protobuf messages
        )
        return call(request, timeout=45, wait_for_ready=True)


def _reference(host: Host, name: str, device: str | None = None) -> v1.Claim:
    claim = (
        host.client.get(RESOURCE_CLAIMS, name, namespace="default")
        if device is None
        else host.allocated_claim(name, device)
    )
    return v1.Claim(namespace="default", name=name, uid=claim["metadata"]["uid"])


def _prepare(host: Host, name: str, device: str | None = None) -> v1.NodePrepareResourceResponse:
    """Prepares a claim, which is made with its device if one is given."""
    claim = _reference(host, name, device)
    request = v1.NodePrepareResourcesRequest(claims=[claim])
    answer = _call(host, "NodePrepareResources", request, v1.NodePrepareResourcesResponse)
    assert isinstance(answer, v1.NodePrepareResourcesResponse)
    return answer.claims[claim.uid]


def _unprepare(host: Host, name: str) -> None:
    claim = _reference(host, name)
    request = v1.NodeUnprepareResourcesRequest(claims=[claim])
    answer = _call(host, "NodeUnprepareResources", request, v1.NodeUnprepareResourcesResponse)
    assert isinstance(answer, v1.NodeUnprepareResourcesResponse)
    assert answer.claims[claim.uid].error == ""
