"""The mounts of MPS daemons, by libc: Python 3.11 has no functions for them."""

import ctypes
import os
import re
from pathlib import Path
from typing import Final

_NOSUID, _NODEV, _NOEXEC, _NOSYMFOLLOW, _BIND, _REC, _SLAVE = (
    *(2, 4, 8, 0x100),
    *(0x1000, 0x4000, 0x80000),
)
"""MS_* of mount(2)."""
_LEAST_LINUX: Final = (5, 10)
"""Which has MS_NOSYMFOLLOW; earlier ones ignore it."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_DETACH: Final = 2
_NEWNS: Final = 0x20000
_SYS_ADMIN: Final = 21
"""CAP_SYS_ADMIN, which mounts need."""

_libc = ctypes.CDLL(None, use_errno=True)


def mount_tmpfs(at: Path, options: str) -> None:
    """Mounts a tmpfs, unless something is mounted there. Raises OSError.

    Containers write into it, and root in a container must lead no process of the node elsewhere.
    """
    flags = _NOSUID | _NODEV | _NOEXEC | _NOSYMFOLLOW
    if not at.is_mount():
        _call("mount", b"tmpfs", bytes(at), b"tmpfs", flags, options.encode())


def unmount(at: Path) -> None:
    """Removes all mounts at a folder, also while they are in use. Raises OSError."""
    while at.is_mount():
        _call("umount2", bytes(at), _DETACH)


def bind_in_own_namespace(source: Path, target: Path) -> None:
    """Gives this process a mount namespace of its own, in which a folder is also at `target`.

    The namespace follows later mounts of the one before, which so keeps nothing mounted that is
    unmounted there, and passes none on. Raises OSError.
    """
    _call("unshare", _NEWNS)
    _call("mount", None, b"/", None, _REC | _SLAVE, None)
    _call("mount", bytes(source), bytes(target), None, _BIND, None)


def problem(folder: Path, proc: Path = Path("/proc")) -> str | None:
    """Returns why what is mounted below a folder is of no use, and the remedy; None if it is.

    Containers get it only if the mounts reach the host. The folder is of a volume in a container,
    and of the root file system in a process of the host.
    """
    status = (proc / "self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    if not int(effective.split()[1], 16) >> _SYS_ADMIN & 1:
        return "this process may not mount; make its container privileged"
    release = os.uname().release
    if (version := _VERSION.match(release)) and tuple(map(int, version.groups())) < _LEAST_LINUX:
        return f"Linux is {release}; mounts without symbolic links need 5.10 or later"
    if reaches_host((proc / "self/mountinfo").read_text(), folder):
        return None
    return (
        f"what is mounted below {folder} does not reach the host; mount it into the container with "
        "mountPropagation: Bidirectional"
    )


def reaches_host(mounts: str, folder: Path) -> bool:
    """Whether the mount that has a folder is shared, or the root's, by the text of mountinfo.

    Its fields are those of proc_pid_mountinfo(5): the mount point is the fifth, and optional ones
    begin with the seventh and end with `-`.
    """
    found: tuple[int, bool] = 0, False
    for line in mounts.splitlines():
        fields = line.split(" ")
        at = Path(fields[4].encode().decode("unicode_escape"))
        if folder.is_relative_to(at) and len(at.parts) >= found[0]:
            optional = fields[6 : fields.index("-")]
            is_shared = any(tag.startswith("shared:") for tag in optional)
            found = len(at.parts), is_shared or at == Path("/")
    return found[1]


def _call(function: str, *arguments: bytes | int | None) -> None:
    converted = [
        ctypes.c_ulong(argument) if function == "mount" and isinstance(argument, int) else argument
        for argument in arguments
    ]
    if getattr(_libc, function)(*converted) != 0:
        number = ctypes.get_errno()
        paths = [os.fsdecode(part) for part in arguments if isinstance(part, bytes)]
        raise OSError(number, f"{function}: {os.strerror(number)}", " ".join(paths))
