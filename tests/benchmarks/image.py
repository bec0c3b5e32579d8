"""Measures the image: its size, and what it takes to start each process in it.

A process is started in the root folder of the image, as `PROCESS --help`, which loads what the
process needs. This needs root, and Podman for the image.
"""

import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from simulation.kubernetes import plugin_image
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.subject import Hear

NAME: Final = "image"
_MB: Final = 1_000_000
_MIB: Final = 1024
_STARTS: Final = 5
_PROCESSES: Final = {
    "carina-kubelet-plugin": ("--help",),
    "carina-controller": ("--help",),
    "carina": ("--help",),
    "carina queue": ("queue", "--help"),
}
_START: Final = """
import os, sys
child = os.fork()
if child == 0:
    os.chroot(sys.argv[1])
    os.chdir("/")
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, file=sys.stderr)
"""
"""A small process, whose own memory does not count: the kernel counts what is before the exec."""
_ENVIRONMENT: Final = {"PYTHONOPTIMIZE": "2", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin"}


def measure(hear: Hear) -> None:
    """Measures sizes, and CPU time and memory of starts."""
    with tempfile.TemporaryDirectory() as folder:
        _sizes(Path(folder), hear)
        for process, arguments in _PROCESSES.items():
            program = f"/opt/carina/bin/{process.partition(' ')[0]}"
            starts = [_start(folder, program, *arguments) for _ in range(_STARTS)]
            times, memory = zip(*starts, strict=True)
            hear(Measurement(NAME, f"{process}: start, CPU time", min(times) * 1000, "ms"))
            hear(Measurement(NAME, f"{process}: start, memory", min(memory), "MiB"))


def _sizes(root: Path, hear: Hear) -> None:
    """Measures the layers, and unpacks them."""
    with tarfile.open(plugin_image.archive()) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        layers = json.load(manifest)[0]["Layers"]
        sizes, compressed = [], []
        for name in layers:
            content = archive.extractfile(name)
            assert content is not None
            layer = content.read()
            sizes.append(len(layer) / _MB)
            compressed.append(len(gzip.compress(layer, 6)) / _MB)
            content.seek(0)
            with tarfile.open(fileobj=content) as opened:
                opened.extractall(root, filter="fully_trusted")
    hear(Measurement(NAME, "size", sum(sizes), "MB"))
    hear(Measurement(NAME, "size, compressed", sum(compressed), "MB"))
    hear(Measurement(NAME, "size of the code's layer, compressed", compressed[-1], "MB"))


def _start(root: str, program: str, *arguments: str) -> tuple[float, float]:
    """The CPU time of a process in seconds, and its greatest memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _START, root, program, *arguments],
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    time, memory = done.stderr.split()[-2:]
    return float(time), float(memory) / _MIB
