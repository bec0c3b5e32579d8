"""The programs that come from Debian or Ubuntu: runc, CNI plugins, a static busybox and Podman.

Programs that are already installed are used. Missing ones can be installed with apt-get, as root.
"""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_CNI_PLUGINS = ("ptp", "host-local", "loopback")
_PT_INTERP = 3


class PackagesMissingError(RuntimeError):
    """Programs from the distribution are missing; the message says how to install them."""


def runc() -> Path | None:
    """Returns the path of the OCI runtime."""
    path = shutil.which("runc")
    return Path(path) if path else None


def cni_folder() -> Path | None:
    """Returns the folder of the CNI plugins."""
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def busybox() -> Path | None:
    """Returns a busybox that is statically linked, so that it runs in an empty root."""
    path = shutil.which("busybox")
    return Path(path) if path and _is_static(Path(path)) else None


def podman() -> Path | None:
    """Returns the path of Podman, a second runtime that supports CDI."""
    path = shutil.which("podman")
    return Path(path) if path else None


def missing_packages() -> list[str]:
    """Returns the Debian packages of the missing programs."""
    programs = {
        "runc": runc(),
        "containernetworking-plugins": cni_folder(),
        "busybox-static": busybox(),
        "podman": podman(),
    }
    return [package for package, path in programs.items() if path is None]


def install_missing() -> None:
    """Installs the missing packages with apt-get.

    Raises:
        PackagesMissingError: apt-get is missing or fails, or this user is not root.
    """
    packages = missing_packages()
    if not packages:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    remedy = f"a node needs {', '.join(packages)}: run `sudo {' '.join(install)}`"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise PackagesMissingError(remedy)
    print(f"Installing {', '.join(packages)}", file=sys.stderr, flush=True)
    _apt_get(*install[1:], remedy=f"{remedy}; ")


def _apt_get(*command: str, remedy: str = "") -> None:
    """Runs apt-get, after an update of its package lists."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update",), command):
        done = subprocess.run(
            ["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise PackagesMissingError(f"{remedy}`apt-get {' '.join(arguments)}` failed:\n{output}")


def download(packages: Sequence[str], folder: Path) -> list[Path]:
    """Downloads packages and their dependencies with apt-get, without installing them.

    Returns the downloaded files.

    Raises:
        PackagesMissingError: apt-get fails.
    """
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    none_installed = folder / "status"
    none_installed.touch()
    options = {
        "Dir::State::status": none_installed,
        "Dir::Cache::archives": archives,
        "APT::Sandbox::User": "root",
    }
    settings = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    install = ("install", "--yes", "--no-install-recommends", "--download-only")
    _apt_get(*install, *settings, *packages)
    return sorted(archives.glob("*.deb"))


def _is_static(program: Path) -> bool:
    """Returns whether an ELF program has no interpreter (ELF64, either byte order)."""
    content = program.read_bytes()
    if content[:4] != b"\x7fELF" or content[4] != 2:
        return False
    order = "<" if content[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", content, 0x20)
    size, count = struct.unpack_from(f"{order}HH", content, 0x36)
    kinds = [struct.unpack_from(f"{order}I", content, table + i * size)[0] for i in range(count)]
    return _PT_INTERP not in kinds
