"""The cgroups that are made for a proof. Every process in them was started for it.

They are in the hierarchy of cgroup v2, also where controllers are in those of v1.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "carina-gpu-proof"
_POLL: Final = 0.02


def mount(mounts: Path = Path("/proc/self/mounts")) -> Path | None:
    """Returns where cgroup v2 is mounted and can be written; None if nowhere."""
    for line in mounts.read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(",") and os.access(place, os.W_OK):
            return Path(place)
    return None


def make(root: Path) -> Path:
    """Makes the cgroup of this proof, with one for processes and one for pods.

    Raises:
        OSError: it cannot be made.
    """
    own = root / f"{_PREFIX}-{os.getpid()}"
    for folder in (own, own / "processes", own / "kubepods"):
        folder.mkdir()
    return own


def make_pod(own: Path, uid: str) -> Path:
    """Makes the cgroup of a pod, named as the kubelet does.

    Raises:
        OSError: it cannot be made.
    """
    pod = own / "kubepods" / f"pod{uid}"
    pod.mkdir()
    return pod


def pods_path(own: Path, root: Path) -> str:
    """Returns the path of the folder of pods below the root of the hierarchy."""
    return f"/{(own / 'kubepods').relative_to(root)}"


def enter(own: Path) -> None:
    """Moves this process into the cgroup, so that what it starts is in it, too.

    Raises:
        OSError: it cannot be.
    """
    (own / "processes/cgroup.procs").write_text(str(os.getpid()))


def pids(cgroup: Path) -> list[int]:
    """Returns the processes of a cgroup and of those below it, but for this one."""
    found = [
        int(pid) for folder in _folders(cgroup) for pid in _read(folder / "cgroup.procs").split()
    ]
    return [pid for pid in found if pid not in (0, os.getpid())]


def end(cgroup: Path, within: float) -> bool:
    """Ends the processes of a cgroup; returns whether they have ended within these seconds."""
    deadline = time.monotonic() + within
    while left := pids(cgroup):
        for pid in left:
            with suppress(OSError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def remove(cgroup: Path, within: float) -> bool:
    """Ends the processes of a cgroup and removes it; returns whether it is gone."""
    if end(cgroup, within):
        for folder in _folders(cgroup):
            with suppress(OSError):  # the caller is told that it is still there
                folder.rmdir()
    return not cgroup.exists()


def _folders(cgroup: Path) -> Iterator[Path]:
    """The cgroup and those below it, the innermost first."""
    found = [cgroup, *(path for path in cgroup.rglob("*") if path.is_dir())]
    yield from sorted(found, reverse=True)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has been removed
        return ""
