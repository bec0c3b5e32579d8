"""The same CDI specs in another runtime than containerd, and with NVIDIA's real hooks.

Podman reads specs in /etc/cdi and /var/run/cdi only, so that is where these are written, and
removed again; the claim's UID keeps them apart from any other.
"""

import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from carina_dra.config.device import GpuConfig
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim, PreparedDevice
from kubelet_plugin.devices.device import devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.wanted import identities, wanted
from simulation.kubernetes import binaries, debian
from simulation.nvml import SimulatedNode, installed
from tests.fakes.node_ports import node_ports
from tests.real_kubernetes import require_real_node
from tests.samples.driver import installed_at

pytestmark = pytest.mark.node

DRIVER = "gpu.carina.dev"
_CDI = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated GPU node on which Podman runs containers."""

    gpus: SimulatedNode
    root: Path
    podman: Path

    @contextmanager
    def prepared(
        self,
        *allocated: AllocatedDevice,
        hook: Path | None = None,
        device_metadata: bool = False,
    ) -> Iterator[tuple[PreparedDevice, ...]]:
        """Prepares a claim as the plugin does, and gives what the kubelet is answered."""
        claim = NodeClaim(str(uuid.uuid4()), "default", "train", allocated)
        host = HostPaths(self.gpus.root)
        with installed(self.gpus.directory):
            library = NvmlLibrary(host.gpu_addresses)
            inventory = NvmlReader(host, library).read()
            library.close()
        by_name = {device.name: device for device in devices(inventory)}
        cdi_specs = CdiSpecs(
            driver=DRIVER,
            driver_root=DriverRoot(installed_at(self.gpus.root), hook),
            host=host,
            host_device_root=self.gpus.root,
            directory=CdiDirectory(_CDI, DRIVER),
        )
        preparer = Preparer(
            node_ports(
                cdi_specs,
                root=self.gpus.root,
                intents=self.gpus.directory / "mig",
                boot_id="boot-1",
            ),
            identities=identities,
            wanted=lambda claims, live: wanted(
                claims, live, by_name, device_metadata=device_metadata
            ),
            answer=lambda claim: prepared_devices(DRIVER, claim),
        )
        preparer.reconcile((claim,), {claim.uid: claim})
        try:
            yield preparer.prepared_devices(claim)
        finally:
            preparer.reconcile((claim,), {})

    def run(self, cdi_ids: tuple[str, ...], script: str, *, root: Path | None = None) -> str:
        """Runs a script in a container that is given CDI devices; gives what it prints."""
        asked = [part for name in cdi_ids for part in ("--device", name)]
        command: list[str | Path] = [
            *(self.podman, "--runtime", "runc", "--cgroup-manager=cgroupfs", "run", "--rm"),
            *("--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
            *asked,
            *("--rootfs", root or self.root, "/bin/sh", "-c", script),
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout


def allocated(request: str, device: str) -> AllocatedDevice:
    return AllocatedDevice(request, "node", device, GpuConfig())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    require_real_node()
    podman = debian.podman()
    assert podman is not None
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    for name in ("dev", "etc", "proc", "sys", "tmp"):
        (root / name).mkdir()
    busybox = debian.busybox()
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for applet in ("sh", "ls", "env", "cat", "dd"):
        (root / "bin" / applet).symlink_to("busybox")
    gpus = SimulatedNode.create(tmp_path / "node", "t4")
    return Machine(gpus, root, podman)


def test_podman_gives_the_device_the_environment_and_the_libraries(machine: Machine) -> None:
    with machine.prepared(allocated("train", "gpu-1")) as answer:
        (device,) = answer
        seen = machine.run(
            device.cdi_ids,
            "ls /dev; dd if=/dev/nvidia1 count=1 2>&1; env; ls $LD_LIBRARY_PATH; ls /usr/bin",
        ).split()

    uid = device.cdi_ids[0].removeprefix(f"{DRIVER}/claim=claim-").partition("_")[0]
    part = uid.replace("-", "_")
    uuid_of_gpu = machine.gpus.state.gpus[1].uuid
    assert {"nvidia1", "nvidiactl", "nvidia-uvm"} <= set(seen)
    assert "nvidia0" not in seen
    assert f"CARINA_CLAIM_{part}_REQUEST_train_DEVICE_gpu_1={uuid_of_gpu}" in seen
    assert "NVIDIA_VISIBLE_DEVICES=void" in seen
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= set(seen)


def test_a_container_gets_only_the_devices_it_is_given(machine: Machine) -> None:
    with machine.prepared(allocated("one", "gpu-0"), allocated("two", "gpu-2")) as answer:
        _, second = answer
        seen = machine.run(second.cdi_ids, "ls /dev").split()

    assert "nvidia2" in seen
    assert "nvidia0" not in seen


def test_a_container_reads_the_metadata_of_the_requests_it_is_given(machine: Machine) -> None:
    folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/train"
    requests = allocated("two", "gpu-0"), allocated("two", "gpu-1"), allocated("one", "gpu-2")
    with machine.prepared(*requests, device_metadata=True) as answer:
        first, second, _ = answer
        seen = machine.run(
            (*first.cdi_ids, *second.cdi_ids),
            f"ls {folder}; cat {folder}/two/{DRIVER}-metadata.json;"
            f"echo no > {folder}/two/{DRIVER}-metadata.json || echo is read-only",
        )

    requests_seen, _, rest = seen.partition("\n")
    assert requests_seen == "two"
    document, _ = json.JSONDecoder().raw_decode(rest)
    names = [device["name"] for device in document["requests"][0]["devices"]]
    assert names == ["gpu-0", "gpu-1"]
    assert rest.endswith("is read-only\n")


def test_nvidias_hooks_make_links_and_the_loaders_cache(machine: Machine, tmp_path: Path) -> None:
    with machine.prepared(allocated("train", "gpu-0"), hook=binaries.nvidia_cdi_hook()) as answer:
        (device,) = answer
        seen = machine.run(
            device.cdi_ids,
            "readlink /usr/lib/*-linux-gnu/libcuda.so.1; ls /etc; cat /etc/ld.so.conf.d/*; env",
            root=_root_with_a_loader(tmp_path / "glibc"),
        ).split()

    assert f"libcuda.so.{machine.gpus.hardware.driver_version}" in seen
    assert "ld.so.cache" in seen
    assert any(line.startswith("/usr/lib/") for line in seen)
    assert not any(line.startswith("LD_LIBRARY_PATH=") for line in seen)


def _root_with_a_loader(root: Path) -> Path:
    """A root file system with this machine's dynamic linker and ldconfig, which the hook runs."""
    for name in ("dev", "etc", "proc", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    busybox = debian.busybox()
    assert busybox is not None
    shutil.copy(busybox, root / "usr/bin/busybox")
    for applet in ("sh", "ls", "cat", "readlink", "env"):
        (root / "usr/bin" / applet).symlink_to("busybox")
    ldconfig = Path("/sbin/ldconfig")
    real = Path("/sbin/ldconfig.real")  # Ubuntu's ldconfig is a script around it
    shutil.copy(real if real.exists() else ldconfig, root / "usr/sbin/ldconfig")
    return root
