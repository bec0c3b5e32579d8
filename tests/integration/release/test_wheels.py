"""The locked packages can be had for every processor of GPU nodes; GB200 hosts have arm64."""

import re
from pathlib import Path

import pytest

from release.wheels import LINUX_ARM64, PYTHONS, RUNTIME_LOCK, WheelMissingError, download


def locked() -> set[str]:
    """The names of the packages that run, with underscores."""
    lines = RUNTIME_LOCK.read_text().splitlines()
    return {line.partition("==")[0].replace("-", "_") for line in lines if "==" in line}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_package_has_a_wheel_for_linux_on_arm64(python: str, tmp_path: Path) -> None:
    wheels = download(LINUX_ARM64, python, tmp_path)

    assert {wheel.name.partition("-")[0].lower() for wheel in wheels} == locked()
    machines = {wheel.stem.rpartition("_")[2] for wheel in wheels if "none-any" not in wheel.name}
    assert machines == {"aarch64"}


def test_python_that_a_package_does_not_support_is_named(tmp_path: Path) -> None:
    with pytest.raises(WheelMissingError, match=r"for linux/arm64 and Python 3\.5"):
        download(LINUX_ARM64, "3.5", tmp_path)


@pytest.mark.parametrize("name", ["requirements-build.lock", "requirements-runtime.lock"])
def test_lock_of_a_part_is_in_the_whole_lock(name: str) -> None:
    whole = RUNTIME_LOCK.with_name("requirements.lock")

    assert _packages(RUNTIME_LOCK.with_name(name)) - _packages(whole) == set()


def _packages(lock: Path) -> set[str]:
    """Each package with its version and hashes."""
    return {*re.split(r"\n(?=\S)", lock.read_text().strip())}
