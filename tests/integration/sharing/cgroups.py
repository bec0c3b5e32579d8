"""Cgroups as a kubelet makes them, in a folder of the test's own."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Version = Literal["v1", "v2"]
_numbers = itertools.count()


@dataclass(frozen=True)
class Kubepods:
    """The cgroups of pods, with or without systemd's names."""

    mount: Path
    name: str
    systemd: bool

    @property
    def path(self) -> str:
        """Its path in its hierarchy."""
        return f"/{self.name}/kubepods.slice" if self.systemd else f"/{self.name}/kubepods"

    def container(self, pod_uid: str, qos: str | None = None, *below: str) -> Path:
        """Makes the cgroup of a container of a pod, and others within it."""
        container = f"{abs(hash(pod_uid)):064x}"
        if self.systemd:
            stem = "kubepods" if qos is None else f"kubepods-{qos}"
            classes = [] if qos is None else [f"{stem}.slice"]
            pod = f"{stem}-pod{pod_uid.replace('-', '_')}.slice"
            names = [*classes, pod, f"cri-containerd-{container}.scope", *below]
        else:
            classes = [] if qos is None else [qos]
            names = [*classes, f"pod{pod_uid}", container, *below]
        folder = self.mount / self.path.strip("/") / "/".join(names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def move(pid: int, folder: Path) -> None:
    """Moves a process into a cgroup."""
    (folder / "cgroup.procs").write_text(str(pid))


def mount(version: Version) -> Path | str:
    """Where a hierarchy is mounted writable; else why a test that needs it is skipped."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        wanted = "cgroup2" if version == "v2" else "cgroup"
        if kind != wanted or (version == "v1" and "name=systemd" not in options.split(",")):
            continue
        if os.access(place, os.W_OK) and "rw" in options.split(","):
            return Path(place)
    return f"no cgroup {version} hierarchy is mounted writable on this machine"


@contextmanager
def kubepods(at: Path, *, systemd: bool) -> Iterator[Kubepods]:
    """Makes them, and removes them at the end, when all processes in them have ended."""
    made = Kubepods(at, f"carina-test-{os.getpid()}-{next(_numbers)}", systemd)
    (made.mount / made.path.strip("/")).mkdir(parents=True)
    try:
        yield made
    finally:
        root = made.mount / made.name
        for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        root.rmdir()
