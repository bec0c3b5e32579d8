"""Device nodes that are missing or wrong, and what is done about it."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubelet_plugin.host import CharacterDevice, HostPaths, Permissions
from kubelet_plugin.prepare.device_nodes import (
    DeviceNodeError,
    NvidiaNodes,
)
from kubelet_plugin.prepare.resource import MadeInstance
from tests.samples.gpus import gpu

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
MAJORS = "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n259 blkext\n"
EVERYBODY = Permissions(0o666, 0, 0)
needs_mknod = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")


class Kernel:
    """Stands in for mknod, chown and stat of device nodes, which need rights that tests may lack.

    A node is a file that holds its numbers.
    """

    def __init__(self, host: HostPaths) -> None:
        self.host = host
        self.fails: OSError | None = None
        self.made: list[Path] = []
        self._owners: dict[int, tuple[int, int]] = {}

    def make(self, path: Path, mode: int, device: int) -> None:
        if self.fails:
            raise self.fails
        assert stat.S_ISCHR(mode)
        path.write_text(f"{os.major(device)}:{os.minor(device)}")
        path.chmod(stat.S_IMODE(mode))
        self.made.append(path)

    def own(self, path: Path, uid: int, gid: int) -> None:
        self._owners[path.stat().st_ino] = uid, gid

    def device(self, absolute: str) -> CharacterDevice | None:
        path = self.host.path(absolute)
        try:
            major, _, minor = path.read_text().partition(":")
        except OSError:
            return None
        status = path.stat()
        owner = self._owners.get(status.st_ino, (0, 0))
        permissions = Permissions(status.st_mode & 0o777, *owner)
        return CharacterDevice(int(major), int(minor), permissions) if minor else None

    def has(self, absolute: str, numbers: str, mode: int = 0o666) -> None:
        path = self.host.path(absolute)
        path.parent.mkdir(exist_ok=True)
        path.write_text(numbers)
        path.chmod(mode)

    def parameters(self, **values: int) -> None:
        path = self.host.path("/proc/driver/nvidia/params")
        path.parent.mkdir(parents=True)
        lines = {"EnableMSI": 1, **values}.items()
        text = "".join(f"{name}: {value}\n" for name, value in lines)
        path.write_text(f'{text}RegistryDwords: ""\n')


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text(MAJORS)
    return HostPaths(tmp_path)


@pytest.fixture
def kernel(host: HostPaths, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(host)
    monkeypatch.setattr(os, "mknod", kernel.make)
    monkeypatch.setattr(os, "chown", kernel.own)
    monkeypatch.setattr(HostPaths, "character_device", lambda _, path: kernel.device(path))
    return kernel


def test_missing_nodes_are_made_with_the_kernels_numbers(host: HostPaths, kernel: Kernel) -> None:
    assert NvidiaNodes(host).ensure_control() == CONTROL_NODES
    assert NvidiaNodes(host).ensure_gpu(gpu(3)) == ("/dev/nvidia3",)
    made = {path: host.character_device(path) for path in (*CONTROL_NODES, "/dev/nvidia3")}
    assert made == {
        "/dev/nvidiactl": CharacterDevice(195, 255, EVERYBODY),
        "/dev/nvidia-uvm": CharacterDevice(510, 0, EVERYBODY),
        "/dev/nvidia-uvm-tools": CharacterDevice(510, 1, EVERYBODY),
        "/dev/nvidia3": CharacterDevice(195, 3, EVERYBODY),
    }


def test_a_node_has_its_permissions_whatever_the_umask(host: HostPaths, kernel: Kernel) -> None:
    before = os.umask(0o077)
    try:
        NvidiaNodes(host).ensure_gpu(gpu(0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(host.path("/dev/nvidia0").stat().st_mode) == 0o666
    assert [entry.name for entry in host.path("/dev").iterdir()] == ["nvidia0"]


def test_a_node_that_is_right_is_left_alone(host: HostPaths, kernel: Kernel) -> None:
    NvidiaNodes(host).ensure_gpu(gpu(0))
    before = host.path("/dev/nvidia0").stat()
    assert NvidiaNodes(host).ensure_gpu(gpu(0)) == ("/dev/nvidia0",)
    assert host.path("/dev/nvidia0").stat() == before


@pytest.mark.parametrize(
    ("path", "stale", "right"),
    [
        ("/dev/nvidiactl", "195:0", (195, 255)),
        ("/dev/nvidia-uvm", "511:0", (510, 0)),
        ("/dev/nvidia-uvm-tools", "510:0", (510, 1)),
    ],
)
def test_a_node_with_other_numbers_is_replaced(
    host: HostPaths, kernel: Kernel, path: str, stale: str, right: tuple[int, int]
) -> None:
    kernel.has(path, stale)
    NvidiaNodes(host).ensure_control()
    assert host.character_device(path) == CharacterDevice(*right, EVERYBODY)


def test_a_node_of_another_driver_is_never_handed_out(host: HostPaths, kernel: Kernel) -> None:
    kernel.has("/dev/nvidia0", "8:0")
    NvidiaNodes(host).ensure_gpu(gpu(0))
    assert host.character_device("/dev/nvidia0") == CharacterDevice(195, 0, EVERYBODY)


def test_a_replacement_is_whole_before_it_has_the_nodes_name(
    host: HostPaths, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.has("/dev/nvidia0", "8:0")
    seen: list[CharacterDevice | None] = []
    rename = Path.rename

    def watched(path: Path, target: Path) -> Path:
        seen.append(host.character_device(f"/dev/{path.name}"))
        seen.append(host.character_device("/dev/nvidia0"))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    NvidiaNodes(host).ensure_gpu(gpu(0))
    assert seen == [CharacterDevice(195, 0, EVERYBODY), CharacterDevice(8, 0, EVERYBODY)]


def test_what_a_killed_process_has_left_is_removed(host: HostPaths, kernel: Kernel) -> None:
    kernel.has("/dev/.nvidia0.0123456789abcdef.new", "195:0", 0o600)
    kernel.has("/dev/.nvidia1.0123456789abcdef.new", "195:1", 0o600)
    NvidiaNodes(host).ensure_gpu(gpu(0))
    assert {entry.name for entry in host.path("/dev").iterdir()} == {
        "nvidia0",
        ".nvidia1.0123456789abcdef.new",
    }


def test_permissions_are_those_of_the_modules_parameters(host: HostPaths, kernel: Kernel) -> None:
    kernel.parameters(DeviceFileUID=7, DeviceFileGID=44, DeviceFileMode=0o660, ModifyDeviceFiles=1)
    kernel.has("/dev/nvidia1", "195:1")
    for minor in (0, 1):
        NvidiaNodes(host).ensure_gpu(gpu(minor))
        made = host.character_device(f"/dev/nvidia{minor}")
        assert made == CharacterDevice(195, minor, Permissions(0o660, 7, 44))


def test_uvm_has_permissions_of_its_own(host: HostPaths, kernel: Kernel) -> None:
    kernel.parameters(DeviceFileGID=44, DeviceFileMode=0o660)
    NvidiaNodes(host).ensure_control()
    permissions = {
        path: device.permissions
        for path in CONTROL_NODES
        if (device := host.character_device(path)) is not None
    }
    assert permissions == {
        "/dev/nvidiactl": Permissions(0o660, 0, 44),
        "/dev/nvidia-uvm": EVERYBODY,
        "/dev/nvidia-uvm-tools": EVERYBODY,
    }


@pytest.mark.parametrize(
    ("there", "state"), [(None, "missing"), ("8:0", "8:0"), ("195:1", "195:1")]
)
def test_nodes_that_must_not_be_modified_fail_the_claim(
    host: HostPaths, kernel: Kernel, there: str | None, state: str
) -> None:
    kernel.parameters(ModifyDeviceFiles=0, DeviceFileMode=0o660, DeviceFileGID=44)
    if there is not None:
        kernel.has("/dev/nvidia0", there)
    with pytest.raises(DeviceNodeError) as caught:
        NvidiaNodes(host).ensure_gpu(gpu(0))
    path = host.path("/dev/nvidia0")
    for words in (
        f"{path} is {state} and must be 195:0",
        "ModifyDeviceFiles: 0",
        f"rm -f {path}; mknod -m 660 {path} c 195 0; chown 0:44 {path}",
        "NVreg_ModifyDeviceFiles=1",
    ):
        assert words in str(caught.value)
    assert kernel.made == []


def test_nodes_that_must_not_be_modified_keep_their_permissions(
    host: HostPaths, kernel: Kernel
) -> None:
    kernel.parameters(ModifyDeviceFiles=0)
    for path, numbers in zip(CONTROL_NODES, ("195:255", "510:0", "510:1"), strict=True):
        kernel.has(path, numbers, 0o640)
    assert NvidiaNodes(host).ensure_control() == CONTROL_NODES
    assert kernel.made == []


def test_an_older_driver_has_another_name_for_its_major(host: HostPaths, kernel: Kernel) -> None:
    host.path("/proc/devices").write_text(MAJORS.replace("195 nvidia\n", "195 nvidia-frontend\n"))
    NvidiaNodes(host).ensure_gpu(gpu(1))
    assert host.character_device("/dev/nvidia1") == CharacterDevice(195, 1, EVERYBODY)


# --- nodes that only graphics needs ---


@pytest.mark.parametrize("driver", ["nvidia-modeset", "nvidia-frontend"])
def test_modeset_is_handed_out_where_it_exists(
    host: HostPaths, kernel: Kernel, driver: str
) -> None:
    host.path("/proc/devices").write_text(MAJORS.replace("510", f"195 {driver}\n510"))
    assert NvidiaNodes(host).ensure_control() == CONTROL_NODES
    kernel.has("/dev/nvidia-modeset", "195:0")
    assert NvidiaNodes(host).ensure_control() == (*CONTROL_NODES, "/dev/nvidia-modeset")
    made = host.character_device("/dev/nvidia-modeset")
    assert made == CharacterDevice(195, 254, EVERYBODY)


def test_modeset_without_its_module_is_left_out(host: HostPaths, kernel: Kernel) -> None:
    kernel.has("/dev/nvidia-modeset", "195:254")
    assert NvidiaNodes(host).ensure_control() == CONTROL_NODES


def test_drm_nodes_are_those_of_the_gpu(host: HostPaths, kernel: Kernel) -> None:
    drm = host.path(f"/sys/bus/pci/devices/{gpu(0).pci_bus_id}/drm")
    numbers = {"card1": "226:1", "renderD128": "226:128", "controlD65": "226:65", "card7": "226:7"}
    for name, text in numbers.items():
        (drm / name).mkdir(parents=True)
        (drm / name / "dev").write_text(f"{text}\n")
    kernel.has("/dev/dri/card0", "226:0")
    for name in ("card1", "renderD128", "controlD65"):
        kernel.has(f"/dev/dri/{name}", numbers[name])
    assert NvidiaNodes(host).ensure_gpu(gpu(0)) == (
        "/dev/nvidia0",
        "/dev/dri/card1",
        "/dev/dri/renderD128",
    )
    kernel.has("/dev/dri/card1", "226:2")
    assert NvidiaNodes(host).ensure_gpu(gpu(0)) == ("/dev/nvidia0", "/dev/dri/renderD128")


# --- what cannot be made ---


@pytest.mark.parametrize("there", [(), ("/dev/nvidia-uvm",)])
def test_without_the_kernel_module_the_error_says_to_load_it(
    host: HostPaths, kernel: Kernel, there: tuple[str, ...]
) -> None:
    host.path("/proc/devices").write_text(MAJORS.replace("510 nvidia-uvm\n", ""))
    for path in there:
        kernel.has(path, "510:0")
    with pytest.raises(DeviceNodeError, match=r"/dev/nvidia-uvm .*load .*nvidia-modprobe -u"):
        NvidiaNodes(host).ensure_control()


def test_without_the_right_to_the_error_says_what_to_run(host: HostPaths, kernel: Kernel) -> None:
    kernel.fails = PermissionError(errno.EPERM, "Operation not permitted")
    with pytest.raises(DeviceNodeError, match=r"mknod -m 666 \S*/dev/nvidia2 c 195 2"):
        NvidiaNodes(host).ensure_gpu(gpu(2))


def test_without_dev_the_error_says_so(host: HostPaths, kernel: Kernel) -> None:
    host.path("/dev").rmdir()
    with pytest.raises(DeviceNodeError, match=r"/dev/nvidia2 .* cannot be created.*No such file"):
        NvidiaNodes(host).ensure_gpu(gpu(2))


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_something_else_in_its_place_is_not_a_node(
    host: HostPaths, make: Callable[[Path], None]
) -> None:
    make(host.path("/dev/nvidia0"))
    with pytest.raises(DeviceNodeError, match="is not a character device; remove it"):
        NvidiaNodes(host).ensure_gpu(gpu(0))


def test_a_program_that_changes_a_node_again_and_again_is_named_as_the_cause(
    host: HostPaths, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def undone(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        kernel.has("/dev/nvidia0", "8:0")
        return renamed

    monkeypatch.setattr(Path, "rename", undone)
    with pytest.raises(DeviceNodeError, match="another program changes it"):
        NvidiaNodes(host).ensure_gpu(gpu(0))


# --- several at once ---


@needs_mknod
def test_several_processes_may_make_a_node_at_once(host: HostPaths) -> None:
    """A thread that has ensured a node finds it complete, whatever other threads do."""
    path, users, rounds = host.path("/dev/nvidia0"), 4, 50
    barrier = threading.Barrier(users, action=lambda: _spoil(path))

    def ensure_again_and_again(_: int) -> None:
        for _ in range(rounds):
            barrier.wait(30)
            NvidiaNodes(host).ensure_gpu(gpu(0))
            assert host.character_device("/dev/nvidia0") == CharacterDevice(195, 0, EVERYBODY)

    with ThreadPoolExecutor(users) as threads:
        list(threads.map(ensure_again_and_again, range(users)))
    assert [entry.name for entry in path.parent.iterdir()] == ["nvidia0"]


def _spoil(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(8, 0))


@needs_mknod
def test_a_node_that_another_process_makes_meanwhile_is_taken(
    host: HostPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.path("/dev").mkdir(exist_ok=True)
    look = HostPaths.character_device

    def looked_too_early(self: HostPaths, path: str) -> CharacterDevice | None:
        found = look(self, path)
        if found is None:
            node = host.path(path)
            os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(195, 2))
            node.chmod(0o666)
        return found

    monkeypatch.setattr(HostPaths, "character_device", looked_too_early)
    assert NvidiaNodes(host).ensure_gpu(gpu(2)) == ("/dev/nvidia2",)


# --- MIG instances ---

INSTANCE = MadeInstance(gpu_instance=7, compute_instance=0, uuid="MIG-7")
READABLE = Permissions(0o444, 0, 0)
OF_INSTANCE, OF_COMPUTE = "gpu3/mig/gi7/access", "gpu3/mig/gi7/ci0/access"
CAPABILITIES = "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"


def has_capabilities(host: HostPaths, *, modify: int = 1) -> None:
    """The kernel has the capabilities of the instance; 292 is 0o444."""
    host.path("/proc/devices").write_text(MAJORS.replace("510", "508 nvidia-caps\n510"))
    for name, minor in ((OF_INSTANCE, 66), (OF_COMPUTE, 67)):
        file = host.path(f"/proc/driver/nvidia/capabilities/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: {modify}\n"
        )


def test_nodes_of_an_instance_are_made_as_the_kernel_says(host: HostPaths, kernel: Kernel) -> None:
    has_capabilities(host)

    paths = NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)

    assert paths == ("/dev/nvidia3", *CAPABILITIES)
    assert host.character_device(CAPABILITIES[0]) == CharacterDevice(508, 66, READABLE)
    assert host.character_device(CAPABILITIES[1]) == CharacterDevice(508, 67, READABLE)


def test_the_folder_of_capabilities_is_made_for_everybody_whatever_the_umask(
    host: HostPaths, kernel: Kernel
) -> None:
    has_capabilities(host)
    before = os.umask(0o077)
    try:
        NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)
    finally:
        os.umask(before)

    assert stat.S_IMODE(host.path("/dev/nvidia-caps").stat().st_mode) == 0o755


def test_a_folder_of_capabilities_that_cannot_be_made_is_an_error_with_its_path(
    host: HostPaths, kernel: Kernel
) -> None:
    has_capabilities(host)
    host.path("/dev/nvidia-caps").write_text("a file")

    with pytest.raises(DeviceNodeError, match=r"/dev/nvidia-caps cannot be created: .*exists"):
        NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)


def test_a_capability_node_with_another_major_number_is_replaced(
    host: HostPaths, kernel: Kernel
) -> None:
    has_capabilities(host)
    kernel.has(CAPABILITIES[0], "507:66", 0o444)

    NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)

    assert host.character_device(CAPABILITIES[0]) == CharacterDevice(508, 66, READABLE)


@pytest.mark.parametrize("name", [OF_INSTANCE, OF_COMPUTE])
@pytest.mark.parametrize("content", [None, "", "DeviceFileMode: 292\n", "DeviceFileMinor: x\n"])
def test_a_missing_or_damaged_capability_is_named_with_its_file(
    host: HostPaths, kernel: Kernel, name: str, content: str | None
) -> None:
    has_capabilities(host)
    file = host.path(f"/proc/driver/nvidia/capabilities/{name}")
    if content is None:
        file.unlink()
    else:
        file.write_text(content)

    with pytest.raises(DeviceNodeError, match=f"{file} is missing or damaged"):
        NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)


def test_without_the_major_number_of_capabilities_the_remedy_is_named(
    host: HostPaths, kernel: Kernel
) -> None:
    has_capabilities(host)
    host.path("/proc/devices").write_text(MAJORS)

    with pytest.raises(DeviceNodeError, match=r"does not list nvidia-caps; load the nvidia module"):
        NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)


def test_capability_nodes_that_must_not_be_modified_are_used_as_they_are(
    host: HostPaths, kernel: Kernel
) -> None:
    has_capabilities(host, modify=0)
    kernel.has(CAPABILITIES[0], "508:66", 0o400)
    kernel.has(CAPABILITIES[1], "508:67", 0o400)

    assert NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)[1:] == CAPABILITIES


@pytest.mark.parametrize("wrong", [None, "507:66"])
def test_capability_nodes_that_must_not_be_modified_and_are_wrong_are_an_error(
    host: HostPaths, kernel: Kernel, wrong: str | None
) -> None:
    has_capabilities(host, modify=0)
    if wrong is not None:
        kernel.has(CAPABILITIES[0], wrong)

    with pytest.raises(DeviceNodeError, match=r"must be 508:66; the plugin does not create it"):
        NvidiaNodes(host).ensure_partition(gpu(3), INSTANCE)


def test_a_driver_without_mig_has_no_capability_for_monitors(
    host: HostPaths, kernel: Kernel
) -> None:
    assert NvidiaNodes(host).ensure_monitor(gpu(3)) == ("/dev/nvidia3",)
