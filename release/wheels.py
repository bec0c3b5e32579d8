"""The Python packages that run, as wheels for a platform and a version of Python.

pip downloads what requirements-runtime.lock names, for platforms other than this machine's too, and
refuses what has another hash. It reads its own configuration, so it uses a mirror if there is one.
"""

import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.tags import mac_platforms

RUNTIME_LOCK: Final = Path(__file__).parents[1] / "requirements-runtime.lock"
PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The versions of Python that Carina supports."""

_GLIBC = (17, 24, 26, 27, 28)  # RHEL 8 and Debian 10 have 2.28
_MACOS = (13, 0)
_MACHINES = {
    "darwin": {"amd64": "x86_64", "arm64": "arm64"},
    "linux": {"amd64": "x86_64", "arm64": "aarch64"},
}


class WheelMissingError(RuntimeError):
    """A package of the lock cannot be had as a wheel; the message ends with what pip printed."""


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and a processor, as Go, Kubernetes and krew name them."""

    os: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"

    @property
    def machine(self) -> str:
        """The processor as Python names it there."""
        return _MACHINES[self.os][self.architecture]

    @property
    def tags(self) -> tuple[str, ...]:
        """The platform tags of wheels that run on it, the newest first (PEP 600, PEP 425)."""
        if self.os == "darwin":
            return tuple(mac_platforms(_MACOS, self.machine))
        newest_first = [f"manylinux_2_{minor}_{self.machine}" for minor in reversed(_GLIBC)]
        return (*newest_first, f"manylinux2014_{self.machine}")


def this_machine() -> Platform:
    """The platform that this runs on."""
    system = platform.system().lower()
    found = {machine: architecture for architecture, machine in _MACHINES[system].items()}
    return Platform(system, found[platform.machine()])


LINUX_AMD64: Final = Platform("linux", "amd64")
LINUX_ARM64: Final = Platform("linux", "arm64")
DARWIN_AMD64: Final = Platform("darwin", "amd64")
DARWIN_ARM64: Final = Platform("darwin", "arm64")


def download(target: Platform, python: str, folder: Path) -> list[Path]:
    """Downloads the packages that run, for a platform and a version of Python, such as "3.13".

    Returns the wheels, in the order of their names.

    Raises:
        WheelMissingError: a package has no wheel for it, or not the one of the lock.
    """
    command = (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--implementation=cp"),
        *(f"--python-version={python}", *(f"--platform={tag}" for tag in target.tags)),
        *(f"--requirement={RUNTIME_LOCK}", f"--dest={folder}"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WheelMissingError(
            f"{RUNTIME_LOCK.name}, for {target} and Python {python}:\n{done.stderr}"
        )
    return sorted(folder.glob("*.whl"))
