"""Builds of the cluster's programs are whole or not there, and made once."""

import fcntl
from pathlib import Path
from threading import Thread

import pytest

from simulation.kubernetes.build import BuildError, build
from simulation.kubernetes.releases import Release

# Stands in for Go: notes its call, and "builds" what is not called broken.
_GO = """#!/bin/sh
echo "$@" >> "{calls}"
while [ "$1" != -o ]; do shift; done
case "$2" in *broken*) echo "broken.go:1: syntax error"; exit 1;; esac
echo built > "$2"
"""


@pytest.fixture
def go_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which our Go notes how it was called."""
    calls = tmp_path / "calls"
    calls.touch()
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(_GO.format(calls=calls))
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CARINA_CACHE", str(tmp_path / "cache"))
    return calls


def _release(tmp_path: Path, *programs: str) -> Release:
    packages = {program: f"example.com/{program}" for program in programs}
    return Release("project", "1.2.3", tmp_path, packages)


def test_programs_appear_by_version(tmp_path: Path, go_calls: Path) -> None:
    release = _release(tmp_path, "one", "two")

    build([release])

    assert release.program("one").read_text() == "built\n"
    assert release.program("two") == tmp_path / "cache/project/1.2.3/bin/two"


def test_build_that_fails_says_what_go_said_and_leaves_nothing_to_take_for_finished(
    tmp_path: Path, go_calls: Path
) -> None:
    release = _release(tmp_path, "one", "broken")

    with pytest.raises(BuildError, match=r"broken\.go:1: syntax error"):
        build([release])

    assert not release.is_built


def test_build_after_one_that_broke_off_starts_anew(tmp_path: Path, go_calls: Path) -> None:
    release = _release(tmp_path, "one")
    broken_off = release.home / "bin.4711"
    broken_off.mkdir(parents=True)

    build([release])

    assert release.is_built
    assert not broken_off.exists()


def test_what_is_built_is_not_built_again(tmp_path: Path, go_calls: Path) -> None:
    release = _release(tmp_path, "one")

    build([release])
    build([release])

    assert len(go_calls.read_text().splitlines()) == 1


def test_builder_waits_for_another_and_takes_what_that_one_built(
    tmp_path: Path, go_calls: Path
) -> None:
    release = _release(tmp_path, "one")
    release.home.mkdir(parents=True)
    with (release.home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = Thread(target=build, args=([release],))
        second.start()
        (release.home / "bin").mkdir()
    second.join()

    assert go_calls.read_text() == ""


def test_build_without_go_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CARINA_CACHE", str(tmp_path / "cache"))

    with pytest.raises(BuildError, match="Go is not installed"):
        build([_release(tmp_path, "one")])
