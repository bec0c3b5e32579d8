"""The bill of materials, read as CycloneDX's own schema has it."""

import json
from typing import Any

import pytest

from release import bill_of_materials as module
from release.bill_of_materials import NotFromLockError, bill_of_materials
from release.project import Project
from tests.integration.release.test_wheels import locked

_PROJECT = Project("carina-dra", "1.2.3")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The bill of materials of a version."""
    document: dict[str, Any] = json.loads(bill_of_materials(_PROJECT))
    return document


def test_it_is_valid() -> None:
    # Not imported above: that takes seconds, in each process that collects the tests.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - as said
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - as said

    validator = JsonStrictValidator(SchemaVersion.V1_6)

    assert validator.validate_str(bill_of_materials(_PROJECT)) is None
    assert validator.validate_str(bill_of_materials(_PROJECT).replace("purl", "prul")) is not None


def test_it_has_every_package_of_the_lock_that_runs(document: dict[str, Any]) -> None:
    names = {component["name"].replace("-", "_") for component in document["components"]}

    assert names == locked()
    assert all(component["purl"].startswith("pkg:pypi/") for component in document["components"])


def test_every_package_has_the_licence_that_it_declares(document: dict[str, Any]) -> None:
    licences = {component["name"]: component["licenses"][0] for component in document["components"]}

    assert licences["aiohttp"] == {"expression": "Apache-2.0 AND MIT"}
    assert licences["certifi"] == {"license": {"id": "MPL-2.0"}}
    assert licences["nvidia-ml-py"] == {"license": {"name": "BSD"}}


def test_it_says_what_needs_what(document: dict[str, Any]) -> None:
    needs = {entry["ref"]: set(entry.get("dependsOn", ())) for entry in document["dependencies"]}

    assert needs["carina-dra"] >= {"grpcio", "kubernetes", "pydantic"}
    assert "pydantic-core" in needs["pydantic"]


def test_it_is_the_same_each_time_for_a_version() -> None:
    assert bill_of_materials(_PROJECT) == bill_of_materials(_PROJECT)
    assert bill_of_materials(_PROJECT) != bill_of_materials(Project("carina-dra", "1.2.4"))


def test_environment_of_another_lock_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lock = tmp_path_factory.mktemp("lock") / "other.lock"
    lock.write_text("pydantic==1.0 \\\n")
    monkeypatch.setattr(module, "RUNTIME_LOCK", lock)

    with pytest.raises(NotFromLockError, match=r"pydantic .* the lock has 1\.0; run make setup"):
        bill_of_materials(_PROJECT)
