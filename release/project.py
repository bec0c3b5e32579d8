"""What a release takes from the repository: the project's name, version and licence."""

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

REPOSITORY: Final = Path(__file__).parents[1]
LICENSE: Final = REPOSITORY / "LICENSE"
TIME: Final = 315_532_800
"""The time of all files, as a Unix time: 1980, the first year that a zip file can hold."""


class WheelError(RuntimeError):
    """Carina's wheel could not be built; the message ends with what pip printed."""


@dataclass(frozen=True, slots=True)
class Project:
    """What pyproject.toml says."""

    name: str
    version: str
    """The only place of the version: that of the image, the chart and the plugin follow from it."""

    @classmethod
    def read(cls) -> Self:
        """Reads pyproject.toml."""
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        return cls(project["name"], project["version"])


def build_wheel(folder: Path) -> Path:
    """Builds Carina's wheel.

    Raises:
        WheelError: it could not be built.
    """
    command = (
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(REPOSITORY)),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WheelError(f"the wheel of {REPOSITORY}:\n{done.stderr}")
    (wheel,) = folder.glob("carina_dra-*.whl")
    return wheel
