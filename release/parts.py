"""The parts of a release, each a function from what it is made of to files of a folder.

Each file is the same for the same sources and packages. Where a part needs a program that is not
there, its error says which one and what provides it.
"""

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.manifests import CHART, single_file
from release import krew, kubectl_plugin
from release.archive import gzipped_tar, members_of, tar, unpacked
from release.bill_of_materials import bill_of_materials
from release.project import Project, build_wheel
from release.wheels import PYTHONS, Platform
from simulation.kubernetes import build, plugin_image, releases

CHECKSUMS: Final = "SHA256SUMS"


class ChartError(RuntimeError):
    """Helm cannot pack the chart; the message is Helm's."""


def image(folder: Path, project: Project, revision: str) -> None:
    """The image of this machine's processor, on a base of Debian packages, as an OCI archive.

    Raises:
        ImageBuildError: a step of the build failed.
        PackagesMissingError: apt-get cannot provide the base image, or Podman is missing.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        layout = Path(scratch, "layout")
        plugin_image.write_oci_layout(layout, revision)
        archive = tar(members_of(layout))
    (folder / f"carina-dra_v{project.version}_image.oci.tar").write_bytes(archive)


def chart(folder: Path, project: Project) -> None:
    """The packed chart, whose version and image are the release's.

    Raises:
        BuildError: Helm must be built, and Go is missing.
        ChartError: Helm refuses the chart.
    """
    with tempfile.TemporaryDirectory() as scratch:
        versions = (f"--version={project.version}", f"--app-version={project.version}")
        done = subprocess.run(
            [_helm(), "package", CHART, *versions, f"--destination={scratch}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ChartError(f"{CHART}: {done.stderr.strip()}")
        (packed,) = Path(scratch).iterdir()
        # Helm's archive has the times of the working tree's files.
        (folder / packed.name).write_bytes(gzipped_tar(unpacked(packed)))


def manifests(folder: Path, project: Project, repository: str) -> None:
    """All objects of an installation in one file, with the image `repository:version`.

    Raises:
        BuildError: Helm must be built, and Go is missing.
        RenderError: Helm refuses the chart.
    """
    text = single_file(_helm(), f"{repository}:{project.version}")
    (folder / f"carina_v{project.version}.yaml").write_text(text)


def plugin(
    folder: Path,
    project: Project,
    downloads: str,
    platforms: Sequence[Platform] = kubectl_plugin.PLATFORMS,
    pythons: Sequence[str] = PYTHONS,
) -> None:
    """The archives of the kubectl plugin, the manifest for krew, and Carina's wheel.

    downloads: the URL below which the archives will be.

    Raises:
        WheelError: Carina's wheel cannot be built.
        WheelMissingError: a package of the lock has no wheel for a platform.
        PackagingError: pex failed.
    """
    wheel = build_wheel(folder)
    archives = {}
    for platform in platforms:
        with tempfile.TemporaryDirectory() as scratch:
            made = kubectl_plugin.build(platform, wheel, Path(scratch), pythons)
            archives[platform] = made.archive(folder, project.version)
    text = krew.manifest(project.version, downloads, archives)
    (folder / f"{krew.NAME}.krew.yaml").write_text(text)


def bill(folder: Path, project: Project) -> None:
    """The bill of materials.

    Raises:
        NotFromLockError: the environment is not the lock's.
    """
    name = f"carina-dra_v{project.version}.cdx.json"
    (folder / name).write_text(bill_of_materials(project))


def checksums(folder: Path) -> None:
    """SHA256SUMS of all files, which `sha256sum --check` reads."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != CHECKSUMS
    ]
    (folder / CHECKSUMS).write_text("".join(lines))


def _helm() -> Path:
    build.build([releases.helm()])
    return releases.helm().program("helm")
