"""Somebody who does what a page says."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, assert_never

from simulation.kubernetes import binaries
from simulation.kubernetes.cluster import Cluster
from tests.documented.page import PageCommand, PageFile, steps

_LONGEST: Final = 180
"""Seconds after which a command is taken to hang."""


def environment_of(cluster: Cluster) -> dict[str, str]:
    """What an administrator of a cluster has: kubectl and carina, and the kubeconfig."""
    programs = (Path(sys.executable).parent, binaries.control_plane().kubectl.parent)
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
    }


def follow(
    page: Path,
    folder: Path,
    *,
    environment: Mapping[str, str],
    done: frozenset[str] = frozenset(),
    after: Mapping[str, Callable[[], None]] | None = None,
) -> int:
    """Does all steps of a page in a folder, and returns the number of commands.

    done: commands that another test runs; the page must have them.
    after: what to wait for after a command, where a person would not notice that it takes a moment.

    Raises:
        AssertionError: a command prints or ends otherwise than the page says.
    """
    commands, left = 0, set(done)
    for step in steps(page.read_text()):
        match step:
            case PageFile(name, text):
                (folder / name).write_text(text)
            case PageCommand(line):
                commands += 1
                if line in done:
                    left.discard(line)
                else:
                    _run(step, folder, environment)
                    (after or {}).get(line, _nothing)()
            case _:
                assert_never(step)
    assert not left, f"{page.name} has no command {sorted(left)}"
    return commands


def _nothing() -> None:
    pass


def _run(command: PageCommand, folder: Path, environment: Mapping[str, str]) -> None:
    ended = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_LONGEST,
    )
    told = f"$ {command.line}\n{ended.stdout}"
    assert ended.returncode == 0, told
    assert command.prints(ended.stdout), f"{told}\nthe page shows:\n" + "\n".join(
        command.output or ()
    )
