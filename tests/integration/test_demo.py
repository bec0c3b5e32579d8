"""The demo as a newcomer runs it: one command, and its exit status says whether all was right."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.demo.manifests import DEPLOY

_COMMAND = (sys.executable, "-m", "simulation.demo")


@pytest.fixture(scope="module")
def shown() -> str:
    """What the demo prints, from its beginning to its summary."""
    done = subprocess.run(_COMMAND, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", sorted(path.stem for path in (DEPLOY / "examples").iterdir()))
def test_every_example_is_shown(shown: str, example: str) -> None:
    assert f"== {example}: " in shown


@pytest.mark.parametrize(
    "line",
    [
        "ok all 12 GPUs are published",
        "ok learner sees what its requests were given and no more: gpu-4",
        "claim shared-by-pods: prepared already, no call",
        "ok main sees what its requests were given and no more: gpu-0, gpu-1",
        '"cdiVersion": "0.5.0"',
        "ok node-1 has no CDI spec left",
        "ok node-2 has no CDI spec left",
        "ok no resourceclaims are left in the API",
        "10 prepared, 10 unprepared",
    ],
)
def test_what_there_is_to_see_is_shown(shown: str, line: str) -> None:
    assert line in shown


def test_there_are_no_colours_in_a_file(shown: str) -> None:
    assert "\033" not in shown


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root, and a way to be less"
)
def test_it_needs_no_right_to_make_device_nodes() -> None:
    without = ("setpriv", "--inh-caps=-mknod", "--bounding-set=-mknod")
    done = subprocess.run(
        (*without, *_COMMAND), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    directory = re.search(r"Everything is below (\S+)", done.stdout)
    assert directory is not None
    assert Path(directory[1], "node-1/root/dev/nvidia0").readlink() == Path("/dev/null")
