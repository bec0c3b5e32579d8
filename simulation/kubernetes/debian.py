"""Programs that a node takes from Debian (or Ubuntu): runc, CNI plugins, static busybox, Podman.

They are used wherever they are installed. Missing ones are installed with apt-get, as root.
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
    """Packages of the distribution are missing; the message names the remedy."""


def runc() -> Path | None:
    """The OCI runtime."""
    found = shutil.which("runc")
    return Path(found) if found else None


def cni_folder() -> Path | None:
    """The folder of the CNI plugins that give pods an address."""
    for folder in _CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in _CNI_PLUGINS):
            return folder
    return None


def busybox() -> Path | None:
    """A statically linked busybox, which runs in an empty root."""
    found = shutil.which("busybox")
    return Path(found) if found and _is_static(Path(found)) else None


def podman() -> Path | None:
    """A second runtime that supports CDI. It builds the plugin's image, too."""
    found = shutil.which("podman")
    return Path(found) if found else None


def missing_packages() -> list[str]:
    """The Debian packages of the programs that are not installed."""
    found = {
        "runc": runc(),
        "containernetworking-plugins": cni_folder(),
        "busybox-static": busybox(),
        "podman": podman(),
    }
    return [package for package, path in found.items() if path is None]


def install_missing() -> None:
    """Installs the missing packages with apt-get.

    Raises:
        PackagesMissingError: apt-get is missing or fails, or we are not root.
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
    """Updates the package lists, then runs apt-get."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update",), command):
        done = subprocess.run(
            ["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise PackagesMissingError(f"{remedy}`apt-get {' '.join(arguments)}` failed:\n{output}")


def download(packages: Sequence[str], folder: Path) -> list[Path]:
    """Downloads packages and all their dependencies with apt-get, and returns the files.

    Nothing is installed.

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
    """Whether an ELF program names no interpreter (ELF64, either byte order)."""
    content = program.read_bytes()
    if content[:4] != b"\x7fELF" or content[4] != 2:
        return False
    order = "<" if content[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", content, 0x20)
    size, count = struct.unpack_from(f"{order}HH", content, 0x36)
    kinds = [struct.unpack_from(f"{order}I", content, table + i * size)[0] for i in range(count)]
    return _PT_INTERP not in kinds
