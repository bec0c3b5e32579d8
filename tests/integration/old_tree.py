"""The files of an earlier commit, for tests of upgrades."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]


def tree_of(commit: str, folder: Path) -> Path:
    """Puts the packages of a commit into a folder, beside the simulation of this one."""
    extract(commit, folder)
    (folder / "simulation").rename(folder / "simulation-of-old")
    (folder / "simulation").symlink_to(_ROOT / "simulation")
    return folder


def extract(commit: str, folder: Path) -> None:
    """Puts the files of a commit into a folder; skips the test if the clone does not have it."""
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", "--format=tar", commit],
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        reason = archive.stderr.decode(errors="replace").strip()
        pytest.skip(f"commit {commit} is not in this clone (fetch the history): {reason}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder, filter="data")
