"""The command `carina` as a kubectl plugin: one file a platform, and an archive as krew wants it.

pex makes the file of the wheels of the lock. It runs with the user's Python, 3.11 to 3.13: the
first start unpacks it below ~/.cache/pex, and later ones go there at once.
docs/release.md says why pex.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.tags import compatible_tags, cpython_tags

from carina_dra.cli.command import KUBECTL_PLUGIN
from release.archive import Member, gzipped_tar
from release.project import LICENSE, REPOSITORY, TIME
from release.wheels import (
    DARWIN_AMD64,
    DARWIN_ARM64,
    LINUX_AMD64,
    LINUX_ARM64,
    PYTHONS,
    Platform,
    download,
)

PLATFORMS: Final = (DARWIN_AMD64, DARWIN_ARM64, LINUX_AMD64, LINUX_ARM64)
COMPLETION: Final = "kubectl_complete-carina"
"""The program that kubectl asks how a command line of the plugin may go on."""

_COMPLETION_SCRIPT = Path(__file__).with_name(COMPLETION)
_NOT_NEEDED = (
    *("grpcio", "protobuf"),  # of the kubelet plugin
    # of the official client's asynchronous half
    *("aiohappyeyeballs", "aiohttp", "aiohttp-retry", "aiosignal", "attrs", "frozenlist"),
    *("multidict", "propcache", "yarl"),
)


class PackagingError(RuntimeError):
    """pex failed; the message ends with what it printed."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin for one platform."""

    platform: Platform
    program: Path
    """The one file, which is executable."""

    def archive(self, folder: Path, version: str) -> Path:
        """Writes the archive of the program, the completion and the licence, as a gzipped tar."""
        name = f"{KUBECTL_PLUGIN}_v{version}_{self.platform.os}_{self.platform.architecture}"
        made = folder / f"{name}.tar.gz"
        members = (
            Member(LICENSE.name, LICENSE.read_bytes()),
            Member(self.program.name, self.program.read_bytes(), 0o755),
            Member(COMPLETION, _COMPLETION_SCRIPT.read_bytes(), 0o755),
        )
        made.write_bytes(gzipped_tar(members))
        return made


def build(
    platform: Platform, wheel: Path, folder: Path, pythons: Sequence[str] = PYTHONS
) -> Plugin:
    """Makes the plugin for a platform, in a folder.

    wheel: Carina's own.
    pythons: the versions of Python with which it runs.

    Raises:
        WheelMissingError: a package of the lock has no wheel for the platform.
        PackagingError: pex failed.
    """
    program = folder / KUBECTL_PLUGIN
    with tempfile.TemporaryDirectory() as scratch:
        wheels = {wheel.name: wheel}
        for python in pythons:
            found = download(platform, python, Path(scratch, python))
            wheels |= {path.name: path for path in found}
        command = (
            *(sys.executable, "-m", "pex", "--no-pypi", "--pex-root", str(Path(scratch, "root"))),
            *(f"--pre-resolved-dist={path}" for _, path in sorted(wheels.items())),
            *(f"--exclude={name}" for name in _NOT_NEEDED),
            *(f"--complete-platform={_described(platform, python)}" for python in pythons),
            *("--venv", "--sh-boot", "--no-compile", "--python-shebang=/usr/bin/env python3"),
            *("--console-script=carina", f"--output-file={program}", "carina-dra"),
        )
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PackagingError(f"kubectl plugin for {platform}: pex failed:\n{done.stderr}")
    return Plugin(platform, program)


def _described(platform: Platform, python: str) -> str:
    """A platform with a version of Python, in pex's form (PEP 508 markers, PEP 425 tags)."""
    version = [int(part) for part in python.split(".")]
    interpreter = f"cp{python.replace('.', '')}"
    tags = [
        *cpython_tags(version, platforms=platform.tags),
        *compatible_tags(version, interpreter=interpreter, platforms=platform.tags),
    ]
    markers: Mapping[str, Any] = {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": platform.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": platform.os.capitalize(),
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": platform.os,
    }
    return json.dumps(
        {"marker_environment": markers, "compatible_tags": [str(tag) for tag in tags]}
    )
