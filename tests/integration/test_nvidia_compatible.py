"""Manifests for NVIDIA's DRA driver, from what the plugin publishes to what containers get.

The plugin is a process on eight simulated H100; the product's allocator chooses the devices, and a
stand-in for the kubelet calls the plugin.
"""

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from carina_dra.kube.api_resource import DEVICE_CLASSES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.sharing.files import MPS
from kubelet_plugin.claims.checkpoint import parse_checkpoint
from simulation.demo import manifests
from simulation.demo.claim_controller import release_claims
from simulation.demo.console import Console, DemoError
from simulation.demo.container_runtime import ContainerView
from simulation.demo.expected_devices import gpus_behind
from simulation.demo.kubelet import Kubelet
from simulation.demo.scheduler import ScheduledPod, schedule
from tests.eventually import eventually
from tests.integration.plugin_host import NODE, Host, running_host
from tests.integration.sharing.site import remove_daemons
from tests.samples.nvidia_checkpoint import checkpoint, entry

DRIVER = "gpu.nvidia.com"
MANIFESTS = Path(__file__).parent / "nvidia_compatible"
SHORT, MEDIUM, LONG = 1, 2, 3


@dataclass(frozen=True)
class Cluster:
    """A node with Carina in place of NVIDIA's driver."""

    host: Host
    kubelet: Kubelet

    def schedule(self, name: str) -> list[ScheduledPod]:
        """Creates the objects of a file, and finds devices for its pods."""
        client = self.host.client
        created = [
            manifests.create(client, body) for body in manifests.load(MANIFESTS / f"{name}.yaml")
        ]
        return [schedule(client, pod) for pod in manifests.pods(created)]

    def end(self, pod: ScheduledPod) -> None:
        self.kubelet.stop(pod.pod)
        release_claims(self.host.client, pod.pod, pod.claims)

    def allocated(self, pod: ScheduledPod) -> list[str]:
        """The names of the pod's devices."""
        return [
            result["device"]
            for name in pod.claims
            for result in self._claim(name)["status"]["allocation"]["devices"]["results"]
        ]

    def time_slices(self) -> dict[int, int]:
        """The numbers of the intervals that are set, by minor number."""
        gpus = self.host.gpus
        by_uuid = gpus.time_slices()
        return {
            minor: by_uuid[gpu.uuid]
            for minor, gpu in gpus.state.gpus.items()
            if by_uuid.get(gpu.uuid)
        }

    def mps_commands(self, claim: str) -> list[str]:
        """What the MPS daemon of a claim was told, in this order."""
        return [line["command"] for line in self.host.gpus.mps_commands() if line["of"] == claim]

    def instances(self) -> dict[int, int]:
        """How many MIG instances GPUs have, by minor number."""
        gpus = self.host.gpus.state.gpus
        return {minor: len(gpu.instances) for minor, gpu in gpus.items() if gpu.instances}

    def prepared_by_nvidias_driver(self, pod: ScheduledPod) -> Path:
        """Leaves what NVIDIA's driver has left of the pod's claim; returns the CDI spec."""
        (name,) = pod.claims
        claim = self._claim(name)
        uid = claim["metadata"]["uid"]
        listed = {uid: entry(*claim["status"]["allocation"]["devices"]["results"])}
        file = self.plugin_directory / "checkpoint.json"
        file.write_bytes(checkpoint(listed, boot_id=self.host.gpus.state.boot_id))
        spec = self.host.folder / "cdi" / f"k8s.{DRIVER}-claim_{uid}.yaml"
        spec.parent.mkdir(exist_ok=True)
        spec.touch()
        return spec

    @property
    def plugin_directory(self) -> Path:
        return self.host.kubelet / "plugins" / DRIVER

    def _claim(self, name: str) -> Body:
        return self.host.client.get(RESOURCE_CLAIMS, name, namespace="default")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_host(top=Path("/tmp")) as host:
        for body in manifests.load(manifests.DEPLOY / "nvidia-compatible/deviceclass.yaml"):
            host.client.create(DEVICE_CLASSES, body)
        host.start("--driver-name", DRIVER, "--device-kinds", "gpu,mig")
        eventually(host.has_whole_pool)
        console = Console(sys.stdout)
        with Kubelet(NODE, host.registry, host.folder / "cdi", host.client, console) as kubelet:
            (path,) = host.registry.glob("*.sock")
            assert kubelet.register(path).name == DRIVER
            made = Cluster(host, kubelet)
            try:
                yield made
            finally:
                for process in host.processes:
                    process.kill()
                    process.wait()
                remove_daemons(made.plugin_directory / MPS, DRIVER)


def uuids(view: ContainerView, prefix: str) -> set[str]:
    return {value for value in view.environment.values() if value.startswith(prefix)}


def test_only_the_kinds_of_devices_that_nvidias_users_know_are_published(cluster: Cluster) -> None:
    types = {
        device["attributes"]["type"]["string"]
        for body in cluster.host.slices()
        for device in body["spec"].get("devices", ())
    }

    assert types == {"gpu", "mig"}


def test_two_containers_share_a_gpu(cluster: Cluster) -> None:
    (pod,) = cluster.schedule("two-containers")

    views = cluster.kubelet.start(pod)

    assert cluster.allocated(pod) == ["gpu-0"]
    assert views["first"] == views["second"]
    assert gpus_behind(views["first"].device_nodes) == ["gpu-0"]


def test_two_pods_share_a_claim_until_the_last_has_ended(cluster: Cluster) -> None:
    first, second = cluster.schedule("two-pods")

    assert cluster.kubelet.start(first) == cluster.kubelet.start(second)
    assert len(cluster.kubelet.prepare_seconds) == 1
    cluster.end(first)
    assert len(list((cluster.host.folder / "cdi").iterdir())) == 1
    cluster.end(second)
    assert list((cluster.host.folder / "cdi").iterdir()) == []


def test_four_partitions_of_one_parent_go_to_a_container_each(cluster: Cluster) -> None:
    (pod,) = cluster.schedule("mig-on-one-parent")

    views = cluster.kubelet.start(pod)

    assert cluster.instances() == {0: 4}
    assert [name.split("-")[3] for name in cluster.allocated(pod)] == [
        "1g10gb",
        "1g10gb",
        "2g20gb",
        "3g40gb",
    ]
    of_container = {name: uuids(view, "MIG-") for name, view in views.items()}
    assert {len(found) for found in of_container.values()} == {1}
    assert len(set.union(*of_container.values())) == 4
    cluster.end(pod)
    assert cluster.instances() == {}


def test_time_slicing_sets_the_gpus_interval_and_changes_nothing_on_a_partition(
    cluster: Cluster,
) -> None:
    (pod,) = cluster.schedule("time-slicing")

    cluster.kubelet.start(pod)

    gpu, partition = cluster.allocated(pod)
    assert "-mig-" in partition
    assert cluster.time_slices() == {int(gpu.removeprefix("gpu-")): LONG}
    cluster.end(pod)
    assert cluster.time_slices() == {}


def test_a_claims_time_slicing_overrides_that_of_its_class(cluster: Cluster) -> None:
    for pod in cluster.schedule("time-slicing-by-class"):
        cluster.kubelet.start(pod)

    assert cluster.time_slices() == {0: SHORT, 1: MEDIUM}


def test_configurations_are_recorded_as_carinas_own(cluster: Cluster) -> None:
    (pod,) = cluster.schedule("time-slicing")
    cluster.kubelet.start(pod)

    file = cluster.plugin_directory / "checkpoint.jsonl"
    (claim,) = parse_checkpoint(file.read_bytes()).claims.values()
    assert [(device.config.apiVersion, device.config.kind) for device in claim.devices] == [
        ("resource.carina.dev/v1alpha1", "GpuConfig"),
        ("resource.carina.dev/v1alpha1", "MigDeviceConfig"),
    ]


def test_two_containers_share_a_gpu_by_mps(cluster: Cluster) -> None:
    cluster.host.start_sharing(DRIVER)
    (pod,) = cluster.schedule("mps")

    views = cluster.kubelet.start(pod)

    assert views["first"] == views["second"]
    assert views["first"].environment["CUDA_MPS_PIPE_DIRECTORY"] == "/run/carina-mps/pipe"
    assert gpus_behind(views["first"].device_nodes) == cluster.allocated(pod)
    (folder,) = (cluster.plugin_directory / "mps").iterdir()
    commands = cluster.mps_commands(folder.name)
    assert "set_default_device_pinned_mem_limit 0 10240M" in commands
    assert "set_default_active_thread_percentage 50" in commands
    cluster.end(pod)
    assert list((cluster.plugin_directory / "mps").iterdir()) == []


def test_a_claim_has_a_gpu_with_time_slices_and_another_with_mps(cluster: Cluster) -> None:
    cluster.host.start_sharing(DRIVER)
    (pod,) = cluster.schedule("mps-beside-time-slicing")

    views = cluster.kubelet.start(pod)

    assert cluster.allocated(pod) == ["gpu-0", "gpu-1"]
    assert cluster.time_slices() == {0: LONG}
    by_mps = {name for name, view in views.items() if "CUDA_MPS_PIPE_DIRECTORY" in view.environment}
    assert by_mps == {"mps-first", "mps-second"}
    assert gpus_behind(views["mps-first"].device_nodes) == ["gpu-1"]
    cluster.end(pod)


def test_pod_without_a_claim_gets_gpus_as_an_extended_resource(cluster: Cluster) -> None:
    (pod,) = cluster.schedule("extended-resource")

    views = cluster.kubelet.start(pod)

    assert cluster.allocated(pod) == ["gpu-0", "gpu-1"]
    assert gpus_behind(views["main"].device_nodes) == ["gpu-0", "gpu-1"]
    assert len(uuids(views["main"], "GPU-")) == 2


def test_a_claim_that_nvidias_driver_prepared_is_refused_with_an_event(cluster: Cluster) -> None:
    (pod,) = cluster.schedule("two-containers")
    spec = cluster.prepared_by_nvidias_driver(pod)

    with pytest.raises(DemoError, match="was prepared on this node by NVIDIA's DRA driver"):
        cluster.kubelet.start(pod)

    def noted() -> list[str]:
        events = cluster.host.events()
        return [event["note"] for event in events if event["reason"] == "PrepareFailed"]

    (note,) = eventually(noted)
    assert "delete all pods on this node that use the claim, and create them again" in note
    assert spec.exists()


@contextmanager
def nvidias_plugin(host: Host) -> Iterator[None]:
    """NVIDIA's plugin runs on the node."""
    directory = host.kubelet / "plugins" / DRIVER
    directory.mkdir(parents=True)
    (directory / "checkpoint.json").write_bytes(checkpoint({}))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / "dra.sock"))
        listening.listen()
        yield


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_calls_are_not_taken_from_nvidias_plugin_while_it_runs() -> None:
    with running_host(top=Path("/tmp")) as host:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        with nvidias_plugin(host):
            host.launch("--driver-name", DRIVER, "--pod-uid", "new", "--http-address", address)
            eventually(lambda: "does not register" in host.log.read_text(), within=30)
            status, problem = get(f"http://{address}/readyz")
            assert (status, "/plugins/gpu.nvidia.com/dra.sock" in problem) == (503, True)
            assert get(f"http://{address}/healthz") == (200, "ok")
            assert list(host.registry.iterdir()) == []

        (registered,) = eventually(lambda: list(host.registry.iterdir()))
        assert registered.name == f"{DRIVER}-new-reg.sock"


def test_with_the_setting_publish_they_are_taken() -> None:
    with running_host() as host, nvidias_plugin(host):
        host.start("--driver-name", DRIVER, "--pod-uid", "new", "--beside-other-drivers", "publish")


def test_a_plugin_of_carina_is_not_taken_for_nvidias_in_a_rolling_update() -> None:
    with running_host(top=Path("/tmp")) as host:
        flags = ("--driver-name", DRIVER)
        with nvidias_plugin(host):
            pass
        host.start(*flags, "--pod-uid", "old")
        host.start(*flags, "--pod-uid", "new")
        assert len(list(host.registry.iterdir())) == 2
