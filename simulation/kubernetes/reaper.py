"""Removes everything that belongs to a state directory when its owner exits, for any reason.

`sweep` needs only the directory: it finds processes by the PID files in it, containers by the
cgroup named after it, and mounts in the mount table. As a program, this module sweeps when its
standard input ends; the kernel closes it when the owner exits, also by SIGKILL. The module is run
by its path, so it imports only the standard library.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# Fixed paths: the kubelet's links to logs, and the results that CNI caches for pods.
_CONTAINER_LOG_LINKS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")
_SHIM = "containerd-shim-runc-v2"
_MNT_DETACH = 2
_DEADLINE_S = 10.0


def lock_path(directory: Path) -> Path:
    """Returns the file that is locked while the directory is in use. It is never removed."""
    return directory.with_name(f"{directory.name}.lock")


def kept_marker(directory: Path) -> Path:
    """Returns the file that exists if the cluster outlives the process that started it."""
    return directory / "kept"


def sweep(directory: Path) -> None:
    """Ends the directory's processes and containers, removes its mounts and the directory.

    The caller must hold the directory's lock. Idempotent.
    """
    _end_processes(directory)
    _end_containers(directory)
    _unmount_below(directory)
    _unlink_outside(directory)
    if directory.exists():
        shutil.rmtree(directory)


def cgroup_folders(directory: Path) -> list[Path]:
    """Returns the folders of the directory's cgroup: one per v1 hierarchy, or one in v2."""
    name = cgroup_name(directory)
    return [path for path in (_CGROUPS / name, *_CGROUPS.glob(f"*/{name}")) if path.is_dir()]


def cgroup_name(directory: Path) -> str:
    """Returns the name of the cgroup of all containers on the directory's nodes."""
    return f"carina-{directory.name}"


def is_running(pid: int) -> bool:
    """Returns whether the process, or one of its threads, is still running.

    The main thread can be a zombie while other threads run.
    """
    process = _PROC / str(pid)
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list((process / "task").iterdir())) > 1
    except OSError:
        return False


def _end_processes(directory: Path) -> None:
    written = [path.read_text() for path in directory.glob("processes/*.pid")]
    pids = [int(text) for text in written if text]  # an incomplete file is empty
    # A PID file may outlive its process, and the PID may be reused.
    running = {pid for pid in pids if f"{directory}/" in _command_line(pid)}
    _kill(running)
    shims = {
        int(path.name)
        for path in _PROC.glob("[0-9]*")
        if _SHIM in (line := _command_line(int(path.name))) and f"{directory}/" in line
    }
    _kill(shims)


def _end_containers(directory: Path) -> None:
    for folder in cgroup_folders(directory):
        while pids := {pid for file in folder.rglob("cgroup.procs") for pid in _members(file)}:
            _kill(pids)
        for child in sorted(folder.rglob("*"), reverse=True):
            if child.is_dir():
                child.rmdir()
        folder.rmdir()


def _members(cgroup_procs: Path) -> list[int]:
    return [pid for pid in map(int, cgroup_procs.read_text().split()) if is_running(pid)]


def _kill(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + _DEADLINE_S
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} outlive SIGKILL")
        time.sleep(0.005)


def _command_line(pid: int) -> str:
    if not _PROC.is_dir():  # no Linux, so no node: only processes with pid files
        listed = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return listed.stdout
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _unmount_below(directory: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for mount in reversed(list(_mounts_below(directory))):
        if libc.umount2(mount.encode(), _MNT_DETACH) != 0:
            error = ctypes.get_errno()
            if error == errno.EINVAL:  # no longer a mount, because its container has ended
                continue
            raise OSError(error, f"unmount: {os.strerror(error)}", mount)
    left = list(_mounts_below(directory))
    if left:  # a pod may have mounted folders of the host, which must not be removed
        raise RuntimeError(f"still mounted: {left}; unmount them and try again")


def _mounts_below(directory: Path) -> Iterator[str]:
    table = _PROC / "self/mountinfo"
    for line in table.read_text().splitlines() if table.exists() else ():
        mount = line.split()[4].encode().decode("unicode_escape")
        if mount.startswith(f"{directory}/"):
            yield mount


def _unlink_outside(directory: Path) -> None:
    """Removes the files that kubelet and containerd leave in fixed places."""
    for link in _CONTAINER_LOG_LINKS.glob("*"):
        with suppress(FileNotFoundError):  # removed meanwhile, because these folders are shared
            if link.is_symlink() and str(link.readlink()).startswith(f"{directory}/"):
                link.unlink()
    for result in _CNI_RESULTS.glob("*"):
        with suppress(FileNotFoundError):
            if f"{directory}/" in result.read_text():
                result.unlink()
    for bundle in directory.glob("*/containerd/state/io.containerd.runtime.v2.task/*/*"):
        bootstrap = bundle / "bootstrap.json"
        if bootstrap.exists():
            address = json.loads(bootstrap.read_text())["address"]
            Path(address.removeprefix("unix://")).unlink(missing_ok=True)


def main() -> None:
    """Waits until the owner exits, and then sweeps, unless the cluster is kept."""
    directory = Path(sys.argv[1])
    sys.stdin.read()
    with lock_path(directory).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be sweeping
        if directory.exists() and not kept_marker(directory).exists():
            sweep(directory)


if __name__ == "__main__":
    main()
