"""The mount namespace of a node, in which fixed paths of a node are the node's own.

Pods mount /var/lib/kubelet and /var/run/cdi from their node, and several nodes may run on one
machine. Every other path is the machine's. The namespace and its mounts end with its processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# containerd refuses mounts with HostToContainer below a mount point that is private.
_SCRIPT = """\
set -e
mount --make-rshared /
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class MountNamespace:
    """The mount namespace of a running process."""

    pid: int

    def entered_by(self, command: Sequence[str | Path]) -> list[str | Path]:
        """The command, run in the namespace by the same process."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *command]


def created_by(command: Sequence[str | Path], binds: Mapping[Path, Path]) -> list[str | Path]:
    """The command, run by the same process in a new namespace.

    `binds` maps fixed paths to the folders that are there instead. Mount points are created on the
    machine, and stay.
    """
    for path in binds:
        path.mkdir(parents=True, exist_ok=True)
    pairs = [part for path, folder in binds.items() for part in (folder, path)]
    shell = ["sh", "-c", _SCRIPT, "sh", *pairs, "--", *command]
    return ["unshare", "--mount", "--propagation", "slave", *shell]
