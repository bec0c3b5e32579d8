"""The Python packages that run, as wheels for a platform and a version of Python.

pip downloads what requirements-runtime.lock names, for platforms other than this machine's too, and
refuses what has another hash. It reads its own configuration, so it uses a mirror if there is one.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNTIME_LOCK: Final = Path(__file__).parents[1] / "requirements-runtime.lock"
PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The versions of Python that Carina supports."""

_GLIBC = (17, 24, 26, 27, 28)  # RHEL 8 and Debian 10 have 2.28
_MACOS = "macosx_13_0"


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
    def tags(self) -> tuple[str, ...]:
        """The platform tags of wheels that run on it (PEP 600, PEP 425)."""
        if self.os == "darwin":
            machine = {"amd64": "x86_64", "arm64": "arm64"}[self.architecture]
            return (f"{_MACOS}_{machine}",)  # and those of earlier releases, which it runs
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[self.architecture]
        newest_first = [f"manylinux_2_{minor}_{machine}" for minor in reversed(_GLIBC)]
        return (*newest_first, f"manylinux2014_{machine}", f"linux_{machine}")


LINUX_AMD64: Final = Platform("linux", "amd64")
LINUX_ARM64: Final = Platform("linux", "arm64")
DARWIN_AMD64: Final = Platform("darwin", "amd64")
DARWIN_ARM64: Final = Platform("darwin", "arm64")


def download(platform: Platform, python: str, folder: Path) -> list[Path]:
    """Downloads the packages that run, for a platform and a version of Python, such as "3.13".

    Returns the wheels, in the order of their names.

    Raises:
        WheelMissingError: a package has no wheel for it, or not the one of the lock.
    """
    command = (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--implementation=cp"),
        *(f"--python-version={python}", *(f"--platform={tag}" for tag in platform.tags)),
        *(f"--requirement={RUNTIME_LOCK}", f"--dest={folder}"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WheelMissingError(
            f"{RUNTIME_LOCK.name}, for {platform} and Python {python}:\n{done.stderr}"
        )
    return sorted(folder.glob("*.whl"))
