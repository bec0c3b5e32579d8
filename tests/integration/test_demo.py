"""The demo as a newcomer runs it: one command, and its exit status says whether all was right."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.demo.manifests import DEPLOY

_COMMAND = (sys.executable, "-m", "simulation.demo")


_EXAMPLES = sorted(path.stem for path in (DEPLOY / "examples").iterdir())


def run(*command: str) -> str:
    """What a command prints that ends well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shown() -> Iterator[str]:
    """What the demo prints, from its beginning to its summary."""
    output = run(*_COMMAND)
    yield output
    shutil.rmtree(directory(output))


def directory(output: str) -> Path:
    """Where the demo says that its files are."""
    match = re.search(r"^ +files +(\S+)", output, re.MULTILINE)
    assert match is not None
    return Path(match[1])


@pytest.mark.parametrize("example", _EXAMPLES)
def test_every_example_is_shown(shown: str, example: str) -> None:
    assert f"== {example}: " in shown


def test_the_readme_shows_what_it_prints(shown: str) -> None:
    readme = (DEPLOY.parent / "README.md").read_text()
    (block,) = re.findall(
        r"^From the end of `make demo`:\n\n```\n(.*?)```$", readme, re.MULTILINE | re.DOTALL
    )
    lines = _without_numbers(block).splitlines()
    assert len(lines) == 12
    at, text = 0, _without_numbers(shown)
    for line in lines:
        at = text.index(line + "\n", at)


def _without_numbers(text: str) -> str:
    """Which pods of the sweep run where, and so which have to go, depends on when they come."""
    return re.sub(r"sweep-\d", "sweep-N", text)


@pytest.mark.parametrize(
    "line",
    [
        "ok all 12 GPUs are published",
        "ok learner sees the devices of its requests and no others: gpu-4",
        "claim shared-by-pods: already prepared, no call",
        "ok main sees the devices of its requests and no others: gpu-0, gpu-1",
        "ok main sees the devices of its requests and no others: gpu-0-mig-1g35gb-15-4",
        '"cdiVersion": "0.5.0"',
        "ok node-1 has no CDI spec left",
        "ok node-2 has no CDI spec left",
        "ok no resourceclaims are left in the API",
        "ok research has all 12 GPUs, 6 of them borrowed",
        "ok production has its quota back, for which",
        "ok no pod of the gang starts: both wait at their gate, without devices",
        "ok it counts the groups of each queue that run and that wait",
        "ok the gang of research has started whole, on what production does not use",
        "25 prepared, 25 unprepared",
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
    output = run(*without, *_COMMAND)
    assert (directory(output) / "node-1/root/dev/nvidia0").readlink() == Path("/dev/null")
    shutil.rmtree(directory(output))


@pytest.mark.node
def test_the_same_is_shown_on_a_real_kubernetes() -> None:
    output = run(*_COMMAND, "--real")
    for example in _EXAMPLES:
        assert f"== {example}: " in output
    assert "ok the gang of research has started whole" in output
    shutil.rmtree(directory(output))
