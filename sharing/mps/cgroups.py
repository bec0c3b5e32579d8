"""The cgroups of MPS daemons, outside of all containers.

A runtime ends all processes in the cgroups of a container that ends. A daemon has to outlive the
container of carina-sharing, so it is in none of its cgroups: in the hierarchy that tracks
processes, it is in `carina-mps.<driver>/<UID of the claim>` below the root, which also tells its
processes from all others, and in the other hierarchies of cgroup v1 it is in the root.
"""

import errno
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESSES: Final = "cgroup.procs"
_VERSION_2: Final = "cgroup.controllers"
"""A file of the root of a hierarchy of cgroup v2, and of none of v1."""
_SYSTEMD: Final = "systemd"
_POLL: Final = 0.02


class NoHierarchyError(Exception):
    """The cgroups of the host cannot be used: says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The hierarchies of a host."""

    tracking: Path
    """The root of that which tells the processes of daemons."""
    others: tuple[Path, ...]
    """The roots of the others of cgroup v1."""

    @classmethod
    def find(cls, root: Path) -> "Hierarchies":
        """Finds them where cgroup file systems are mounted.

        Raises:
            NoHierarchyError: there are none, or they cannot be written.
        """
        mounted = [root] if (root / _VERSION_2).exists() else _below(root)
        version_2 = [path for path in mounted if (path / _VERSION_2).exists()]
        tracking = version_2 or [path for path in mounted if path.name == _SYSTEMD]
        if not tracking:
            raise NoHierarchyError(
                f"{root} has no hierarchy of cgroup v2 and none of systemd; cgroup_root must be "
                "the host's cgroup file system"
            )
        others = tuple(path for path in mounted if path != tracking[0])
        for path in (tracking[0], *(other / _PROCESSES for other in others)):
            if not os.access(path, os.W_OK):
                raise NoHierarchyError(
                    f"{path} is not writable; the host's cgroup file system must be mounted "
                    "writable at cgroup_root"
                )
        return cls(tracking[0], others)


def _below(root: Path) -> list[Path]:
    try:
        folders = sorted(root.iterdir())
    except OSError as error:
        raise NoHierarchyError(f"{root} cannot be read: {error}; set cgroup_root") from error
    return [path for path in folders if not path.is_symlink() and (path / _PROCESSES).exists()]


def group_name(driver_name: str) -> str:
    """Returns the name of the cgroup above those of all daemons of a driver."""
    return f"carina-mps.{driver_name}"


class DaemonCgroup:
    """The cgroup of the daemon of a claim, and all processes in it."""

    def __init__(self, hierarchies: Hierarchies, driver_name: str, uid: str) -> None:
        self._path = hierarchies.tracking / group_name(driver_name) / uid
        self._others = hierarchies.others

    @property
    def entrances(self) -> tuple[Path, ...]:
        """The files to which a process writes `0` to move there."""
        return tuple(path / _PROCESSES for path in (*self._others, self._path))

    def make(self) -> None:
        """Makes it. Raises OSError."""
        self._path.mkdir(parents=True, exist_ok=True)

    def pids(self) -> set[int]:
        """Returns the processes in it; none if it is not there. Raises OSError."""
        try:
            return {int(line) for line in (self._path / _PROCESSES).read_text().split()}
        except FileNotFoundError:
            return set()
        except OSError as error:
            if error.errno == errno.ENODEV:  # it was removed meanwhile
                return set()
            raise

    def leader(self) -> int | None:
        """Returns the control daemon among them; None without it.

        It leads their session, and is no child of another, as its servers are.
        """
        pids = self.pids()
        for pid in pids:
            with suppress(ProcessLookupError, FileNotFoundError):
                if os.getsid(pid) == pid and _parent(pid) not in pids:
                    return pid
        return None

    def emptied(self, within: float) -> bool:
        """Waits until no process is in it, and returns whether that is so. Raises OSError."""
        deadline = time.monotonic() + within
        while self.pids():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True

    def kill(self) -> None:
        """Sends SIGKILL to all processes in it. Raises OSError."""
        try:
            (self._path / "cgroup.kill").write_text("1")
        except OSError:  # of cgroup v1, or before Linux 5.14
            for descriptor in self._members():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    def remove(self) -> None:
        """Removes it, and the one above if it is the last. Raises OSError if a process is in it."""
        with suppress(FileNotFoundError):
            self._path.rmdir()
        with suppress(OSError):
            self._path.parent.rmdir()

    def _members(self) -> Iterator[int]:
        """Yields descriptors of the processes in it, which do not become those of others."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    if pid in self.pids():
                        yield descriptor
                finally:
                    os.close(descriptor)


def _parent(pid: int) -> int:
    """Field 4, ppid, of a stat file (proc_pid_stat(5)). A name may have parentheses."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(descriptor: int) -> bool:
    """Whether the process of a pidfd has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
