"""The same CDI specs in another runtime than containerd, and with NVIDIA's real hooks.

Podman reads specs in /etc/cdi and /var/run/cdi only, so that is where these are written, and
removed again; the claim's UID keeps them apart from any other.
"""

import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from carina_dra.config.device import GpuConfig
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.claim import ClaimDevice, PreparedClaim
from kubelet_plugin.devices.whole import devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.nvml.library import NvmlLibrary
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.needs import ContainerNeeds
from simulation.kubernetes import binaries, debian
from simulation.nvml import SimulatedNode, installed
from tests.real_kubernetes import require_real_node

pytestmark = pytest.mark.node

DRIVER = "gpu.carina.dev"
_CDI = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated GPU node on which Podman runs containers."""

    gpus: SimulatedNode
    root: Path
    podman: Path

    def prepare(
        self, *granted: ClaimDevice, hook: Path | None = None
    ) -> tuple[PreparedClaim, ContainerNeeds]:
        """Prepares a claim as the plugin does."""
        claim = PreparedClaim(str(uuid.uuid4()), "default", "train", granted)
        host = HostPaths(self.gpus.root)
        with installed(self.gpus.directory):
            library = NvmlLibrary(host)
            inventory = NvmlReader(host, library).read()
            library.close()
        by_name = {device.name: device for device in devices(inventory)}
        needs = ContainerNeeds(
            driver=DRIVER,
            devices=lambda: by_name,
            driver_root=DriverRoot(self.gpus.root, self.gpus.root, hook),
            host=host,
            host_device_root=self.gpus.root,
            specs=CdiDirectory(_CDI, DRIVER),
        )
        needs.make(claim)
        return claim, needs

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


def granted(request: str, device: str) -> ClaimDevice:
    return ClaimDevice(request, "node", device, GpuConfig())


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
    claim, needs = machine.prepare(granted("train", "gpu-1"))
    try:
        (grant,) = needs.grants(claim)
        seen = machine.run(
            grant.cdi_ids,
            "ls /dev; dd if=/dev/nvidia1 count=1 2>&1; env; ls $LD_LIBRARY_PATH; ls /usr/bin",
        ).split()
    finally:
        needs.unmake(claim.uid)

    part = claim.uid.replace("-", "_")
    uuid_of_gpu = machine.gpus.state.gpus[1].uuid
    assert {"nvidia1", "nvidiactl", "nvidia-uvm"} <= set(seen)
    assert "nvidia0" not in seen
    assert f"CARINA_CLAIM_{part}_REQUEST_train_DEVICE_gpu_1={uuid_of_gpu}" in seen
    assert "NVIDIA_VISIBLE_DEVICES=void" in seen
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= set(seen)


def test_a_container_gets_only_the_devices_it_is_given(machine: Machine) -> None:
    claim, needs = machine.prepare(granted("one", "gpu-0"), granted("two", "gpu-2"))
    try:
        _, second = needs.grants(claim)
        seen = machine.run(second.cdi_ids, "ls /dev").split()
    finally:
        needs.unmake(claim.uid)

    assert "nvidia2" in seen
    assert "nvidia0" not in seen


def test_nvidias_hooks_make_links_and_the_loaders_cache(machine: Machine, tmp_path: Path) -> None:
    claim, needs = machine.prepare(granted("train", "gpu-0"), hook=binaries.nvidia_cdi_hook())
    try:
        (grant,) = needs.grants(claim)
        seen = machine.run(
            grant.cdi_ids,
            "readlink /usr/lib/*-linux-gnu/libcuda.so.1; ls /etc; cat /etc/ld.so.conf.d/*; env",
            root=_root_with_a_loader(tmp_path / "glibc"),
        ).split()
    finally:
        needs.unmake(claim.uid)

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
