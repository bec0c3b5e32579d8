"""Whether this process sees the processes of the node."""

import os
from pathlib import Path
from typing import Final

from sharing.cgroup import (
    DEFAULT_FOLDERS,
    KubepodsFolder,
    is_below_another_root,
    kubepods_folder,
)

_HOST_PID: Final = (
    "this process is not in the PID namespace of the host, so that it cannot tell the pods of "
    "processes; set hostPID: true in its pod"
)


def problem(proc: Path = Path("/proc")) -> str | None:
    """Returns why it does not see them, and the remedy; None if it does.

    In the host's namespace, the process with the ID 1 is the host's, and so of no pod.
    """
    first = (proc / "1/cgroup").read_text()
    if os.getpid() == 1 or kubepods_folder(first) is not None:
        return _HOST_PID
    if is_below_another_root(first):
        return (
            "this process is in a cgroup namespace of its own, in which it cannot tell the pods of "
            "processes; make its container privileged"
        )
    return None


def kubepods_folders(proc: Path = Path("/proc")) -> tuple[KubepodsFolder, ...]:
    """Returns the folders that the cgroups of pods can be in: that of the own pod, if it is one."""
    own = kubepods_folder((proc / "self/cgroup").read_text())
    return DEFAULT_FOLDERS if own is None else (own,)
