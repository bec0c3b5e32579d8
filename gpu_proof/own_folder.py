"""The folder that is made for a proof, and what is mounted in it.

Like the kubelet's folder on a node, it is a shared mount, so that what carina-sharing mounts there
for its daemons is also seen by other processes, in whichever mount namespace all this runs.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "carina-"
_MOUNTS: Final = Path("/proc/self/mounts")


def make() -> Path:
    """Makes it; its name is short, since paths of sockets have limits."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if _succeeds("mount", "--bind", folder, folder):  # without the right to, MPS is not tried
        _succeeds("mount", "--make-shared", folder)
    return folder


def remove(folder: Path) -> str | None:
    """Removes it and what is mounted in it; returns what could not be removed."""
    for line in reversed(_MOUNTS.read_text().splitlines()):
        place = Path(line.split()[1])
        if place.is_relative_to(folder) and not _succeeds("umount", "--lazy", place):
            return f"the file system at {place}"  # what it has may be another's
    shutil.rmtree(folder, ignore_errors=True)
    return f"folder {folder}" if folder.exists() else None


def _succeeds(*command: str | Path) -> bool:
    done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)  # noqa: S603 - above
    return done.returncode == 0
