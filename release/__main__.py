"""Makes all that a release has: `python -m release DIR`.

DIR gets the image as an OCI archive, the packed chart, all manifests in one file, archives of the
kubectl plugin with the manifest for krew, Carina's wheel, the bill of materials and SHA256SUMS.
The version is that of pyproject.toml. The same commit gives the same bytes.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.manifests import RenderError
from release import parts
from release.bill_of_materials import NotFromLockError
from release.kubectl_plugin import PackagingError
from release.project import REPOSITORY, Project, WheelError
from release.wheels import WheelMissingError
from simulation.kubernetes.build import BuildError, say
from simulation.kubernetes.debian import PackagesMissingError
from simulation.kubernetes.plugin_image import ImageBuildError

_ERRORS = (
    *(BuildError, ImageBuildError, NotFromLockError, PackagesMissingError, PackagingError),
    *(parts.ChartError, RenderError, WheelError, WheelMissingError),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the parts. One that cannot be made is said, and the others are; then returns 1."""
    chosen = _parser().parse_args(arguments)
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: a release is made in a folder of its own")
    project = Project.read()
    makers: Mapping[str, Callable[[], None]] = {
        "bill": lambda: parts.bill(folder, project),
        "chart": lambda: parts.chart(folder, project),
        "manifests": lambda: parts.manifests(folder, project, chosen.repository),
        "plugin": lambda: parts.plugin(folder, project, chosen.downloads),
        "image": lambda: parts.image(folder, project, _revision()),
    }
    missing = 0
    for name in chosen.only or makers:
        say(f"{name} of version {project.version}")
        try:
            makers[name]()
        except _ERRORS as error:
            missing += 1
            say(f"{name} is not made: {error}")
    parts.checksums(folder)
    return 1 if missing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, metavar="DIR", help="an empty folder, or a new one")
    parser.add_argument(
        "--only",
        action="append",
        choices=("bill", "chart", "manifests", "plugin", "image"),
        help="make this part; may be repeated [all]",
    )
    parser.add_argument(
        "--repository",
        default="carina-dra",
        metavar="NAME",
        help="where the image will be, for the manifests [%(default)s]",
    )
    parser.add_argument(
        "--downloads",
        default="https://releases.example.com",
        metavar="URL",
        help="below which URL the archives will be, for krew [%(default)s]",
    )
    return parser


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"  # the sources may have come without Git


if __name__ == "__main__":
    sys.exit(main())
