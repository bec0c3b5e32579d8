"""Builds the missing binaries of a cluster: `python -m simulation.kubernetes.build`.

Invariant: the folder of a release's programs gets its final name only when all of them are built,
so an interrupted build is never mistaken for a complete one. Only one process builds a release at a
time. Go takes its modules from the source that the environment configures.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulation.kubernetes import debian, releases
from simulation.kubernetes.releases import Release

_REPORT_EVERY_S = 15.0


class BuildError(RuntimeError):
    """A release could not be built; the message ends with Go's output."""


def build(wanted: Iterable[Release]) -> None:
    """Builds the releases that are not built yet, and prints the progress.

    Raises:
        BuildError: Go is missing, or a build failed.
    """
    missing = [release for release in wanted if not release.is_built]
    for number, release in enumerate(missing, start=1):
        say(f"[{number}/{len(missing)}] {release.project} {release.version} -> {release.home}")
        with alone(release.home):
            if not release.is_built:  # another builder may have been faster
                _build(release)


def _build(release: Release) -> None:
    for broken_off in release.home.glob("bin.*"):
        shutil.rmtree(broken_off)
    partial = release.home / f"bin.{os.getpid()}"
    partial.mkdir()
    started = time.monotonic()
    for program, package in release.packages.items():
        _go_build(release, package, partial / program)
        say(f"    {program} after {time.monotonic() - started:.0f} s")
    partial.rename(release.home / "bin")


def _go_build(release: Release, package: str, output: Path) -> None:
    command = ["go", "build", "-v", "-o", str(output), "-ldflags", release.ldflags, package]
    environment = {**os.environ, "CGO_ENABLED": "1" if release.cgo else "0"}
    lines: list[str] = []
    try:
        go = subprocess.Popen(
            command,
            cwd=release.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{release.project} must be built, but Go is not installed") from error
    with go:
        assert go.stdout is not None
        reported = time.monotonic()
        for line in go.stdout:  # with -v Go names each package that it compiles or downloads
            lines.append(line)
            if time.monotonic() - reported > _REPORT_EVERY_S:
                reported = time.monotonic()
                say(f"    {output.name}: {len(lines)} packages so far")
    if go.returncode != 0:
        raise BuildError(f"{' '.join(command)} in {release.folder}:\n{''.join(lines[-30:])}")


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Creates a folder of the cache, and holds its lock inside the `with` block."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"    another build of {home} is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Prints progress for the developer."""
    print(line, file=sys.stderr, flush=True)


def everything() -> tuple[Release, ...]:
    """Returns all releases that a control plane and a node need, and Helm."""
    return (
        releases.etcd(),
        releases.kubernetes(),
        releases.containerd(),
        releases.nvidia_container_toolkit(),
        releases.helm(),
    )


if __name__ == "__main__":
    try:
        debian.install_missing()
        build(everything())
    except (BuildError, debian.PackagesMissingError, ValueError) as error:
        sys.exit(str(error))
    say(f"All binaries are in {releases.cache()}")
