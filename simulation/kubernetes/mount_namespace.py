"""The mount namespace of a node, in which some fixed paths refer to the node's own folders.

Pods mount /var/lib/kubelet and /var/run/cdi from their node, and several nodes can run on one
machine. All other paths are those of the machine. The namespace and its mounts end with its
processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# containerd rejects HostToContainer mounts below a private mount point.
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
        """Returns a command that runs `command` in the namespace, in the same process."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *command]


def created_by(command: Sequence[str | Path], binds: Mapping[Path, Path]) -> list[str | Path]:
    """Returns a command that runs `command` in a new namespace, in the same process.

    `binds` maps fixed paths to the folders that are mounted there. Missing mount points are created
    on the machine, and not removed.
    """
    for path in binds:
        path.mkdir(parents=True, exist_ok=True)
    pairs = [part for path, folder in binds.items() for part in (folder, path)]
    shell = ["sh", "-c", _SCRIPT, "sh", *pairs, "--", *command]
    return ["unshare", "--mount", "--propagation", "slave", *shell]
