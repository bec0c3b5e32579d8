"""The whole plugin as a process: on simulated GPUs, against the in-memory Kubernetes API."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import grpc
import pytest

from kubelet_plugin.kubelet.pb import dra_v1_pb2 as v1
from kubelet_plugin.kubelet.pb import dra_v1beta1_pb2 as v1beta1
from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as registration
from kubelet_plugin.settings import mig_intents
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, NODE, Host, running_host


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as host:
        yield host


def _call(path: Path, method: str, request: object, answer: type) -> object:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,  # type: ignore[attr-defined] # protobuf messages
            response_deserializer=answer.FromString,  # type: ignore[attr-defined] # protobuf messages
        )
        return call(request, timeout=45)


def test_registers_both_versions_and_publishes_every_gpu(host: Host) -> None:
    host.start()
    info = _call(
        host.registry / f"{DRIVER}-reg.sock",
        "/pluginregistration.Registration/GetInfo",
        registration.InfoRequest(),
        registration.PluginInfo,
    )
    assert isinstance(info, registration.PluginInfo)
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert info.endpoint == str(host.plugin / "dra.sock")

    def published() -> list[str]:
        names = [d["name"] for s in host.slices() for d in s["spec"].get("devices", ())]
        return [name for name in names if "-mig-" not in name]

    gpus = [f"gpu-{minor}" for minor in range(8)]
    eventually(host.has_whole_pool)
    assert published() == [gpu + kind for kind in ("", "-share", "-monitor") for gpu in gpus]


@pytest.mark.parametrize("pb", [v1, v1beta1], ids=["v1", "v1beta1"])
def test_prepares_and_unprepares_in_both_versions(host: Host, pb: object) -> None:
    host.start()
    version = "v1" if pb is v1 else "v1beta1"
    claim = host.allocated_claim("train", "gpu-3")["metadata"]
    reference = {"namespace": "default", "name": "train", "uid": claim["uid"]}
    service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    messages = v1 if pb is v1 else v1beta1

    answer = _call(
        host.plugin / "dra.sock",
        f"{service}/NodePrepareResources",
        messages.NodePrepareResourcesRequest(claims=[messages.Claim(**reference)]),
        messages.NodePrepareResourcesResponse,
    )
    (device,) = answer.claims[claim["uid"]].devices  # type: ignore[attr-defined] # a protobuf message
    assert (device.device_name, device.pool_name) == ("gpu-3", NODE)
    assert list(device.request_names) == ["gpu"]
    (spec,) = (host.folder / "cdi").iterdir()
    assert device.cdi_device_ids[0].partition("=")[2] in spec.read_text()

    answer = _call(
        host.plugin / "dra.sock",
        f"{service}/NodeUnprepareResources",
        messages.NodeUnprepareResourcesRequest(claims=[messages.Claim(**reference)]),
        messages.NodeUnprepareResourcesResponse,
    )
    assert answer.claims[claim["uid"]].error == ""  # type: ignore[attr-defined] # a protobuf message
    assert list((host.folder / "cdi").iterdir()) == []


def test_containers_get_device_metadata_if_it_is_set(host: Host) -> None:
    host.start("--device-metadata", "true")
    claim = host.allocated_claim("train", "gpu-3")["metadata"]
    reference = v1.Claim(namespace="default", name="train", uid=claim["uid"])
    service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    folder = host.plugin / "device-metadata"

    _call(
        host.plugin / "dra.sock",
        f"{service}/NodePrepareResources",
        v1.NodePrepareResourcesRequest(claims=[reference]),
        v1.NodePrepareResourcesResponse,
    )
    (spec,) = (host.folder / "cdi").iterdir()
    (device,) = json.loads(spec.read_text())["devices"]
    (mount,) = device["containerEdits"]["mounts"]
    assert mount["containerPath"] == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/train/gpu/"
        f"{DRIVER}-metadata.json"
    )
    assert mount["hostPath"] == str(folder / f"{claim['uid']}_gpu.json")
    document, _ = json.JSONDecoder().raw_decode(Path(mount["hostPath"]).read_text())
    (described,) = document["requests"][0]["devices"]
    assert (described["driver"], described["pool"], described["name"]) == (DRIVER, NODE, "gpu-3")
    assert described["attributes"]["productName"] == {"string": "NVIDIA H100 80GB HBM3"}

    _call(
        host.plugin / "dra.sock",
        f"{service}/NodeUnprepareResources",
        v1.NodeUnprepareResourcesRequest(claims=[reference]),
        v1.NodeUnprepareResourcesResponse,
    )
    assert list(folder.iterdir()) == []


def test_a_failed_claim_is_reported_in_its_own_entry_and_an_event(host: Host) -> None:
    host.start()
    good = host.allocated_claim("good", "gpu-0")["metadata"]["uid"]
    answer = _call(
        host.plugin / "dra.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        v1.NodePrepareResourcesRequest(
            claims=[
                v1.Claim(namespace="default", name="missing", uid="no-such-uid"),
                v1.Claim(namespace="default", name="good", uid=good),
            ]
        ),
        v1.NodePrepareResourcesResponse,
    )
    assert isinstance(answer, v1.NodePrepareResourcesResponse)
    assert answer.claims["no-such-uid"].error == "ResourceClaim default/missing does not exist"
    assert len(answer.claims[good].devices) == 1


def test_claims_that_wait_for_a_gpu_do_not_keep_it_from_being_given_back(host: Host) -> None:
    host.start()
    old, *new = (
        v1.Claim(
            namespace="default",
            name=name,
            uid=host.allocated_claim(name, "gpu-0")["metadata"]["uid"],
        )
        for name in ("old", *(f"new-{number}" for number in range(12)))
    )
    service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    with grpc.insecure_channel(f"unix:{host.plugin / 'dra.sock'}") as channel:
        prepare: grpc.UnaryUnaryMultiCallable[
            v1.NodePrepareResourcesRequest, v1.NodePrepareResourcesResponse
        ] = channel.unary_unary(
            f"{service}/NodePrepareResources",
            request_serializer=v1.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=v1.NodePrepareResourcesResponse.FromString,
        )
        unprepare: grpc.UnaryUnaryMultiCallable[
            v1.NodeUnprepareResourcesRequest, v1.NodeUnprepareResourcesResponse
        ] = channel.unary_unary(
            f"{service}/NodeUnprepareResources",
            request_serializer=v1.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=v1.NodeUnprepareResourcesResponse.FromString,
        )
        prepare(v1.NodePrepareResourcesRequest(claims=[old]), timeout=45)
        waiting = [
            prepare.future(v1.NodePrepareResourcesRequest(claims=[claim]), timeout=45)
            for claim in new
        ]
        events = eventually(lambda: [e for e in host.events() if e["reason"] == "PrepareRetrying"])
        assert "is still held on this node by ResourceClaim default/old" in events[0]["note"]
        answer = unprepare(v1.NodeUnprepareResourcesRequest(claims=[old]), timeout=10)
        assert answer.claims[old.uid].error == ""
        first = eventually(lambda: [call for call in waiting if call.done()])
        assert [next(iter(call.result().claims.values())).error for call in first] == [""]
        for call in waiting:
            call.cancel()


def test_sigterm_removes_the_sockets_and_leaves_the_slices(host: Host) -> None:
    process = host.start()
    eventually(host.slices)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert host.sockets() == []
    assert host.slices()


def test_sigterm_ends_it_while_a_call_of_the_driver_hangs(host: Host) -> None:
    process = host.start()
    claim = host.allocated_claim("train", "gpu-0-mig-1g10gb-19-0")["metadata"]
    host.gpus.hang("nvmlDeviceCreateGpuInstanceWithPlacement")
    records = mig_intents(host.kubelet, DRIVER)

    def is_being_made() -> bool:
        return any('"device"' in file.read_text() for file in records.glob("*.json"))

    train = v1.Claim(namespace="default", name="train", uid=claim["uid"])
    with ThreadPoolExecutor() as kubelet:
        answer = kubelet.submit(_prepare_error, host, train)
        eventually(is_being_made)
        process.terminate()
        assert process.wait(timeout=25) == 0
        assert isinstance(answer.exception(timeout=60), grpc.RpcError)  # cancelled, or cut off


def _prepare_error(host: Host, claim: v1.Claim) -> str:
    answer = _call(
        host.plugin / "dra.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        v1.NodePrepareResourcesRequest(claims=[claim]),
        v1.NodePrepareResourcesResponse,
    )
    assert isinstance(answer, v1.NodePrepareResourcesResponse)
    return str(answer.claims[claim.uid].error)


def _unprepare_error(host: Host, claim: v1.Claim) -> str:
    answer = _call(
        host.plugin / "dra.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        v1.NodeUnprepareResourcesRequest(claims=[claim]),
        v1.NodeUnprepareResourcesResponse,
    )
    assert isinstance(answer, v1.NodeUnprepareResourcesResponse)
    return str(answer.claims[claim.uid].error)


def test_while_a_look_hangs_nothing_is_prepared_and_claims_can_end(host: Host) -> None:
    host.start("--poll-seconds", "0.1", "--hang-seconds", "1")
    old, new = (
        v1.Claim(
            namespace="default",
            name=name,
            uid=host.allocated_claim(name, gpu)["metadata"]["uid"],
        )
        for name, gpu in (("old", "gpu-0"), ("new", "gpu-1"))
    )

    def tainted() -> set[str]:
        devices = [d for s in host.slices() for d in s["spec"].get("devices", ())]
        return {device["name"] for device in devices if device.get("taints")}

    assert _prepare_error(host, old) == ""
    host.gpus.hang("nvmlDeviceGetMinorNumber")

    eventually(lambda: {"gpu-0", "gpu-1", "gpu-7"} <= tainted())
    refused = eventually(
        lambda: [error for error in [_prepare_error(host, new)] if "last read" in error]
    )
    assert refused[0].startswith("ResourceClaim default/new is not prepared, because this node's")
    assert _unprepare_error(host, old) == ""
    assert list((host.folder / "cdi").iterdir()) == []

    host.gpus.release("nvmlDeviceGetMinorNumber")

    eventually(lambda: not tainted())
    assert _prepare_error(host, new) == ""


@pytest.mark.parametrize("driver", [DRIVER, "d" * 50], ids=["by UID", "by hash"])
def test_sockets_of_a_killed_plugin_are_removed_by_the_next(host: Host, driver: str) -> None:
    def start() -> tuple[subprocess.Popen[bytes], set[Path]]:
        process = host.start("--driver-name", driver, "--pod-uid", str(uuid4()))
        return process, set(host.kubelet.rglob("*.sock"))

    old, sockets_of_old = start()
    old.kill()
    old.wait()
    _, sockets_of_new = start()
    assert len(sockets_of_new) == 2
    assert sockets_of_new.isdisjoint(sockets_of_old)


def test_two_plugins_side_by_side_share_what_is_prepared(host: Host) -> None:
    host.start("--pod-uid", "old")
    host.start("--pod-uid", "new")
    claim = host.allocated_claim("train", "gpu-1")["metadata"]["uid"]
    reference = v1.Claim(namespace="default", name="train", uid=claim)
    prepared = _call(
        host.plugin / "dra-old.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        v1.NodePrepareResourcesRequest(claims=[reference]),
        v1.NodePrepareResourcesResponse,
    )
    assert isinstance(prepared, v1.NodePrepareResourcesResponse)
    assert prepared.claims[claim].error == ""
    unprepared = _call(
        host.plugin / "dra-new.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        v1.NodeUnprepareResourcesRequest(claims=[reference]),
        v1.NodeUnprepareResourcesResponse,
    )
    assert isinstance(unprepared, v1.NodeUnprepareResourcesResponse)
    assert unprepared.claims[claim].error == ""
    assert list((host.folder / "cdi").iterdir()) == []


@pytest.mark.parametrize("ip", ["127.0.0.1", "[::1]"])
def test_health_goes_through_the_sockets_and_metrics_are_there(host: Host, ip: str) -> None:
    with socket.create_server(("", 0)) as probe:
        address = f"{ip}:{probe.getsockname()[1]}"
    host.start("--http-address", address)

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert get("/healthz") == (200, "ok")
    unregistered = (503, "the kubelet has not registered the plugin yet")
    eventually(lambda: get("/readyz") == unregistered)
    assert 'carina_devices{state="ready",type="gpu"} 8.0' in get("/metrics")[1]
    for path in (host.plugin / "dra.sock", *host.registry.glob("*.sock")):
        hidden = path.with_suffix(".hidden")
        path.rename(hidden)
        status, wrong = get("/healthz")
        assert status == 503
        assert str(path) in wrong
        hidden.rename(path)
        assert get("/healthz") == (200, "ok")


@pytest.fixture
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
def test_unfinished_connections_cost_little_and_do_not_block_probes(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = host.start("--http-address", f"127.0.0.1:{port}")

    def probe_plugin() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok"

    def size() -> tuple[int, int]:
        """Resident KiB, and threads."""
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return int(status["VmRSS"].split()[0]), int(status["Threads"])

    probe_plugin()
    eventually(host.has_whole_pool)  # what it starts with, it has started
    memory, threads = size()
    with contextlib.ExitStack() as clients:

        def connect(sent: bytes) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            clients.enter_context(connection).sendall(sent)
            return connection

        dripping: list[socket.socket] = []
        for _ in range(15):
            for _ in range(50):
                connect(b"")
                connect(b"GET /metrics HTTP/1.1\r\nHost")
                connect(b"GET /metrics HTTP/1.1\r\n\r\n")  # and reads no answer
                dripping.append(connect(b"GET"))
            for connection in dripping:
                with contextlib.suppress(ConnectionError):
                    connection.send(b"x")
            probe_plugin()
        memory_after, threads_after = size()
    assert threads_after - threads <= 4
    assert memory_after - memory <= 8 << 10


def test_settings_that_cannot_be_used_end_it_with_their_names() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kubelet_plugin", "--poll-seconds", "0"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("CARINA_")},
        check=False,
    )
    assert result.returncode == 2
    assert "node_name is not set; set --node-name or CARINA_NODE_NAME" in result.stderr
    assert "poll_seconds is '0', set by the flags" in result.stderr


def test_what_it_cannot_use_ends_it_with_the_setting_s_name(host: Host) -> None:
    def said(setting: str, value: str) -> str:
        command = host.gpus.plugin_command(
            {
                "node-name": NODE,
                "kubelet-root": host.kubelet,
                "http-address": "off",
                "kubeconfig": host.kubeconfig,
                setting: value,
            }
        )
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        return result.stderr

    file = host.folder / "file"
    file.touch()
    assert f"kubelet_root {file}: " in said("kubelet-root", str(file))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"http_address {address} cannot be bound" in said("http-address", address)
    checkpoint = host.plugin / "checkpoint.jsonl"
    host.plugin.mkdir(parents=True, exist_ok=True)
    checkpoint.write_bytes(b'{"version":0,"bootID":"b","claims":[]}\n')
    message = f"carina-kubelet-plugin: checkpoint {checkpoint}: line 1 has 0 in field version"
    assert message in said("http-address", "off")
    checkpoint.unlink()
    (host.plugin / "dra.sock").mkdir(parents=True)
    assert "dra.sock" in said("http-address", "off")


def test_ends_when_one_of_its_threads_fails(host: Host) -> None:
    (host.folder / "failing_plugin.py").write_text(
        "from threading import Thread\n"
        "from kubelet_plugin import main, memory\n"
        "memory.trim_memory = Thread(target=lambda: {}['publisher'], name='failing').start\n"
        "main.main()\n"
    )
    command = host.gpus.plugin_command(
        {
            "node-name": NODE,
            "kubelet-root": host.kubelet,
            "cdi-directory": host.folder / "cdi",
            "http-address": "off",
            "kubeconfig": host.kubeconfig,
        }
    )
    command[command.index("kubelet_plugin")] = "failing_plugin"
    path = os.pathsep.join([str(host.folder), *sys.path])
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    (record,) = (
        line for line in map(json.loads, result.stderr.splitlines()) if "exception" in line
    )
    assert record["thread_name"] == "failing"
    assert "KeyError: 'publisher'" in record["exception"]
    assert host.sockets() == []


def test_ends_once_another_driver_is_installed_and_starts_with_that(host: Host) -> None:
    plugin = host.start("--poll-seconds", "0.2")
    eventually(host.slices)

    host.gpus.replace_driver("570.86.15")

    assert plugin.wait(timeout=20) == 0
    assert host.sockets() == []
    eventually(lambda: "GPUDriverReplaced" in [e["reason"] for e in host.events()])
    host.start()

    def versions() -> set[str]:
        devices = [d for s in host.slices() for d in s["spec"].get("devices", ())]
        return {d["attributes"]["driverVersion"]["version"] for d in devices}

    eventually(lambda: versions() == {"570.86.15"})


def _devices(host: Host, kind: str) -> set[str]:
    return {
        device["name"]
        for resource_slice in host.slices()
        for device in resource_slice["spec"].get("devices", ())
        if device["attributes"]["type"] == {"string": kind}
    }


def test_devices_of_prepared_claims_stay_published_when_their_kind_is_turned_off(
    host: Host,
) -> None:
    old = host.start()
    eventually(host.has_whole_pool)
    partition = min(_devices(host, "mig"))
    claims = [
        host.allocated_claim("part", partition)["metadata"],
        host.allocated_claim(
            "share",
            "gpu-5-share",
            shareID=str(uuid4()),
            consumedCapacity={"memory": "8Gi", "cores": "10"},
        )["metadata"],
    ]
    for claim in claims:
        _kubelet_calls(host, "Prepare", claim)
    old.terminate()
    old.wait(timeout=30)

    host.start("--device-kinds", "gpu")

    eventually(lambda: not _devices(host, "monitor"))
    assert _devices(host, "mig") == {partition}
    assert _devices(host, "share") == {"gpu-5-share"}
    assert len(_devices(host, "gpu")) == 8
    for claim in claims:
        _kubelet_calls(host, "Unprepare", claim)
    eventually(lambda: not _devices(host, "mig") | _devices(host, "share"))


def test_gpus_are_offered_as_the_rules_of_the_settings_file_say(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("device_kinds_by_gpu:\n- {minor: 7, kinds: [share]}\n- {minor: 6, kinds: []}\n")

    host.start("--device-kinds", "gpu", "--config", str(file))

    eventually(lambda: _devices(host, "gpu") == {f"gpu-{minor}" for minor in range(6)})
    assert _devices(host, "share") == {"gpu-7-share"}
    assert _devices(host, "mig") == set()


def _kubelet_calls(host: Host, operation: str, claim: dict[str, str]) -> None:
    reference = v1.Claim(namespace="default", name=claim["name"], uid=claim["uid"])
    answer = _call(
        host.plugin / "dra.sock",
        f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{operation}Resources",
        getattr(v1, f"Node{operation}ResourcesRequest")(claims=[reference]),
        getattr(v1, f"Node{operation}ResourcesResponse"),
    )
    assert answer.claims[claim["uid"]].error == ""  # type: ignore[attr-defined] # a protobuf message


def test_whole_gpus_and_monitors_are_offered_unless_it_is_told_otherwise(host: Host) -> None:
    command = host.gpus.plugin_command(
        {
            "node-name": NODE,
            "kubelet-root": host.kubelet,
            "http-address": "off",
            "kubeconfig": host.kubeconfig,
        }
    )
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(host.has_whole_pool)
            kinds = {kind: len(_devices(host, kind)) for kind in ("gpu", "mig", "share", "monitor")}
        finally:
            process.terminate()
    assert kinds == {"gpu": 8, "mig": 0, "share": 0, "monitor": 8}


def test_devices_that_a_repair_cannot_restore_are_not_allocated_meanwhile(host: Host) -> None:
    host.start("--repair-seconds", "1")
    eventually(host.has_whole_pool)
    claim = host.allocated_claim("train", "gpu-2")
    reference = {"uid": claim["metadata"]["uid"], "name": "train", "namespace": "default"}
    _call(
        host.plugin / "dra.sock",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        v1.NodePrepareResourcesRequest(claims=[v1.Claim(**reference)]),
        v1.NodePrepareResourcesResponse,
    )
    node, parameters = host.gpus.root / "dev/nvidia2", "proc/driver/nvidia/params"

    def tainted() -> dict[str, set[tuple[str, str, str]]]:
        return {
            device["name"]: {(t["key"], t["value"], t["effect"]) for t in device["taints"]}
            for body in host.slices()
            for device in body["spec"].get("devices") or ()
            if device.get("taints") and "-mig-" not in device["name"]
        }

    before = (host.gpus.root / parameters).read_text()
    (host.gpus.root / parameters).write_text("ModifyDeviceFiles: 0\n")
    node.unlink()
    taint = {(f"{DRIVER}/repair-failed", "DeviceNodeUnusable", "NoSchedule")}
    eventually(lambda: tainted() == {"gpu-2": taint, "gpu-2-share": taint})

    (host.gpus.root / parameters).write_text(before)
    eventually(lambda: tainted() == {})
    assert node.exists()
