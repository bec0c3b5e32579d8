"""The image of Carina's processes: the repository's Containerfile, built with Podman.

No image registry is asked. The base image is made of Debian packages, and the Python packages are
downloaded before the build, which has no other source of them. Everything is kept below the cache
folder: the image by the content that it is built from, and Podman's layers, so that changed code
costs one layer.

All times in the image are one, and nothing else in it depends on when or where it is built: the
same files and packages give the same image.
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from simulation.kubernetes import build, debian, images, releases

IMAGE = "docker.io/library/carina-dra:latest"
"""What deploy/ calls `carina-dra:latest`."""

_REPOSITORY = Path(__file__).parents[2]
_LOCKS = ("requirements-build.lock", "requirements-runtime.lock")
_CONTEXT = (
    *("Containerfile", ".containerignore", *_LOCKS),
    *("pyproject.toml", "README.md", "LICENSE", "carina_dra", "controller", "kubelet_plugin"),
    "sharing",
)
_LABEL = "org.opencontainers.image"
_BASE_REVISION = 1  # of how its packages become an image, below
_BASE = "localhost/carina-base"
_BASE_PACKAGES = ("python3", "python3-venv", "coreutils", "dash", "libstdc++6")
_MERGED_FOLDERS = ("bin", "sbin", "lib", "lib64")  # links into usr, which packages rely on
_OTHER_FOLDERS = ("dev", "proc", "sys", "run", "var", "root", "etc", "tmp")
_LEFT_OUT = ("info", "locale", "man")  # of usr/share: a fifth of the base
_TIME = (
    315_532_800  # 1980, the first year that a zip file can hold: what is built is kept by content
)
_GLIBC = (17, 24, 27, 28, 31, 34, 35)  # the manylinux tags that Debian 12 and later can run
_ARCHIVES_KEPT = 3


class ImageBuildError(RuntimeError):
    """The image could not be built; the message ends with what the failing program printed."""


def archive() -> Path:
    """The image as a docker archive, built if it is not there yet.

    Raises:
        ImageBuildError: a step of the build failed.
        PackagesMissingError: apt-get cannot provide the base image.
    """
    home = releases.cache() / "image"
    with build.alone(home):
        found = home / f"{_digest(_content())}.tar"
        if not found.exists():
            build.say(f"Building {IMAGE} -> {found}")
            _build(home, found)
        found.touch()  # the latest used are kept
        newest = sorted(home.glob("*.tar"), key=lambda path: path.stat().st_mtime)
        for old in newest[:-_ARCHIVES_KEPT]:
            old.unlink()
    return found


def write_oci_layout(folder: Path, revision: str) -> None:
    """Builds the image with the label of a revision, and writes it as an OCI image layout.

    Raises:
        ImageBuildError: a step of the build failed.
        PackagesMissingError: apt-get cannot provide the base image, or Podman is missing.
    """
    home = releases.cache() / "image"
    with build.alone(home), _builder(home, revision) as (podman, command):
        name = f"{IMAGE.rpartition(':')[0]}:{_version()}"
        podman.run(*command, f"--tag={name}", _REPOSITORY)
        podman.run("save", "--format=oci-dir", f"--output={folder}", name)
        podman.run("rmi", name)
        podman.run("image", "prune", "--force")


def identity() -> str:
    """The ID of the image: the digest of its configuration, which names its layers."""
    with tarfile.open(archive()) as content:
        manifest = content.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.load(manifest)
    return str(image["Config"]).removesuffix(".json")


def identity_of_another_build() -> str:
    """The ID of the image built again, every step of it; that image is not kept.

    Raises:
        ImageBuildError: a step of the build failed.
        PackagesMissingError: apt-get cannot provide the base image.
    """
    home = releases.cache() / "image"
    with build.alone(home), _builder(home) as (podman, command):
        image = podman.run(*command, "--no-cache", "--quiet", _REPOSITORY).strip()
        podman.run("rmi", image)
        podman.run("image", "prune", "--force")
    return image


def _build(home: Path, output: Path) -> None:
    with _builder(home) as (podman, command):
        # Tagged, so that pruning keeps its layers: they take most of the time.
        podman.run(*command, "--target=dependencies", "--tag=localhost/dependencies", _REPOSITORY)
        podman.run(*command, f"--tag={IMAGE}", _REPOSITORY)
        podman.run("image", "prune", "--force")
        partial = output.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        podman.run("save", "--format=docker-archive", f"--output={partial}", IMAGE)
        partial.rename(output)


@contextmanager
def _builder(home: Path, revision: str = "unknown") -> Iterator[tuple["_Podman", Sequence[str]]]:
    """Podman and its command that builds the image, but for the name and the repository."""
    base = f"{_BASE}:{_digest([_base_recipe()])}"
    podman = _Podman(home)
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        folder = Path(scratch)
        if not podman.has(base):
            build.say("    base image of Debian packages")
            for old in podman.run("images", "--quiet", _BASE).split():
                podman.run("untag", old)
            podman.run("load", f"--input={_base_archive(folder / 'base', base)}")
        wheels = _wheels(home, podman.python_version(base))
        pip_configuration = folder / "pip.conf"
        pip_configuration.write_text("[global]\nno-index = true\nfind-links = /wheelhouse\n")
        yield (
            podman,
            (
                *("build", "--layers", "--isolation=chroot", f"--timestamp={_TIME}"),
                f"--build-arg=BASE={base}",
                # Not as build arguments: Podman's cache does not look at what these are in a label.
                *(
                    f"--label={_LABEL}.version={_version()}",
                    f"--label={_LABEL}.revision={revision}",
                ),
                *("--volume", f"{wheels}:/wheelhouse:ro"),
                *("--volume", f"{pip_configuration}:/etc/pip.conf:ro"),
            ),
        )


class _Podman:
    """Podman with a storage of its own."""

    def __init__(self, home: Path) -> None:
        program = debian.podman()
        if program is None:
            raise debian.PackagesMissingError("an image is built with Podman: install podman")
        self._command = (
            *(str(program), f"--root={home / 'podman'}", f"--runroot={home / 'podman-run'}"),
            *("--cgroup-manager=cgroupfs", "--runtime=runc"),
        )

    def run(self, *arguments: str | Path) -> str:
        return _run([*self._command, *map(str, arguments)])

    def has(self, image: str) -> bool:
        return bool(self.run("images", "--quiet", image).strip())

    def python_version(self, image: str) -> str:
        """The minor version of Python in an image, such as "3.11"."""
        root = Path(self.run("image", "mount", image).strip())
        try:
            (version,) = {
                match[1]
                for path in (root / "usr/bin").iterdir()
                if (match := re.fullmatch(r"python(3\.\d+)", path.name))
            }
        finally:
            self.run("image", "unmount", image)
        return version


def _base_archive(folder: Path, image: str) -> Path:
    """An image of Debian packages, unpacked and not configured."""
    root = folder / "root"
    for name in _MERGED_FOLDERS:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in _OTHER_FOLDERS:
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    for package in debian.download(_BASE_PACKAGES, folder):
        content = folder / "content.tar"
        with content.open("wb") as output:
            _run(["dpkg-deb", "--fsys-tarfile", str(package)], output=output)
        _run(
            [
                "tar",
                "--extract",
                "--keep-directory-symlink",
                *(f"--exclude=./usr/share/{part}" for part in _LEFT_OUT),
                f"--directory={root}",
                f"--file={content}",
            ]
        )
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as layer:
        layer.add(root, arcname=".", filter=_at_one_time)
    return images.write_root(folder / "base.tar", made.getvalue(), image)


def _at_one_time(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = _TIME
    return entry


def _wheels(home: Path, python: str) -> Path:
    """A folder with the packages of the lock, for the Python of the base image."""
    locks = [(_REPOSITORY / name).read_bytes() for name in _LOCKS]
    wheels = home / f"wheels-{_digest([*locks, python.encode(), repr(_GLIBC).encode()])}"
    if wheels.is_dir():
        return wheels
    for old in home.glob("wheels-*"):
        shutil.rmtree(old)
    build.say(f"    Python packages of {' and '.join(_LOCKS)}")
    machine = platform.machine()
    tags = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in _GLIBC))
    partial = home / f"wheels.{os.getpid()}"
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"),
            *("--only-binary=:all:", "--implementation=cp", f"--python-version={python}"),
            *(f"--platform={tag}_{machine}" for tag in tags),
            *(f"--requirement={_REPOSITORY / name}" for name in _LOCKS),
            f"--dest={partial}",
        ]
    )
    partial.rename(wheels)
    return wheels


def _version() -> str:
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _content() -> Iterator[bytes]:
    """Everything that the image depends on."""
    yield _recipe()
    for name in _CONTEXT:
        path = _REPOSITORY / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(_REPOSITORY)).encode()
                yield file.read_bytes()


def _base_recipe() -> bytes:
    """What the base depends on. The history of each image has its name, with this in it."""
    parts = (_BASE_REVISION, _BASE_PACKAGES, _MERGED_FOLDERS, _OTHER_FOLDERS, _LEFT_OUT, _TIME)
    return repr(parts).encode() + Path(images.__file__).read_bytes()


def _recipe() -> bytes:
    return Path(__file__).read_bytes() + Path(images.__file__).read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


def _run(command: Sequence[str], output: IO[bytes] | None = None) -> str:
    done = subprocess.run(
        command, stdout=output or subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    printed = "" if output else done.stdout.decode(errors="replace")
    if done.returncode != 0:
        tail = (printed + done.stderr.decode(errors="replace")).splitlines()[-30:]
        raise ImageBuildError("\n".join([f"`{' '.join(command)}` failed:", *tail]))
    return printed
