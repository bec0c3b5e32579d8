"""containerd with runc: its configuration, start and images."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from simulation.kubernetes import images, mount_namespace, process
from simulation.kubernetes.binaries import NodeBinaries
from simulation.kubernetes.mount_namespace import MountNamespace
from simulation.kubernetes.process import Process
from simulation.kubernetes.state import StateDirectory

_START_TIMEOUT_S = 30.0
_KUBELET_ROOT = Path("/var/lib/kubelet")
_CDI_FOLDER = Path("/var/run/cdi")


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A running containerd. It reads CDI specs from `cdi_folders`; later folders win."""

    process: Process
    socket: Path
    cdi_folders: tuple[Path, ...]
    ctr: Path

    @property
    def namespace(self) -> MountNamespace:
        """The mount namespace of the node."""
        return MountNamespace(self.process.popen.pid)

    def import_images(self, archive: Path) -> None:
        """Imports the images of a docker archive for use by the kubelet."""
        self._ctr("images", "import", "--local", str(archive))

    def _ctr(self, *arguments: str) -> str:
        command = [str(self.ctr), "--address", str(self.socket), "--namespace", "k8s.io"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)} failed: {done.stderr}")
        return done.stdout


def start(
    state: StateDirectory,
    folder: Path,
    binaries: NodeBinaries,
    name: str,
    *,
    index: int,
    kubelet_root: Path,
) -> ContainerRuntime:
    """Starts containerd with all of its files below `folder`, and waits until it responds.

    In its mount namespace, `kubelet_root` is mounted at /var/lib/kubelet, and its folder of CDI
    specs at /var/run/cdi. `index` is the number of the node in the cluster.

    Raises:
        ComponentDiedError: it exited during its start.
        NotReachedError: it does not respond.
    """
    home = folder / "containerd"
    cdi_folders = (folder / "cdi" / "static", folder / "cdi" / "run")
    for created in (home, home / "net", kubelet_root, *cdi_folders):
        created.mkdir(parents=True)
    (home / "net" / "10-pods.conflist").write_text(_network(state, home, index))
    registries = home / "registries" / "_default"
    registries.mkdir(parents=True)
    (registries / "hosts.toml").write_text(
        'server = "http://127.0.0.1:9"  # nothing listens there\n'
    )
    config = home / "config.toml"
    config.write_text(_config(home, binaries, cdi_folders))
    runtime = ContainerRuntime(
        process=process.start(
            state,
            f"containerd-{name}",
            mount_namespace.created_by(
                [binaries.containerd, "--config", config],
                {_KUBELET_ROOT: kubelet_root, _CDI_FOLDER: cdi_folders[-1]},
            ),
        ),
        socket=home / "containerd.sock",
        cdi_folders=cdi_folders,
        ctr=binaries.ctr,
    )
    process.wait_for(
        "containerd to respond",
        lambda: runtime._ctr("version"),  # noqa: SLF001 - of this module
        timeout=_START_TIMEOUT_S,
        alive=(runtime.process,),
        retry_on=(RuntimeError,),
    )
    return runtime


def _config(home: Path, binaries: NodeBinaries, cdi_folders: tuple[Path, ...]) -> str:
    folders = ", ".join(f'"{folder}"' for folder in cdi_folders)
    return f"""\
version = 3
root = "{home / "root"}"
state = "{home / "state"}"
# The first would use the socket of another containerd, and the second would write to /opt.
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[grpc]
address = "{home / "containerd.sock"}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{images.PAUSE}"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "{home / "registries"}"  # missing images are not pulled

[plugins."io.containerd.cri.v1.runtime"]
cdi_spec_dirs = [{folders}]
netns_mounts_under_state_dir = true
# Without CAP_SYS_RESOURCE runc cannot lower a score: "can't get final child's PID from pipe: EOF".
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{binaries.cni_folder}"]
conf_dir = "{home / "net"}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{binaries.runc}"
Root = "{home / "runc"}"
SystemdCgroup = false
"""


def _network(state: StateDirectory, home: Path, index: int) -> str:
    """A veth pair for each pod, which connects it to the node and to nothing else."""
    first, last = state.pod_addresses(index)
    addresses = {
        "type": "host-local",
        "ranges": [
            [
                {
                    "subnet": str(state.subnet),
                    "rangeStart": str(first),
                    "rangeEnd": str(last),
                    "gateway": str(state.api_service_address),
                }
            ]
        ],
        "dataDir": str(home / "addresses"),
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})
